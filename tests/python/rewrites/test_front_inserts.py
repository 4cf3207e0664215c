"""Lists that a loop fills from the front."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Module

from exportguard import AxisError, to_onnx


class Backwards(Module):
    def forward(self, x):
        h, outs = x.new_zeros(2), []
        for row in x:
            h = h * 0.5 + row
            outs.insert(0, h)
        return torch.stack(outs)


class InFrontOfOthers(Module):
    def forward(self, x):
        outs = [x[0] * 3]
        outs.append(x[1])
        for i in range(x.shape[0]):
            outs.insert(0, x[i])
            outs.insert(0, -x[i])
        outs.append(x[0])
        return torch.stack(outs)


class TwoLists(Module):
    def forward(self, x):
        first, second = [], []
        ends = []
        starts = []
        for row in x:
            starts.insert(0, row)
            ends.append(row * 2)
        for row in x:
            starts.insert(0, row + 1)
        return torch.stack(starts), torch.stack(ends), len(first) + len(second)


class InATest(Module):
    def forward(self, x):
        kept = [x.sum(0)]
        for row in x:
            if row.sum() > 0:
                kept.insert(0, row)
        return torch.stack(kept).sum(0)


class InALoopOfPython(Module):
    def forward(self, x):
        outs = []
        for k in range(3):
            outs.insert(0, x * k)
        return torch.cat(outs)


class KnownByAnotherName(Module):
    def forward(self, x):
        outs = [x[0]]
        other = outs
        for k in range(3):
            outs.insert(0, x[k])
        return torch.stack(other)


class ReadsItsFront(Module):
    def forward(self, x):
        outs = [x[0]]
        for row in x:
            outs.insert(0, outs[0] * 0.5 + row)
        return torch.stack(outs)


class SomebodyElses(Module):
    def fill(self, x, outs):
        for row in x:
            outs.insert(0, row)

    def forward(self, x):
        outs = [x[0]]
        self.fill(x, outs)
        return torch.stack(outs)


@pytest.mark.parametrize(
    "cls",
    [Backwards, InFrontOfOthers, TwoLists, InATest, InALoopOfPython, KnownByAnotherName, ReadsItsFront],
    ids=lambda c: c.__name__,
)
def test_a_list_that_is_filled_from_its_front(cls: type[Module]) -> None:
    axes = ({0: "n"},) if cls is not KnownByAnotherName else None
    onnx = to_onnx(cls().eval(), (torch.randn(4, 2),), dynamic_shapes=axes, rewrite="auto")
    for n in (2, 3, 5) if axes else (4,):
        x = torch.randn(n, 2)
        wanted = cls()(x)
        for got, expected in zip(
            onnx.run({"x": x}).values(), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
        ):
            torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(expected))


def test_a_list_of_another_function_is_refused() -> None:
    with pytest.raises(AxisError, match="made outside of the function"):
        to_onnx(SomebodyElses().eval(), (torch.randn(4, 2),), dynamic_shapes=({0: "n"},), rewrite="auto")
