"""Attention of `torch.nn` with masks as the one kernel answers in which torch runs it without gradients.

A trace goes another way than eager mode does, since torch 1.12: `nn.MultiheadAttention` by a test of the trace, a layer
of an encoder by one of the modes that are on. The kernels differ from that way in three things, in torch 2.11 to 2.13:
a query that sees nothing is NaN, while `scaled_dot_product_attention` gives 0; a layer of an encoder hides all that a
mask of floats has another number than 0 for, and adds none of them; and what a mask says holds, not `is_causal`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

_ATTENTION = "torch.nn.MultiheadAttention.forward"
_LAYER = "torch.nn.TransformerEncoderLayer.forward"
_SOURCE = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/"


def _may_fuse(source: Tensor, weights: Iterable[Tensor]) -> bool:
    """Whether torch runs fused kernels, for inputs of so many axes and of that dtype."""
    held = list(weights)
    trains = torch.is_grad_enabled() and any(weight.requires_grad for weight in (source, *held))
    return (
        torch.backends.mha.get_fastpath_enabled()
        and source.dim() == 3
        and all(weight.dtype == source.dtype for weight in held)
        and not trains
        and not torch.is_autocast_enabled()
    )


def _attention_fuses(attention: torch.nn.MultiheadAttention, operands: tuple[Tensor, Tensor, Tensor]) -> bool:
    query, key, value = operands
    weights = attention.in_proj_weight, attention.in_proj_bias
    return (
        query is key
        and key is value
        and not attention.training
        and attention.num_heads % 2 == 0
        and attention.batch_first
        and attention.bias_k is None
        and attention.bias_v is None
        and not attention.add_zero_attn
        and attention._qkv_same_embed_dim
        and weights[0] is not None
        and weights[1] is not None
        and _may_fuse(query, weights)
    )


def _layer_fuses(layer: torch.nn.TransformerEncoderLayer, source: Tensor) -> bool:
    attention = layer.self_attn
    is_hooked = any(module._forward_hooks or module._forward_pre_hooks for module in layer.modules())
    return (
        not layer.training
        and attention.batch_first
        and attention.in_proj_bias is not None
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and bool(layer.activation_relu_or_gelu)
        and layer.norm1.eps == layer.norm2.eps
        and not is_hooked
        and _may_fuse(source, layer.parameters())
    )


def _with_heads(mask: Tensor, batch: Any) -> Tensor:
    """`[queries, keys]` or `[batch * heads, queries, keys]` with the axes of both in front."""
    return mask[None, None] if mask.dim() == 2 else mask.view(batch, -1, *mask.shape[1:])


def _blind_are_nan(output: Tensor, between: Tensor | None, padding: Tensor | None) -> Tensor:
    """NaN in the place of the queries for which all is hidden, be it in one head alone: what follows mixes the heads.

    `output` is `[batch, queries, width]`, `between` tokens that of the attention, `padding` is `[batch, keys]`.
    """
    masks = [] if padding is None else [padding[:, None, None]]
    masks += [] if between is None else [_with_heads(between, output.shape[0])]
    is_hidden = functools.reduce(torch.logical_or, masks)
    is_blind = is_hidden.all(-1).any(1)
    return torch.where(is_blind[..., None], math.nan, output)


def _is_bool(mask: Tensor | None) -> bool:
    return mask is None or mask.dtype == torch.bool


def _of_fused_attention(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def forward(
        self: torch.nn.MultiheadAttention,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        masks = attn_mask, key_padding_mask
        is_masked = any(mask is not None for mask in masks) and all(map(_is_bool, masks))
        is_fused = is_masked and _attention_fuses(self, (query, key, value))
        output, weights = original(
            self,
            query,
            key,
            value,
            key_padding_mask,
            need_weights,
            attn_mask,
            average_attn_weights,
            is_causal and not is_fused,
        )
        return _blind_are_nan(output, *masks) if is_fused else output, weights

    return forward


def _hidden(layer: Any, source: Tensor, masks: tuple[Tensor | None, Tensor | None]) -> list[Tensor | None]:
    """The masks of a layer as its kernel reads them: hidden is whatever is not 0 in their sum."""
    between, padding = masks
    if between is None or padding is None or _is_bool(between) or _is_bool(padding):
        return [mask if mask is None or _is_bool(mask) else mask != 0 for mask in masks]
    batch, length, heads = source.shape[0], source.shape[1], layer.self_attn.num_heads
    added = _with_heads(between, batch) + padding[:, None, None]
    return [(added != 0).expand(batch, heads, length, length).flatten(0, 1), None]


def _of_fused_layer(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def forward(
        self: torch.nn.TransformerEncoderLayer,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        masks = src_mask, src_key_padding_mask
        if all(mask is None for mask in masks) or not _layer_fuses(self, src):
            return original(self, src, src_mask, src_key_padding_mask, is_causal)
        hidden = _hidden(self, src, masks)
        return _blind_are_nan(original(self, src, *hidden, False), *hidden)

    return forward


def _probe(forward: Callable[..., Any], kernel: str) -> Verdict:
    # The names of its code tell it without its source, in torch 2.11 to 2.13.
    return NEEDED if kernel in forward.__code__.co_names else not_needed("torch has no fused kernel for it")


PATCHES = (
    Patch(
        name="masks of fused attention",
        kind="torch",
        target=_ATTENTION,
        reason="a query that sees nothing is NaN in the kernel that torch takes in eager mode alone",
        upstream=f"{_SOURCE}activation.py",
        probe=lambda: _probe(torch.nn.MultiheadAttention.forward, "_native_multi_head_attention"),
        replace=_of_fused_attention,
    ),
    Patch(
        name="masks of a fused layer",
        kind="torch",
        target=_LAYER,
        reason="the kernel that torch takes in eager mode alone hides all that a mask of floats has no 0 for",
        upstream=f"{_SOURCE}transformer.py",
        probe=lambda: _probe(torch.nn.TransformerEncoderLayer.forward, "_transformer_encoder_layer_fwd"),
        replace=_of_fused_layer,
    ),
)
