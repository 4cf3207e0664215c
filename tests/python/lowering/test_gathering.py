from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, indices, integers

if TYPE_CHECKING:
    from conftest import Check

CASES: dict[str, Case] = {
    "index_select": (
        lambda x, i: (x.index_select(0, i), x.index_select(-1, i)),
        [floats(4, 5), indices(0, 3)],
        [[floats(4, 5), indices(1)]],
    ),
    "index_select of a number": (lambda x, i: x.index_select(0, i), [floats(), indices(0)], []),
    "index_select by a number": (lambda x, i: x.index_select(0, i), [floats(3), torch.tensor(1)], []),
    "gather": (
        lambda x, i: (x.gather(1, i), x.gather(0, i)),
        [floats(4, 5), integers(2, 3, high=3)],
        [[floats(4, 5), integers(0, 3)], [floats(6, 5), integers(1, 3, high=2)]],
    ),
    "gather a number by a number": (lambda x, i: x.gather(0, i), [floats(), torch.tensor(0)], []),
    "gather a number by a vector": (lambda x, i: x.gather(0, i), [floats(), indices(0, 0)], []),
    "gather a vector by a number": (lambda x, i: x.gather(0, i), [floats(3), torch.tensor(2)], []),
    "take": (lambda x, i: x.take(i), [floats(3, 4), torch.tensor([[1, -1], [0, 5]])], []),
    "take_along_dim": (lambda x, i: x.take_along_dim(i, 1), [floats(3, 4), integers(1, 3, high=4)], []),
    "take_along_dim around an axis": (
        lambda x, i: x.take_along_dim(i, 0),
        [floats(3, 4), torch.tensor([[3, 7, -4, -1]])],
        [],
    ),
    "take_along_dim of one row": (lambda x, i: x.take_along_dim(i, 1), [floats(1, 4), integers(3, 2, high=4)], []),
    "take_along_dim of all": (lambda x, i: x.take_along_dim(i), [floats(3, 4), integers(3, high=4)], []),
    "put": (
        lambda x, i, v: (x.put(i, v), x.put(i, v, True)),
        [floats(3, 4), torch.tensor([[1, 5], [0, 7]]), floats(2, 2)],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("sizes", [(0,), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_an_empty_index_may_be_of_any_dtype_and_rank(sizes: tuple[int, ...], dtype: torch.dtype, check: Check) -> None:
    check(lambda x, i: x.gather(0, i), [floats(5), torch.zeros(sizes, dtype=dtype)])
