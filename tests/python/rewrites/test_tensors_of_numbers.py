"""Tensors made of numbers of data, numbers that start at infinity, and truth values that sizes decide."""

from __future__ import annotations

import math

import pytest
import torch
from control_flow_program import Programs, up
from torch.nn import Module
from torch.utils import _pytree as pytree

from exportguard import to_onnx

CASES = ((up(3),), (up(2, -1),), (up(5, 4),), (up(1, -2),), (up(7),), (up(20, -3),))

RIGHT = Programs()


@RIGHT.add(CASES)
class FloatOfATest(Module):
    def forward(self, x):
        total = x.sum().item()
        kept = total if total > 0 else 0.0
        return torch.tensor(kept), torch.as_tensor(kept).half() * 1.0, torch.tensor([kept, 1.0])


@RIGHT.add(CASES)
class WholeNumberOfATest(Module):
    def forward(self, x):
        n = int(x.sum())
        k = n if x[0, 0] > 0 else -n
        wide = torch.tensor(k, dtype=torch.float64)
        return torch.as_tensor(k) / 2, torch.tensor(k) + 1.5, torch.tensor([k, 2]) / 2, wide


@RIGHT.add(CASES)
class CountOfALoop(Module):
    def forward(self, x):
        total, n = 0.0, 0
        for value in x[:, 0].tolist():
            total += value
            if value > 0:
                n += 1
        count = torch.tensor(n)
        count += 1
        return torch.tensor(total) * x.half(), torch.tensor(n) / 2, count


@RIGHT.add(CASES)
class BestFromInfinity(Module):
    def forward(self, x):
        best, place = float("-inf"), -1
        for k, value in enumerate(x[:, 0].tolist()):
            if value > best:
                best, place = value, k
        return torch.tensor(place), torch.tensor(best)


@RIGHT.add(CASES)
class LargestSum(Module):
    def forward(self, x):
        best = current = -math.inf
        start = first = last = 0
        for k, value in enumerate(x.sum(1).tolist()):
            if current < 0:
                current, start = value, k
            else:
                current += value
            if current > best:
                best, first, last = current, start, k
        return torch.tensor(best), torch.tensor([first, last])


@RIGHT.add(CASES)
class WithinInfinity(Module):
    def forward(self, x):
        total = x.sum().item()
        return x * 2 if -math.inf < total < float("inf") else x


@RIGHT.add(CASES)
class TruthOfACount(Module):
    def forward(self, x):
        n = int((x > 0.5).sum())
        flag = n > 5 if x.sum() > 0 else n < 3
        both = x.sum() > 0 and n > 3
        return x + 1 if flag else x, torch.tensor(both)


@RIGHT.add(CASES)
class TruthOfASize(Module):
    def forward(self, x):
        n = x.shape[0]
        flag = n > 2 if x.sum() > 0 else n > 1
        return torch.tensor(flag), x + flag, x * 2 if x.sum() > 0 or n > 3 else x


@RIGHT.add(CASES)
class TruthOfTheLastStep(Module):
    def forward(self, x):
        flag, total = False, torch.zeros(4)
        for row in x:
            if flag:
                total = total + row
            flag = int((row > 0.3).sum()) > 2
        return total, torch.tensor(flag)


@pytest.mark.parametrize("program", RIGHT, ids=lambda cls: cls.__name__)
def test_numbers_become_the_tensors_of_python(program: type[Module]) -> None:
    onnx = to_onnx(program(), CASES[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
    for (x,) in CASES:
        for found, wanted in zip(onnx.run({"x": x}).values(), pytree.tree_leaves(program()(x)), strict=True):
            torch.testing.assert_close(found, wanted)  # dtypes included


class BestNumber(Module):
    def forward(self, x):
        best = -math.inf
        for row in x:
            total = row.sum().item()
            if total > best:
                best = total
        return best, x * 1


def test_an_infinite_number_of_no_rows_is_the_same_number() -> None:
    onnx = to_onnx(BestNumber(), CASES[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
    (axis,) = onnx.axes
    assert axis.kept
    assert not axis.bounds
    for x in (*CASES, (torch.zeros(0, 4),)):
        best, _ = onnx.run({"x": x[0]}).values()
        assert float(best) == pytest.approx(BestNumber()(*x)[0])
