from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Check

DYNAMIC = torch.export.Dim.DYNAMIC
OPSETS = (18, 22, 25)


def operands(batch: int, sequence: int, keys: int, heads: int = 2, groups: int = 2) -> list[torch.Tensor]:
    shapes = ((batch, heads, sequence, 4), (batch, groups, keys, 4), (batch, groups, keys, 4))
    return [torch.randn(shape) for shape in shapes]


def bool_mask(batch: int, sequence: int, keys: int) -> torch.Tensor:
    """Hides some keys, and all of them from the first query."""
    mask = torch.rand(batch, 1, sequence, keys) > 0.4
    mask[:, :, 0] = False
    return mask


def float_mask(batch: int, sequence: int, keys: int) -> torch.Tensor:
    return torch.where(bool_mask(batch, sequence, keys), 0.25, -float("inf"))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("causal", [False, True], ids=("all", "causal"))
def test_attention_over_dynamic_sequences(causal: bool, opset: int, check: Check) -> None:
    check(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal),
        operands(2, 3, 5),
        others=[operands(1, 1, 4), operands(3, 4, 2), operands(1, 2, 0)],
        opset=opset,
    )


@pytest.mark.parametrize("opset", OPSETS)
def test_a_query_whose_mask_is_not_a_number_has_none_either(opset: int, check: Check) -> None:
    mask = float_mask(2, 3, 5)
    mask[0, :, 1, 2] = mask[1, :, 2] = float("nan")
    mask[1, :, 1] = torch.tensor([-float("inf"), float("nan"), -float("inf"), -float("inf"), -float("inf")])
    check(
        lambda q, k, v, m: scaled_dot_product_attention(q, k, v, attn_mask=m),
        [*operands(2, 3, 5), float_mask(2, 3, 5)],
        others=[[*operands(2, 3, 5), mask]],
        opset=opset,
    )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("mask", [bool_mask, float_mask])
def test_a_query_that_sees_no_key_gives_zeros(
    mask: Callable[[int, int, int], torch.Tensor], opset: int, check: Check
) -> None:
    sizes = ((2, 3, 5), (1, 1, 4), (2, 3, 0))
    first, *others = ([*operands(*size), mask(*size)] for size in sizes)
    check(
        lambda q, k, v, m: scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3),
        first,
        others=others,
        dynamic_shapes=[{0: DYNAMIC, 2: DYNAMIC}] * 3 + [{0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC}],
        opset=opset,
    )


@pytest.mark.parametrize("shape", [(2, 1, 3, 5), (2, 4, 3, 5), (1, 4, 3, 5), (4, 3, 5), (3, 5)], ids=str)
def test_heads_that_share_keys_with_every_shape_of_mask(shape: tuple[int, ...], check: Check) -> None:
    mask = torch.rand(shape) > 0.3
    check(
        lambda q, k, v, m: scaled_dot_product_attention(q, k, v, attn_mask=m, enable_gqa=True),
        [*operands(2, 3, 5, heads=4), mask],
    )


def test_heads_that_share_keys_over_dynamic_sequences(check: Check) -> None:
    check(
        lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        operands(2, 3, 5, heads=4),
        others=[operands(1, 1, 4, heads=4), operands(2, 3, 0, heads=4)],
    )


@pytest.mark.parametrize("rank", [2, 3])
def test_attention_without_heads(rank: int, check: Check) -> None:
    query, key, value = (x[0, 0] if rank == 2 else x[0] for x in operands(1, 3, 5))
    check(scaled_dot_product_attention, [query, key, value])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_attention_in_other_floats(dtype: torch.dtype, check: Check) -> None:
    inputs = [x.to(dtype) for x in operands(2, 3, 5)]
    check(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True), inputs)


def test_a_transformer_layer(check: Check) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    check(layer, [torch.rand(2, 3, 8)])


def test_multi_head_attention_with_its_weights(check: Check) -> None:
    x = torch.rand(2, 3, 8)
    check(torch.nn.MultiheadAttention(8, 2, batch_first=True), [x, x, x])
