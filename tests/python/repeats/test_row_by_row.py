"""How results that lie row by row look, beside what torch's fake kernels say of the same call."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from repeats.fake_kernels import LAYOUTS, Asking, require_known, tell

_aten = torch.ops.aten
SHAPES = ("nm4", "4", "n", "nm", "nkm4", "n1m4", "1m", "44", "n0", "", "1", "nmk41", "11", "m41")
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool)
FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last)
#: Shapes of indices for a tensor of two axes, and of three.
INDICES = {
    "nm": ("n n", "n1 m", "n111 111m", "n1 1", " ", "nm m", "n m", "4 4", "n0 1"),
    "nm4": ("n n n", "n11 m1 k", "nm 1m n1", "n m"),
}


def drawn_call(asking: Asking, draw: random.Random) -> tuple[Any, ...]:
    """An operator with operands of drawn shapes, layouts and dtypes."""
    draws = (_new, _counted, _embedded, _indexed, _copied, _converted, _reduced)
    return draw.choice(draws)(asking, draw)


def _tensor(asking: Asking, draw: random.Random, shape: str = "", dtypes: tuple[torch.dtype, ...] = DTYPES) -> Any:
    return asking.tensor(shape or draw.choice(SHAPES), draw.choice(dtypes), draw.choice(LAYOUTS))


def _number(asking: Asking, draw: random.Random) -> Any:
    letters = asking.axes
    return draw.choice([4, 1, 0, *letters.values(), letters["n"] + letters["m"], letters["n"] * letters["k"]])


def _new(asking: Asking, draw: random.Random) -> tuple[Any, ...]:
    sizes = [_number(asking, draw) for _ in range(draw.randrange(4))]
    named = {"dtype": draw.choice(DTYPES)} if draw.random() < 0.3 else {}
    return _aten.new_empty.default, [_tensor(asking, draw), sizes], named


def _counted(asking: Asking, draw: random.Random) -> tuple[Any, ...]:
    n, m = asking.axes["n"], asking.axes["m"]
    end = draw.choice(
        [_number(asking, draw), _tensor(asking, draw, dtypes=(torch.int64,)), n - 1, n - m, n // 2, 2 * n, 2.5]
    )
    named = {"dtype": draw.choice(DTYPES[:-1])} if draw.random() < 0.3 else {}
    named |= {"device": torch.device("cpu")} if draw.random() < 0.3 else {}
    return _aten.arange.default, [end], named


def _embedded(asking: Asking, draw: random.Random) -> tuple[Any, ...]:
    weight = _tensor(asking, draw, draw.choice(("44", "4m", "n4", "4")), FLOATS)
    indices = _tensor(asking, draw, dtypes=(torch.int64, torch.int64, torch.int32, torch.float32))
    return _aten.embedding.default, [weight, indices, *draw.choice(((), (-1,), (0, False, False)))]


def _indexed(asking: Asking, draw: random.Random) -> tuple[Any, ...]:
    shape = draw.choice(list(INDICES))
    dtypes = (torch.int64,) * 6 + (torch.int32, torch.bool)
    shapes = draw.choice(INDICES[shape]).split(" ")
    indices = [asking.tensor(one, draw.choice(dtypes), draw.choice(LAYOUTS)) for one in shapes]
    if draw.random() < 0.1:
        indices[0] = None
    return _aten.index.Tensor, [_tensor(asking, draw, shape), indices]


def _copied(asking: Asking, draw: random.Random) -> tuple[Any, ...]:
    named = {"memory_format": draw.choice(FORMATS)} if draw.random() < 0.5 else {}
    return _aten.clone.default, [_tensor(asking, draw)], named


def _converted(asking: Asking, draw: random.Random) -> tuple[Any, ...]:
    named: dict[str, Any] = {"dtype": draw.choice(DTYPES)} if draw.random() < 0.9 else {}
    named |= {"memory_format": draw.choice(FORMATS)} if draw.random() < 0.2 else {}
    return _aten._to_copy.default, [_tensor(asking, draw) if draw.random() < 0.95 else 2.5], named


def _reduced(asking: Asking, draw: random.Random) -> tuple[Any, ...]:
    func = draw.choice((_aten.mean.dim, _aten.sum.dim_IntList, _aten.amax.default, _aten.amin.default))
    dims = draw.choice(([-1], [0], [1], [-1, -2], [0, -1], [0, 0], [5], [], [2, 1]))
    named = {"dtype": draw.choice(FLOATS)} if "dtype" in str(func._schema) and draw.random() < 0.2 else {}
    x = _tensor(asking, draw, dtypes=(*FLOATS * 3, torch.int64))
    return func, [x, dims, *draw.choice(((), (True,), (False,)))], named


@pytest.mark.parametrize("block", range(8))
def test_results_look_as_torch_says(block: int) -> None:
    require_known(drawn_call, block, 15)


if __name__ == "__main__":
    tell(drawn_call)
