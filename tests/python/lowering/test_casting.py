from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check

FLOATS = (torch.float32, torch.float16, torch.float64)

DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_casts_to_every_dtype(source: torch.dtype, check: Check) -> None:
    x = torch.tensor([0, 1, 2, 100], dtype=source)
    check(lambda x: [x.to(dtype) for dtype in DTYPES], [x], others=[[x[:1]], [x[:0]]])


def test_casts_floats_to_integers_and_bools(check: Check) -> None:
    x = torch.tensor([0.0, -0.0, 0.4, -0.4, 1.9, -1.9, 100.5, float("nan")])
    check(lambda x: (x[:-1].to(torch.int64), x[:-1].to(torch.int8), x.to(torch.bool)), [x])


def test_casts_by_name_and_by_example(check: Check) -> None:
    inputs = [torch.arange(3), torch.rand(2)]
    check(
        lambda x, y: (x.float(), x.half(), x.double(), x.bool(), y.long(), x.type_as(y), x.to(y), y.to("cpu")), inputs
    )


def test_copies_are_the_same(check: Check) -> None:
    check(lambda x: (x.clone() + 1, x.contiguous() * 2, x.detach() - 1, torch.ops.aten.alias(x) / 2), [torch.rand(3)])


def test_gives_an_input_back(check: Check) -> None:
    check(lambda x: x.to(torch.float32), [torch.rand(3)], others=[[torch.rand(2)]])


@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_what_float8_does_not_hold_is_infinite(source: torch.dtype, check: Check) -> None:
    numbers = [0.0, -0.0, 1.1, 57344.0, 59000.0, 61439.0, 61440.0, -61440.0, 65000.0, float("inf"), -float("inf")]
    x = torch.tensor([*numbers, float("nan")], dtype=source)
    check(lambda x: x.to(torch.float8_e5m2).to(torch.float32), [x], others=[[x[:3]]])


@pytest.mark.parametrize("source", FLOATS[::2], ids=str)
@pytest.mark.parametrize("to", [torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_an_int64_of_a_float_loses_its_upper_bits(to: torch.dtype, source: torch.dtype, check: Check) -> None:
    x = torch.tensor([3e9, -3e9, 1.0, 70000.0, -129.0, 5e17], dtype=source)
    check(lambda x: (x.long().to(to), x.long()[1:].to(to), x.long().view(2, -1).T.to(to)), [x])
