"""Random programs over sizes: what the report calls kept is right at every size that the model takes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
import torch

from exportguard import OnnxModel, to_onnx
from exportguard.errors import LoweringError

_PROGRAMS = int(os.environ.get("EXPORTGUARD_SIZE_PROGRAMS", "40"))
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 33)

Step = Callable[[torch.Tensor], torch.Tensor]
Test = Callable[[torch.Tensor], bool]


def padded(x: torch.Tensor, step: int) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, (step - x.shape[1] % step) % step))


def choose_number(chosen: random.Random) -> int:
    return chosen.choice((1, 2, 3, 4, 5, 7, 8, 16))


def random_test(chosen: random.Random) -> Test:
    c, r = choose_number(chosen), chosen.randrange(3)
    return chosen.choice(
        [
            lambda x: x.shape[1] > c,
            lambda x: x.shape[1] % c == r,
            lambda x: x.shape[1] == 1,
            lambda x: x.shape[0] == 1,
            lambda x: x.shape[0] > c,
            lambda x: (x.shape[1] + c) // 2 >= r,
            lambda x: x.shape[0] != x.shape[1],
            lambda x: x.numel() > c * c,
            lambda x: x.numel() > c,
            lambda x: x.shape[0] + x.shape[1] > c,
            lambda x: x.shape[0] * c <= x.shape[1],
            lambda x: x.shape[1] // x.shape[0] > r,
            lambda x: x.shape[1] % x.shape[0] == 0,
            lambda x: x.shape[1] - x.shape[0] < c,
            lambda x: max(x.shape) > c,
            lambda x: min(x.shape) < c,
            lambda x: x.shape[1] ** 2 > c,
            lambda x: x.shape[0] > c or x.shape[1] > c,
            lambda x: x.shape[0] > 1 and x.shape[1] % 2 == 0,
        ]
    )


def simple_step(chosen: random.Random) -> Step:
    c, d = choose_number(chosen), choose_number(chosen)
    return chosen.choice(
        [
            lambda x: x * 2,
            lambda x: x + x.mean(-1, keepdim=True),
            lambda x: padded(x, c),
            lambda x: padded(x, c).reshape(x.shape[0], -1, c).sum(-1),
            lambda x: x[:, : (x.shape[1] + c) // d + 1],
            lambda x: x[:, :c],
            lambda x: x[:, -c:],
            lambda x: x * (x.shape[1] / c),
            lambda x: x * torch.as_tensor(x.shape[1] / c),
            lambda x: x + torch.full((1,), x.shape[1] * c + d),
            lambda x: torch.cat([x, x[:, :c]], 1),
            lambda x: torch.fft.rfft(x, n=c + 1).abs(),
            lambda x: x.unfold(1, 2, c).sum(-1),
            lambda x: torch.chunk(x, 2, dim=1)[0],
            lambda x: torch.tensor_split(x, 2, dim=1)[-1],
            lambda x: x + torch.arange(x.shape[1]) // c,
            lambda x: x.expand(x.shape[0], x.shape[1]).cumsum(1),
            lambda x: torch.roll(x, c, 1),
            lambda x: x.new_ones(x.shape[0], max(x.shape[1] - c, 1)) + x[:, :1],
            lambda x: x.new_ones(x.shape[0], min(x.shape[1], c)) + x[:, :1],
        ]
    )


def random_step(chosen: random.Random) -> Step:
    step, other = simple_step(chosen), simple_step(chosen)
    if chosen.random() < 0.6:
        return step
    test = random_test(chosen)
    return lambda x: step(x) if test(x) else other(x)


class Program(torch.nn.Module):
    """A few steps after each other."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chosen = random.Random(seed)
        self.steps = [random_step(chosen) for _ in range(chosen.randint(1, 3))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = step(x)
        return x


def example(batch: int, seq: int) -> torch.Tensor:
    return torch.randn(batch, seq, generator=torch.Generator().manual_seed(batch * 100 + seq))


def expected(program: Program, x: torch.Tensor) -> torch.Tensor | None:
    """What the model returns; None if it does not take the input."""
    try:
        return program(x)
    except (RuntimeError, ValueError):
        return None


def converted(program: Program, seed: int, rewrite: object = ()) -> OnnxModel | None:
    """The model, if the example is one that it takes and torch can trace.

    An operator whose traced decomposition holds for some sizes alone is refused, as one without a lowering.
    """
    x = example(2, (6, 7, 16)[seed % 3])
    if expected(program, x) is None:
        return None
    try:
        shapes = {"x": {0: "batch", 1: "seq"}}
        return to_onnx(program, (x,), dynamic_shapes=shapes, on_fixed_axis="warn", rewrite=rewrite)
    except LoweringError as error:
        if "aten.fft_rfft" not in str(error):
            raise
        return None


def sizes_to_compare(model: OnnxModel) -> list[tuple[int, int]]:
    """All sizes that the report calls kept, those of the example for an axis that is not."""
    batch, seq = model.axes
    batches = (1, 2, 5) if batch.kept else ()
    lengths = [size for size in _SIZES if seq.kept]
    return [(one, length) for one in batches for length in lengths]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(_PROGRAMS))
def test_what_is_kept_is_right_at_every_size(seed: int) -> None:
    program = Program(seed).eval()
    require_right(program, converted(program, seed))


@pytest.mark.parametrize("seed", [9, 2210])
def test_branches_are_right_where_even_sizes_agree_by_luck(seed: int) -> None:
    program = Program(seed).eval()
    require_right(program, converted(program, seed, rewrite="auto"))


def require_right(program: Program, model: OnnxModel | None) -> None:
    for batch, seq in sizes_to_compare(model) if model is not None else ():
        x = example(batch, seq)
        want = expected(program, x)
        if want is not None:
            (got,) = model.run({"x": x}).values() if model is not None else ()
            torch.testing.assert_close(got.to(want.dtype), want, msg=lambda text, at=(batch, seq): f"{at}: {text}")
