from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, integers, mask

if TYPE_CHECKING:
    from conftest import Check

aten = torch.ops.aten
one_hot = torch.nn.functional.one_hot

CASES: dict[str, Case] = {
    "tril and triu": (
        lambda x: (x.tril(), x.tril(-1), x.triu(2)),
        [floats(2, 4, 5)],
        [[floats(1, 1, 1)], [floats(0, 3, 3)], [floats(2, 0, 3)]],
    ),
    "tril from the size of another": (
        lambda x, y: (x.tril(y.shape[0]), x.triu(1 - y.shape[0])),
        [floats(4, 5), floats(2)],
        [[floats(4, 5), floats(1)], [floats(4, 5), floats(0)]],
    ),
    "diagonal": (
        lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-2), x.diagonal(1, 0, 2), x.diagonal(0, 2, 1)),
        [floats(3, 4, 5)],
        [[floats(3, 5, 6)], [floats(3, 4, 4)]],
    ),
    "diagonal of a dynamic matrix": (lambda x: x.diagonal(), [floats(6, 6)], [[floats(1, 1)], [floats(0, 0)]]),
    "diagonal beside the matrix": (lambda x: x.diagonal(7), [floats(3, 4)], []),
    "trace": (lambda x: x.trace(), [floats(3, 4)], [[floats(1, 1)], [floats(0, 0)], [floats(5, 2)]]),
    "trace of integers": (lambda x: x.trace(), [integers(3, 4).int()], []),
    "diag": (
        lambda x, y: (x.diag(), x.diag(1), x.diag(-1), y.diag(), y.diag(2), y.diag(-1)),
        [floats(3, 4), floats(3)],
        [[floats(3, 4), floats(1)], [floats(3, 4), floats(0)]],
    ),
    "diag_embed": (
        lambda x: (x.diag_embed(), x.diag_embed(1), x.diag_embed(-1, 0, 1), x.diag_embed(2, 0, 2)),
        [floats(2, 3)],
        [[floats(1, 1)], [floats(2, 0)]],
    ),
    "diag_embed of bools": (lambda x: x.diag_embed(1), [mask(3)], []),
    "diagflat": (lambda x: x.diagflat(1), [floats(2, 2)], []),
    "write into a diagonal": (
        lambda x, y: (
            aten.diagonal_scatter(x, y[:3]),
            aten.diagonal_scatter(x, y[:3], 1),
            aten.diagonal_scatter(x, y[:2], -1),
        ),
        [floats(3, 4), floats(4)],
        [],
    ),
    "write into diagonals": (
        lambda x, y: aten.diagonal_scatter(x, y, 0, 2, 0),
        [floats(3, 2, 4), floats(2, 3)],
        [],
    ),
    "one_hot": (lambda x: one_hot(x, 10), [integers(3, 2)], [[integers(0, 2)]]),
    "one_hot of a number": (lambda x: one_hot(x, 4), [torch.tensor(3)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int32, torch.float64, torch.float16])
def test_triangles_of_every_dtype(dtype: torch.dtype, check: Check) -> None:
    check(lambda x: (x.tril(), x.triu(1)), [integers(3, 5).to(dtype)])
