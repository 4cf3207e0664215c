from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats

if TYPE_CHECKING:
    from conftest import Check

aten = torch.ops.aten

BOUNDS = [
    (1, None, 1),
    (None, -1, 1),
    (-2, None, 1),
    (-100, 100, 1),
    (2, 1, 1),
    (0, None, 2),
    (1, None, 3),
    (-1, -3, 1),
    (5, 9, 1),
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_slice_clamps_its_bounds_as_torch_does(bounds: tuple[int | None, int | None, int], check: Check) -> None:
    check(lambda x: x[:, slice(*bounds)], [floats(3, 4)], others=[[floats(1, 4)], [floats(0, 4)]])


CASES: dict[str, Case] = {
    "slice in steps of a size": (
        lambda x, y: x[:, :: y.shape[0]],
        [floats(3, 7), floats(2)],
        [[floats(3, 9), floats(3)], [floats(2, 5), floats(8)]],
    ),
    "slice in steps of a part of its size": (
        lambda x: x[:, 1 :: max(1, x.shape[1] // 4)],
        [floats(3, 9)],
        [[floats(3, 17)], [floats(2, 6)]],
    ),
    "write in steps of a size": (
        lambda x, y: x.slice_scatter(x[:, :: y.shape[0]] * 2, 1, 0, None, y.shape[0]),
        [floats(3, 7), floats(2)],
        [[floats(3, 9), floats(3)], [floats(2, 5), floats(8)]],
    ),
    "slice of a dynamic axis": (lambda x: x[:, :, 1:], [floats(3, 4, 6)], [[floats(1, 4, 2)], [floats(1, 4, 3)]]),
    "slice up to the size of another": (
        lambda x, y: x[:, : y.shape[0]],
        [floats(3, 6), floats(4)],
        [[floats(3, 6), floats(1)], [floats(3, 6), floats(0)]],
    ),
    "slice from a difference of sizes": (
        lambda x, y: x[:, x.shape[1] - y.shape[0] :],
        [floats(3, 6), floats(4)],
        [[floats(3, 9), floats(1)], [floats(3, 2), floats(2)]],
    ),
    "slice from a negative size": (
        lambda x, y: x[:, -y.shape[0] :],
        [floats(3, 6), floats(4)],
        [[floats(3, 9), floats(1)], [floats(3, 2), floats(2)]],
    ),
    "select": (lambda x: (x[0], x[:, -1], x[:, :, 2]), [floats(3, 4, 5)], [[floats(1, 4, 5)]]),
    "select by the size of another": (
        lambda x, y: x[:, y.shape[0] - 1],
        [floats(3, 9), floats(4)],
        [[floats(3, 9), floats(1)]],
    ),
    "narrow": (
        lambda x: (x.narrow(1, 1, 2), x.narrow(1, -2, 2), x.narrow(1, -3, 2)),
        [floats(3, 4)],
        [[floats(0, 4)]],
    ),
    "split": (lambda x: x.split(2, 1), [floats(3, 5)], [[floats(1, 5)], [floats(0, 5)]]),
    "split by a size of the tensor": (
        lambda x: x.split(x.shape[0] // 2 + 1),
        [floats(6, 5)],
        [[floats(7, 5)], [floats(4, 5)]],
    ),
    "split into sizes": (
        lambda x: (x.split([1, 0, 4], 1), torch.split_with_sizes(x, [1, 4], -1)),
        [floats(3, 5)],
        [[floats(0, 5)]],
    ),
    "chunk": (lambda x: (x.chunk(3, -1), x.chunk(1, -1)), [floats(3, 8)], [[floats(1, 8)]]),
    "chunk of a dynamic axis": (lambda x: x.chunk(2, 1), [floats(3, 8)], [[floats(3, 6)], [floats(3, 7)]]),
    "tensor_split": (
        lambda x: (x.tensor_split(3, 1), x.tensor_split([1, 5, 3], 1), x.tensor_split([-2], 1)),
        [floats(3, 8)],
        [[floats(1, 8)]],
    ),
    "hsplit and vsplit": (lambda x: (x.hsplit(2), x.hsplit([1, 3]), x.vsplit(3), x.vsplit([1])), [floats(3, 8)], []),
    "dsplit": (lambda x: (x.dsplit(2), x.dsplit([1])), [floats(3, 2, 4)], []),
    "hsplit of a vector": (lambda x: x.hsplit(2), [floats(4)], []),
    "unbind": (lambda x: x.unbind(1), [floats(3, 3)], [[floats(0, 3)]]),
    "unbind of which one is used": (lambda x: x.unbind(1)[2], [floats(3, 3)], [[floats(0, 3)]]),
    "flip": (lambda x: (x.flip(0), x.flip(0, -1), x.fliplr(), x.flipud()), [floats(3, 4)], [[floats(1, 0)]]),
    "rot90": (lambda x: (x.rot90(), x.rot90(-1), x.rot90(2, [1, 0])), [floats(3, 4)], [[floats(1, 2)]]),
    "roll": (
        lambda x: (x.roll(1, 0), x.roll(-5, 1), x.roll((1, 2), (0, 1)), x.roll(3)),
        [floats(3, 4)],
        [[floats(1, 1)], [floats(0, 3)], [floats(2, 0)]],
    ),
    "roll of constant sizes": (lambda x: (x.roll(1, 0), x.roll(-5, 1), x.roll(3)), [floats(3, 4)], []),
    "unfold": (lambda x: (x.unfold(1, 3, 2), x.unfold(0, 2, 1)), [floats(3, 8)], [[floats(3, 9)], [floats(3, 3)]]),
    "unfold a number": (lambda x: x.unfold(0, 1, 1), [floats()], []),
    "write into a slice": (
        lambda x, y: (
            aten.slice_scatter(x, y, 1, 1, 3),
            aten.slice_scatter(x, y, 1, -2),
            aten.slice_scatter(x, y, 1, -4, -2),
            aten.slice_scatter(x, y, 1, 3, -1),
            aten.slice_scatter(x, y, 1, 0, 6, 3),
        ),
        [floats(3, 6), floats(3, 2)],
        [[floats(1, 6), floats(1, 2)]],
    ),
    "write into an empty slice": (
        lambda x, y: aten.slice_scatter(x, y, 1, 4, 2),
        [floats(3, 6), floats(3, 0)],
        [],
    ),
    "write into a slice as long as what is written": (
        lambda x, y: (aten.slice_scatter(x, y, 0, 0, y.shape[0]), aten.slice_scatter(x, y, 0, 2, y.shape[0] + 2)),
        [floats(8, 6), floats(3, 6)],
        [[floats(8, 6), floats(1, 6)], [floats(8, 6), floats(0, 6)]],
    ),
    "write into a row": (
        lambda x, y: (
            aten.select_scatter(x, y, 1, 0),
            aten.select_scatter(x, y, 1, -1),
            aten.select_scatter(x, y, 1, 2),
        ),
        [floats(3, 6), floats(3)],
        [[floats(1, 6), floats(1)]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)
