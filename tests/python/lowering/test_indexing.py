from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, indices, integers, mask, nowhere

if TYPE_CHECKING:
    from conftest import Check

put = torch.ops.aten.index_put.default

X = floats(4, 5, 6)
SOME = torch.tensor([True, False, True, True])

READS: dict[str, Case] = {
    "rows": (lambda x, i: x[i], [X, indices(0, 2, -1)], [[X, indices(1)], [X, indices()]]),
    "columns": (lambda x, i: x[:, i], [X, indices(0, 2, -1)], [[floats(1, 5, 6), indices(1)]]),
    "a matrix of positions": (lambda x, i: x[:, i], [X, torch.tensor([[0, 2], [1, -1]])], []),
    "positions of 32 bits": (lambda x, i: x[i], [X, indices(0, 2, -1).int()], []),
    "neighbouring axes in front": (
        lambda x, i, j: x[i, j],
        [X, indices(0, 2, -1), indices(1, 1, 0)],
        [[X, indices(0, 2, 1, 1), indices(1, 1, 0, 4)]],
    ),
    "neighbouring axes behind": (
        lambda x, i, j: x[:, i, j],
        [X, indices(0, 2, -1), indices(1, 1, 0)],
        [[floats(1, 5, 6), indices(0, 2, -1), indices(1, 1, 0)]],
    ),
    "axes apart": (lambda x, i, j: x[i, :, j], [X, indices(0, 2, -1), indices(1, 1, 0)], []),
    "positions that broadcast": (
        lambda x, i, j: x[i, j],
        [X, torch.tensor([[0], [2]]), indices(1, 1, 0)],
        [[X, torch.tensor([[1], [3], [0]]), indices(1, 0, 4)]],
    ),
    "all axes": (lambda x, i, j, k: x[i, j, k], [X, indices(0, 1), indices(1, 2), indices(3, -1)], []),
    "a mask of rows": (lambda x, m: x[m], [X, SOME], [[X, nowhere(4)]]),
    "a mask of columns": (
        lambda x, m: x[:, m],
        [X, mask(5)],
        [[floats(1, 5, 6), nowhere(5)]],
    ),
    "a mask of two axes": (lambda x, m: x[m], [X, mask(4, 5)], [[floats(1, 5, 6), nowhere(1, 5)]]),
    "a mask of all axes": (lambda x: x[x > 0], [X], [[floats(1, 1, 6)], [floats(0, 2, 6)]]),
    "a mask of the last two axes": (lambda x, m: x[:, m], [X, mask(5, 6)], []),
    "a mask beside a position, apart": (
        lambda x, m, i: x[m, :, i],
        [X, SOME, indices(2)],
        [[X, torch.tensor([False, False, True, False]), indices(2)]],
    ),
    "a new axis": (lambda x, i: x[None, :, i], [X, indices(0, 1)], []),
    "bools": (lambda x, i, j: (x > 0)[i, j], [X, indices(0, 2, -1), indices(1, 1, 0)], []),
    "four axes, each along its own, as attention masks are read": (
        lambda x, b, h, q, k: x[b, h, q, k],
        [
            mask(2, 1, 3, 4),
            torch.arange(2)[:, None, None, None],
            torch.zeros(1, 1, 1, 1, dtype=torch.int64),
            torch.arange(3)[None, None, :, None],
            torch.arange(4)[None, None, None, :],
        ],
        [
            [
                mask(2, 1, 5, 6),
                torch.arange(2)[:, None, None, None],
                torch.zeros(1, 1, 1, 1, dtype=torch.int64),
                torch.arange(5)[None, None, :, None],
                torch.arange(6)[None, None, None, :],
            ]
        ],
    ),
}

WRITES: dict[str, Case] = {
    "rows": (
        lambda x, i, v: put(x, [i], v),
        [X, indices(0, 2), floats(2, 5, 6)],
        [[X, indices(3), floats(1, 5, 6)], [X, indices(), floats(0, 5, 6)]],
    ),
    "a number into rows": (lambda x, i: put(x, [i], torch.tensor(7.0)), [X, indices(0, 2)], []),
    "rows added, one of them twice": (lambda x, i, v: put(x, [i], v, True), [X, indices(0, 2, 0), floats(3, 5, 6)], []),
    "the positions of a cache": (
        lambda x, i, v: put(x, [None, None, i], v),
        [floats(2, 3, 8, 4), indices(1, 2), floats(2, 3, 2, 4)],
        [[floats(2, 3, 8, 4), indices(7), floats(2, 3, 1, 4)]],
    ),
    "neighbouring axes": (
        lambda x, i, j, v, w: (put(x, [i, j], v), put(x, [i, j], v[0]), put(x, [None, i, j], w)),
        [X, indices(0, 1), indices(2, 3), floats(2, 6), floats(4, 2)],
        [],
    ),
    "axes apart": (
        lambda x, i, j, v: put(x, [i, None, j], v),
        [X, indices(0, 1), indices(2, 3), floats(2, 5)],
        [],
    ),
    "the same element added twice": (
        lambda x, i, j, v: put(x, [i, j], v, True),
        [X, indices(0, 0), indices(2, 2), floats(2, 6)],
        [],
    ),
    "bools added": (lambda x, i, v: put(x, [i], v, True), [mask(4, 3), indices(0, 0), mask(2, 3)], []),
    "integers added": (lambda x, i, v: put(x, [i], v, True), [integers(4, 3), indices(0, 0), integers(2, 3)], []),
    "a number where a mask is true": (
        lambda x, m: put(x, [m], torch.tensor(7.0)),
        [X, mask(4, 5, 6)],
        [[floats(1, 5, 6), nowhere(1, 5, 6)]],
    ),
    "a number into masked rows": (
        lambda x, m: put(x, [m], torch.tensor(7.0)),
        [X, mask(4)],
        [[floats(1, 5, 6), nowhere(1)]],
    ),
    "one row where a mask of two axes is true": (
        lambda x, m, v: (put(x, [m], v), put(x, [m], v[0])),
        [X, mask(4, 5), floats(1, 6)],
        [],
    ),
    "one row where a mask of columns is true": (
        lambda x, m, v, w: (put(x, [None, m], v), put(x, [None, m], w)),
        [X, mask(5), floats(1, 6), floats(4, 1, 6)],
        [],
    ),
    "one column where a mask of the last two axes is true": (
        lambda x, m, v: put(x, [None, m], v),
        [X, mask(5, 6), floats(4, 1)],
        [],
    ),
    "as many rows as a mask is true for": (
        lambda x, m, v: put(x, [m], v),
        [X, torch.tensor([True, False, True, False]), floats(2, 5, 6)],
        [],
    ),
    "a number added where a mask is true": (lambda x, m: put(x, [m], torch.tensor(7.0), True), [X, mask(4, 5, 6)], []),
    "a mask that is one bool": (
        lambda x, m: put(x, [m], torch.tensor(7.0)),
        [floats(3), torch.tensor(True)],
        [[floats(3), torch.tensor(False)]],
    ),
    "a mask beside positions": (
        lambda x, m, i, v: put(x, [m, i], v),
        [X, SOME, indices(0, 1, 2), floats(3, 6)],
        [],
    ),
    "one row by a number": (lambda x, i, v: put(x, [i], v), [X, torch.tensor(2), floats(5, 6)], []),
    "nothing into nothing": (lambda x, i, v: put(x, [i], v), [floats(0, 3), indices(), floats(0, 3)], []),
}


@pytest.mark.parametrize("name", READS)
def test_reading_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = READS[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("name", WRITES)
def test_writing_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = WRITES[name]
    check(function, inputs, others=others)


def test_halves_are_added_in_float32(check: Check) -> None:
    ones = torch.ones(2, 5, 6, dtype=torch.float16)
    check(lambda x, i, v: put(x, [i], v, True), [X.round().half(), indices(0, 0), ones])


def test_positions_beside_the_tensor_are_read_where_a_mask_allows(check: Check) -> None:
    def read(x: torch.Tensor, m: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._unsafe_masked_index(x, m, [i, j], 3)

    i = torch.arange(6).reshape(6, 1)
    j = torch.arange(7).reshape(1, 7)
    check(read, [floats(4, 5), (i < 4) & (j < 5), i, j])
