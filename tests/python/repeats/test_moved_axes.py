"""How results of operators that move, join or split axes look, beside what torch's fake kernels say of a call."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from repeats.fake_kernels import LAYOUTS, Asking, require_known, tell

aten = torch.ops.aten
SHAPES = ("nm4", "n1m4", "nkm4", "4", "n", "", "nm", "1", "n4m", "nk44", "44", "1m", "nmk4", "n0", "0m4")
DTYPES = (torch.float32, torch.float32, torch.float16, torch.int64, torch.bool)
ENDS = (None, 0, 1, 2, 3, 4, 7, -1, -2, -9, 2**63 - 1)


def drawn_call(asking: Asking, draw: random.Random) -> tuple[Any, list[Any]]:
    """An operator with an operand, or several, of drawn shapes and layouts, and axes that may not be there."""
    shape = draw.choice(SHAPES)
    dtype = draw.choice(DTYPES)
    x = asking.tensor(shape, dtype, draw.choice(LAYOUTS))
    rank = len(shape)
    axis = draw.randint(-rank - 1, rank)
    kind = draw.choice(("unsqueeze", "transpose", "permute", "slice", "expand", "view", "view", "cat"))
    if kind == "unsqueeze":
        return aten.unsqueeze.default, [x, axis]
    if kind == "transpose":
        return aten.transpose.int, [x, axis, draw.randint(-rank, max(rank - 1, 0))]
    if kind == "permute":
        order = draw.sample(range(rank), rank)
        return aten.permute.default, [x, [place - rank if draw.random() < 0.3 else place for place in order]]
    if kind == "slice":
        step = [draw.choice((1, 1, 2))] if draw.random() < 0.3 else []
        return aten.slice.Tensor, [x, axis, draw.choice(ENDS), draw.choice(ENDS), *step]
    if kind == "expand":
        sizes = [draw.choice((size, size, -1, 4, 1, 0)) for size in x.shape]
        return aten.expand.default, [x, [*draw.choice(([], [], [], [2])), *sizes]]
    if kind == "view":
        return draw.choice((aten.view.default, aten._unsafe_view.default)), [x, drawn_sizes(x, draw)]
    others = [asking.tensor(joined(shape, axis, draw), dtype, draw.choice(LAYOUTS)) for _ in range(draw.randint(0, 2))]
    if others and draw.random() < 0.1:
        others[0] = asking.tensor(shape, torch.float64, "rows")
    return aten.cat.default, [[x, *others], axis]


def drawn_sizes(x: Any, draw: random.Random) -> list[Any]:
    """Those of a tensor, some of them joined or split, one perhaps left open."""
    sizes = list(x.shape)
    for _ in range(draw.randint(0, 3)):
        place = draw.randrange(len(sizes) + 1)
        if place < len(sizes) - 1 and draw.random() < 0.6:
            sizes[place : place + 2] = [sizes[place] * sizes[place + 1]]
        elif place < len(sizes) and type(sizes[place]) is int and sizes[place] == 4:
            sizes[place : place + 1] = [2, 2]
        else:
            sizes.insert(place, 1)
    if sizes and draw.random() < 0.4:
        sizes[draw.randrange(len(sizes))] = draw.choice((-1, -1, -1, -2, 3))
    return sizes


def joined(shape: str, axis: int, draw: random.Random) -> str:
    """A shape with another size along an axis, or along any."""
    if not shape:
        return shape
    place = axis % len(shape) if draw.random() < 0.9 else draw.randrange(len(shape))
    return shape[:place] + draw.choice("nmk14") + shape[place + 1 :]


@pytest.mark.parametrize("block", range(8))
def test_results_look_as_torch_says(block: int) -> None:
    require_known(drawn_call, block, 30)


if __name__ == "__main__":
    tell(drawn_call)
