"""`nn.TransformerEncoder` with a mask of padding: what it returns for the padding, when it runs without gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

_TARGET = "torch.nn.TransformerEncoder.forward"

#: An encoder: itself, its inputs, the mask between tokens, that of the padding.
_Forward = Callable[[torch.nn.TransformerEncoder, Tensor, Tensor | None, Tensor | None, bool | None], Tensor]


def _with_blank_padding(original: _Forward) -> _Forward:
    """Zeros in the place of the padding behind the last layer, if there is none in front of a token.

    Outside of a trace torch packs the tokens together for the layers, and unpacks them with zeros between, since 1.12.
    A trace goes the other way, by which the padding has what the layers made of it.
    """

    @functools.wraps(original)
    def forward(
        self: torch.nn.TransformerEncoder,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        output = original(self, src, mask, src_key_padding_mask, is_causal)
        if mask is not None or src_key_padding_mask is None or not _packs(self, src):
            return output
        padding = src_key_padding_mask.bool()
        is_behind = (padding[:, 1:] | ~padding[:, :-1]).all()
        blank = torch.zeros_like(output)
        return torch.where((padding & is_behind)[..., None], blank if self.norm is None else self.norm(blank), output)

    return forward


def _packs(encoder: torch.nn.TransformerEncoder, source: Tensor) -> bool:
    """Whether torch packs tokens where it is not tracing: the conditions that do not depend on data."""
    first = encoder.layers[0]
    trains = torch.is_grad_enabled() and any(weight.requires_grad for weight in first.parameters())
    return (
        torch.backends.mha.get_fastpath_enabled()
        and encoder.use_nested_tensor
        and encoder.mask_check
        and source.dim() == 3
        and not first.training
        and not trains
        and not torch.is_autocast_enabled()
    )


def _probe() -> Verdict:
    # The names of its code tell it without its source, in torch 2.11 to 2.13.
    names = torch.nn.TransformerEncoder.forward.__code__.co_names
    return NEEDED if "to_padded_tensor" in names else not_needed("torch packs no tokens")


PATCHES = (
    Patch(
        name="padding behind an encoder",
        kind="torch",
        target=_TARGET,
        reason="the padding has zeros where torch packs the tokens, which it does in eager mode alone",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/transformer.py",
        probe=_probe,
        replace=_with_blank_padding,
    ),
)
