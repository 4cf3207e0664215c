"""`nn.AdaptiveLogSoftmaxWithLoss`, which computes clusters of classes for the rows that need them: here, for all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

_Layer = torch.nn.AdaptiveLogSoftmaxWithLoss
_PATH = "torch.nn.AdaptiveLogSoftmaxWithLoss"
_Predicted = torch.nn.modules.adaptive._ASMoutput  # the tuple that torch returns, in 2.11 to 2.13


def of_all_classes(original: Callable[..., Any]) -> Callable[..., Any]:
    """`forward`: what the logarithms of all classes say of the targets.

    Each row's sum of the cluster and the class within it is the one that torch adds up for that row.
    """

    @functools.wraps(original)
    def forward(self: _Layer, input_: torch.Tensor, target_: torch.Tensor) -> Any:
        if not torch.compiler.is_exporting():
            return original(self, input_, target_)
        rows = input_ if target_.ndim else input_.unsqueeze(0)
        chances = self.log_prob(rows)
        output = chances.gather(1, target_.reshape(-1, 1)).squeeze(1)
        loss = (-output).mean()
        return _Predicted(output if target_.ndim else output.squeeze(0), loss)

    return forward


def of_each_row(original: Callable[..., Any]) -> Callable[..., Any]:
    """`predict`: the best of the head, and for rows whose best is a cluster the best of all classes."""

    @functools.wraps(original)
    def predict(self: _Layer, input: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting():
            kept: torch.Tensor = original(self, input)
            return kept
        best: torch.Tensor = self.head(input).argmax(1)
        return torch.where(best >= self.shortlist_size, self.log_prob(input).argmax(1), best)

    return predict


def _probe(method: Any, asks: str) -> Verdict:
    # The names of its code tell it without its source, in torch 2.11 to 2.13.
    return NEEDED if asks in method.__code__.co_names else not_needed("torch looks for no rows of a cluster")


def _patch(name: str, method: Any, asks: str, replace: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Patch:
    return Patch(
        name=name,
        kind="torch",
        target=f"{_PATH}.{method.__name__}",
        reason="how many rows belong to a cluster of classes depends on data, at which a trace stops",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/adaptive.py",
        probe=functools.partial(_probe, method, asks),
        replace=replace,
    )


PATCHES = (
    _patch("losses of clusters of classes", _Layer.forward, "nonzero", of_all_classes),
    _patch("predictions of clusters of classes", _Layer.predict, "any", of_each_row),
)
