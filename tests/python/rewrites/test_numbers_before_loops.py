"""A number before a loop that is a tensor with axes behind a step: equal where no step is taken, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import Module

from exportguard import AxisError, RewriteError, to_onnx

_STARTS: dict[str, Any] = {"int": 0, "float": 0.5, "bool": False}
_STEPS = {
    "of one dtype": lambda total, x: total + x,
    "of float64": lambda total, x: total + x.double(),
    "of integers": lambda total, x: total + x.long(),
    "scaled": lambda total, x: total * 0.5 + x,
}
_USES = {
    "returned": lambda total, x, v: total,
    "scaled and returned": lambda total, x, v: total * 2 - 1,
    "beside all axes": lambda total, x, v: x - total / 3,
    "beside some axes": lambda total, x, v: v[:, None] - total,
    "summed beside all axes": lambda total, x, v: (total + x).sum(),
    "summed beside some axes": lambda total, x, v: (v[:, None] + total).sum(),
    "beside integers": lambda total, x, v: x.long() + total,
    "chosen": lambda total, x, v: torch.where(x > 0, total, x),
    "asked for its type": lambda total, x, v: x * (2 if isinstance(total, int | float) else 3),
    "in a branch": lambda total, x, v: x + total if v.sum() > 9 else x,
    "out of a branch": lambda total, x, v: total if v.sum() > 9 else x,
}


class _Counts(Module):
    def __init__(self, start: str, step: str, use: str) -> None:
        super().__init__()
        self.start, self.step, self.use = _STARTS[start], _STEPS[step], _USES[use]


class While(_Counts):
    def forward(self, x, v):
        total, left = self.start, v
        while left.sum() > 1:
            total = self.step(total, x)
            left = left / 2
        return self.use(total, x, v)


class RangeOfData(_Counts):
    def forward(self, x, v):
        total = self.start
        for _ in range(int(v.clamp(min=0).sum() // 2)):
            total = self.step(total, x)
        return self.use(total, x, v)


class RowsOfData(_Counts):
    def forward(self, x, v):
        total = self.start
        for row in v[v > 0]:
            total = self.step(total, x * row)
        return self.use(total, x, v)


class UntilABreak(_Counts):
    def forward(self, x, v):
        total = self.start
        for row in v:
            if row < 0:
                break
            total = self.step(total, x * row)
        return self.use(total, x, v)


_LOOPS = (While, RangeOfData, RowsOfData, UntilABreak)
_CASES = [
    (loop, [*_STARTS][(i + j) % len(_STARTS)], [*_STEPS][(i + 2 * j) % len(_STEPS)], use)
    for i, loop in enumerate(_LOOPS)
    for j, use in enumerate(_USES)
    if (i + j) % 2 == 0 or loop is While
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("loop", "start", "step", "use"), _CASES, ids=lambda part: getattr(part, "__name__", part))
def test_a_loop_that_takes_no_step_leaves_the_number(loop: type[_Counts], start: str, step: str, use: str) -> None:
    model = loop(start, step, use).eval()
    x = torch.tensor([[1.5, -2.0], [0.5, 3.0], [2.5, -1.0]])
    try:
        onnx = to_onnx(model, (x, torch.ones(3)), dynamic_shapes=({0: "n"}, {0: "n"}), rewrite="auto")
    except (RewriteError, AxisError) as error:
        assert any(said in str(error) for said in ("before", "by the path", "values of different kinds"))  # noqa: PT017
        return
    for v in (torch.ones(3), -torch.ones(3), 4 * torch.ones(3), -torch.ones(1), torch.ones(2)):
        wanted = torch.as_tensor(model(x[: len(v)], v))
        got = onnx.run({"x": x[: len(v)], "v": v})[onnx.outputs[0].name]
        torch.testing.assert_close(got, wanted, check_dtype=True)


class BroadcastsInTheFirstStep(Module):
    """Summed in the first step is one number, in the others a row."""

    def forward(self, x):
        total, sums = 0, x.new_zeros(())
        for row in x:
            sums = sums + (total + row.sum()).sum()
            total = total + row
        return sums


class MakesAShapeBeforeIt(Module):
    def forward(self, x):
        total, sums = torch.zeros_like(x[0]), x.new_zeros(())
        for row in x:
            sums = sums + (total + row.sum()).sum()
            total = total + row
        return sums


def test_what_the_first_step_makes_of_the_number_has_its_shape() -> None:
    x = torch.randn(3, 2)
    with pytest.raises(AxisError, match=r"`total` in line \d+ is a number before the loop.*torch\.zeros"):
        to_onnx(BroadcastsInTheFirstStep(), (x,), dynamic_shapes=({0: "n"},), rewrite="auto")
    onnx = to_onnx(MakesAShapeBeforeIt(), (x,), dynamic_shapes=({0: "n"},), rewrite="auto")
    for n in (2, 3, 5):
        x = torch.randn(n, 2)
        got = onnx.run({"x": x})[onnx.outputs[0].name]
        torch.testing.assert_close(got, MakesAShapeBeforeIt()(x))


def test_a_number_that_a_loop_may_leave_alone_is_refused_with_its_line() -> None:
    with pytest.raises(RewriteError, match=r"`total` in line \d+ is a number before the loop.*torch\.zeros"):
        to_onnx(While("int", "of one dtype", "returned"), (torch.ones(3, 2), torch.ones(3)), rewrite="auto")
