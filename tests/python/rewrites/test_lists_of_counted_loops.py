"""Lists that a loop fills whose number of steps only the run knows: the steps are counted before."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

from exportguard import to_onnx

PROGRAMS = Programs()
SEVERAL = ((up(5),), (up(7, -1),), (up(6, 4),), (up(9, 0.3),))


@PROGRAMS.add(SEVERAL)
class Merges(Module):
    def forward(self, x):
        a, b = x[:, 0].sort().values, (x[:, 1] * 0.7).sort().values
        i = j = 0
        out = []
        while i < len(a) and j < len(b):
            if a[i] <= b[j]:
                out.append(a[i])
                i += 1
            else:
                out.append(b[j])
                j += 1
        return torch.cat([torch.stack(out), a[i:], b[j:]])


@PROGRAMS.add(SEVERAL)
class WindowsByAPosition(Module):
    def forward(self, x):
        start, out = 0, []
        while start + 3 <= x.shape[0]:
            out.append(x[start : start + 3].sum(0))
            start += 2
        return torch.stack(out), start


@PROGRAMS.add(SEVERAL)
class FromBothEnds(Module):
    def forward(self, x):
        left, right, pairs = 0, x.shape[0] - 1, []
        while left < right:
            pairs.append((x[left] * x[right], left))
            left, right = left + 1, right - 1
        return torch.stack([pair for pair, _ in pairs]), torch.tensor([number for _, number in pairs])


@PROGRAMS.add(SEVERAL)
class WhileTheSumIsSmall(Module):
    def forward(self, x):
        items, y = [x.sum(0)], x.abs() + 1
        while y.sum() < 500:
            y = y * 2
            items.append(y[0])
        return torch.stack(items), len(items)


@PROGRAMS.add(SEVERAL)
class LeavesOnATest(Module):
    def forward(self, x):
        n, seen = 0, [x[0]]
        while True:
            row = x[n] * 2
            if row.sum() > 20 or n >= 3:
                break
            seen.append(row)
            n += 1
        return torch.stack(seen), n


@PROGRAMS.add(SEVERAL)
class LeavesSomeOut(Module):
    def forward(self, x):
        n, kept = 0, [x.sum(0)]
        while n < x.shape[0]:
            if x[n].sum() > 1:
                kept.append(x[n])
            n += 1
        return torch.stack(kept)


@PROGRAMS.add(SEVERAL)
class WritesMeanwhile(Module):
    def forward(self, x):
        y, k, sums = x.clone(), 1, []
        while k < y.shape[0]:
            y[k] += y[k - 1] * 0.5
            sums.append(y[k].sum())
            k += 1
        return y, torch.stack(sums)


@PROGRAMS.add(SEVERAL)
class AsManyAsTheDataSays(Module):
    def forward(self, x):
        out = [x[0]]
        for k in range(int(x.abs().max()) + 1):
            out.append(x.mean(0) * k)
        return torch.stack(out)


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_list_has_the_elements_that_python_gives_it(cls: type[Module]) -> None:
    check(cls)


class DropsAName(Module):
    def forward(self, x):
        y = x * 2
        total = y.sum(0)
        del y
        if total.sum() > 0:
            y = total
            y = y + 1
        else:
            y = -total
        return y


def test_a_name_that_was_deleted_may_be_given_a_value_by_a_test() -> None:
    onnx = to_onnx(DropsAName(), (up(3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for (x,) in SEVERAL:
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), DropsAName()(x))


class PairsThatDataLeavesOut(Module):
    def forward(self, x):
        pairs = [a * b for i, a in enumerate(x) for j, b in enumerate(x) if i < j and (a * b).sum() > 0]
        return sum(pairs, torch.zeros(4))


def test_elements_that_a_loop_in_a_loop_leaves_out_are_left_out() -> None:
    onnx = to_onnx(PairsThatDataLeavesOut(), (up(3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for (x,) in SEVERAL:
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), PairsThatDataLeavesOut()(x))
