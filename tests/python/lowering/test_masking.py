from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, indices, integers, mask, nowhere

if TYPE_CHECKING:
    from conftest import Check

CASES: dict[str, Case] = {
    "masked_select": (
        lambda x, m: x.masked_select(m),
        [floats(4, 5), mask(4, 5)],
        [[floats(1, 5), nowhere(1, 5)]],
    ),
    "masked_select that broadcasts": (lambda x, m: x.masked_select(m), [floats(4, 1), mask(5)], []),
    "masked_select of a number": (lambda x, m: x.masked_select(m), [floats(), torch.tensor(True)], []),
    "masked_scatter": (
        lambda x, m, s: x.masked_scatter(m, s),
        [floats(4, 5), mask(4, 1), floats(4, 5)],
        [[floats(1, 5), nowhere(1, 1), floats(1, 5)]],
    ),
    "masked_scatter of nothing": (lambda x, m, s: x.masked_scatter(m, s), [floats(4, 5), nowhere(4, 5), floats(0)], []),
    "nonzero": (lambda x: x.nonzero(), [mask(4, 5)], [[nowhere(1, 5)], [nowhere(0, 5)]]),
    "nonzero of a number": (lambda x: x.nonzero(), [torch.tensor(1.0)], [[torch.tensor(0.0)]]),
    "nonzero as a tuple": (lambda x: x.nonzero(as_tuple=True), [mask(4, 5)], [[nowhere(4, 5)]]),
    "nonzero of a number as a tuple": (lambda x: x.nonzero(as_tuple=True), [torch.tensor(2)], []),
    "nonzero of a fixed size": (
        lambda x: (torch.nonzero_static(x, size=4), torch.nonzero_static(x, size=1, fill_value=7)),
        [indices(1, 0, 2)],
        [[indices(1, 1, 2)], [indices(0, 0, 0)]],
    ),
    "argwhere": (lambda x: x.argwhere(), [indices(1, 0, 2)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int8, torch.int16, torch.int32, torch.uint8])
def test_nonzero_of_every_dtype(dtype: torch.dtype, check: Check) -> None:
    check(lambda x: x.nonzero(), [integers(4, 5, high=2).to(dtype)])
