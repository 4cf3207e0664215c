"""Recurrent layers: torch keeps the operator in the program, and yet walks over every step to find out its shapes."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed
from exportguard.declaration.targets import resolve_object

_LAYERS = "torch._decomp.decompositions"


def shapes_without_steps(original: Callable[..., Any]) -> Callable[..., Any]:
    """The layer, which takes one step for all where only the shapes are asked for and the number of steps is open."""

    @functools.wraps(original)
    def one_layer(inp: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not _is_only_for_shapes(inp):
            return original(inp, *args, **kwargs)
        outputs, state = original(inp.new_empty((1, *inp.shape[1:])), *args, **kwargs)
        return outputs.new_empty((inp.shape[0], *outputs.shape[1:])), state

    return one_layer


def _is_only_for_shapes(inp: torch.Tensor) -> bool:
    """Whether the values are fake and no operator is recorded: the layer's own is in the program already."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    steps: object = inp.shape[0]
    return isinstance(inp, FakeTensor) and isinstance(steps, torch.SymInt) and get_proxy_mode() is None


def _probe() -> Verdict:
    layer = resolve_object(f"{_LAYERS}.one_layer_rnn")
    has_loop = any(step.opname == "FOR_ITER" for step in dis.get_instructions(layer))
    return NEEDED if has_loop else not_needed("torch finds the shapes without the steps")


PATCHES = (
    Patch(
        name="lengths of recurrent layers",
        kind="torch",
        target=(f"{_LAYERS}.one_layer_lstm", f"{_LAYERS}.one_layer_rnn"),
        reason="to find the shapes of LSTM, GRU and RNN, torch iterates over their steps, which fixes their number",
        upstream="https://github.com/pytorch/pytorch/issues/126339",
        probe=_probe,
        replace=shapes_without_steps,
    ),
)
