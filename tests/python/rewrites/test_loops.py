"""Programs with loops whose trip count depends on a dynamic axis or on data, equal to eager for several counts."""

# ruff: noqa: B905, SIM108 - the programs are what users write

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Linear, Module

PROGRAMS = Programs()
TWO = ((up(3), up(3, 2)), (up(2), up(2, -1)), (up(5, -1), up(5)))
COUNTS = ((up(2), torch.tensor(3)), (up(3), torch.tensor(0)), (up(4), torch.tensor(7)))


@PROGRAMS.add()
class SumOfRows(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            total = total + row
        return total


@PROGRAMS.add()
class SumOfRowsInPlace(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            total += row
        return total


@PROGRAMS.add()
class StackOfRows(Module):
    def forward(self, x):
        out = []
        for row in x:
            out.append(row * row.sum())
        return torch.stack(out)


@PROGRAMS.add()
class CatOfRows(Module):
    def forward(self, x):
        out = []
        for row in x:
            out.append(row[:2] * 2)
        return torch.cat(out)


@PROGRAMS.add()
class StackAlongAnotherAxis(Module):
    def forward(self, x):
        out = []
        for row in x:
            out.append(row + 1)
        return torch.stack(out, dim=1)


@PROGRAMS.add()
class TwoLists(Module):
    def forward(self, x):
        sums, rows = [], []
        for row in x:
            sums.append(row.sum())
            rows.append(row.flip(0))
        return torch.stack(sums), torch.stack(rows)


@PROGRAMS.add()
class RunningTotals(Module):
    def forward(self, x):
        total, out = torch.zeros(4), []
        for row in x:
            total = total * 0.5 + row
            out.append(total)
        return torch.stack(out), total


@PROGRAMS.add()
class NameOfAnotherShapeBefore(Module):
    def forward(self, x):
        part = x.sum(0) * 2
        total = part
        for row in x:
            part = row.max()
            total = total + part
        return total


@PROGRAMS.add()
class NameReadBehind(Module):
    def forward(self, x):
        part, total = torch.ones(4), torch.zeros(4)
        for row in x:
            part = row * 2
            total = total + part
        return total - part


@PROGRAMS.add()
class NameReadByALoopAround(Module):
    def forward(self, x):
        part, total = torch.ones(4), torch.zeros(4)
        for row in x:
            total = total + part
            for k in range(x.shape[0]):
                part = row * k
        return total


@PROGRAMS.add()
class NameReadByAFunction(Module):
    def forward(self, x):
        part = torch.ones(4)

        def scaled(y):
            return y * part

        for row in x:
            part = row + 1
        return scaled(x[0])


@PROGRAMS.add()
class NameReadByTheTest(Module):
    def forward(self, x):
        y, size = x.abs().sum(0), x.sum()
        while size < 10:
            size = y.sum()
            y = y + 1
        return y


@PROGRAMS.add()
class TwoCarried(Module):
    def forward(self, x):
        a, b = torch.zeros(4), torch.ones(4)
        for row in x:
            a, b = b, a + row
        return a, b


@PROGRAMS.add()
class Enumerate(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for i, row in enumerate(x):
            total = total + row * i
        return total


@PROGRAMS.add()
class EnumerateFrom(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for i, row in enumerate(x, start=5):
            total = total + row * i
        return total


@PROGRAMS.add(cases=TWO)
class Zip(Module):
    def forward(self, x, y):
        out = []
        for a, b in zip(x, y):
            out.append(a * b.sum())
        return torch.stack(out)


@PROGRAMS.add(cases=TWO)
class EnumerateZip(Module):
    def forward(self, x, y):
        total = torch.zeros(4)
        for i, (a, b) in enumerate(zip(x, y)):
            total = total + a * b * i
        return total


@PROGRAMS.add()
class SymbolicRange(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total


@PROGRAMS.add()
class RangeOverSize(Module):
    def forward(self, x):
        total = torch.zeros(())
        for i in range(x.size(0)):
            total = total + x[i, 1]
        return total


@PROGRAMS.add(cases=((up(3),), (up(5, -1),), (up(7, 4),)))
class RangeOfAStart(Module):
    def forward(self, x):
        total = x[0]
        for i in range(1, x.shape[0]):
            total = torch.maximum(total, x[i])
        return total


@PROGRAMS.add()
class RangeOverLen(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for i in range(len(x)):
            total = total + x[i]
        return total


@PROGRAMS.add()
class StoreByIndex(Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        for i in range(x.shape[0]):
            y[i] = x[i] * 2
        return y


@PROGRAMS.add()
class UpdateByIndex(Module):
    def forward(self, x):
        y = x.clone()
        for i in range(x.shape[0]):
            y[i] += x[i].sum()
        return y


@PROGRAMS.add()
class StoreByIndexAndSlice(Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        for i in range(x.shape[0]):
            y[i, 1:3] = x[i, :2]
            y[i, 0] = i
        return y


@PROGRAMS.add()
class StoreAlongTheSecondAxis(Module):
    def forward(self, x):
        y = torch.zeros(4, x.shape[0])
        for i in range(x.shape[0]):
            y[:, i] = x[i]
        return y


@PROGRAMS.add()
class StoreOfEnumeratedRows(Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        for i, row in enumerate(x):
            y[i] = row / row.sum()
        return y


@PROGRAMS.add()
class ConditionInALoop(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            if row.sum() > 1:
                total = total + row
            else:
                total = total - row
        return total


@PROGRAMS.add()
class ContinueInALoop(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            if row.sum() < 1:
                continue
            total = total + row
        return total


@PROGRAMS.add()
class CountInALoop(Module):
    def forward(self, x):
        count = 0
        for row in x:
            if row.sum() > 1:
                count = count + 1
        return x * count


@PROGRAMS.add()
class NumberReadBeforeItIsUpdated(Module):
    def forward(self, x):
        end, out = 0, []
        for row in x:
            start = end
            end += 2
            out.append(row * start + end)
        return torch.stack(out)


@PROGRAMS.add()
class LayerInALoop(Module):
    def __init__(self):
        super().__init__()
        self.layer = Linear(4, 4)

    def forward(self, x):
        state, out = torch.zeros(4), []
        for row in x:
            state = torch.tanh(self.layer(row) + state)
            out.append(state)
        return torch.stack(out)


@PROGRAMS.add()
class LoopInABranch(Module):
    def forward(self, x):
        if x.sum() > 0:
            total = torch.zeros(4)
            for k in range(3):
                total = total + x[0] * k
        else:
            total = x[0]
        return total


@PROGRAMS.add()
class UnrolledLoop(Module):
    def forward(self, x):
        for k in range(3):
            if x.sum() > k:
                x = x - 0.1
        return x


@PROGRAMS.add()
class UnrolledBreak(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for k in range(4):
            if total.sum() > 10:
                break
            total = total + x[0] * k
        return total


@PROGRAMS.add()
class UnrolledContinue(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for k in range(4):
            if x[0, k] < 0.15:
                continue
            total = total + x[0] * k
        return total


@PROGRAMS.add()
class LayersInAList(Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            y = layer(x)
            if y.sum() > 0:
                x = y
        return x


@PROGRAMS.add(cases=((up(2),), (up(3, 500),), (up(4, 0.001),)))
class While(Module):
    def forward(self, x):
        while x.sum() < 100:
            x = x * 2
        return x


@PROGRAMS.add(cases=((up(2),), (up(3, 500),), (up(4, 0.001),)))
class WhileWithACounter(Module):
    def forward(self, x):
        steps = 0
        while x.sum() < 100:
            x = x * 2
            steps += 1
        return x * steps


@PROGRAMS.add(cases=((up(2),), (up(3, 500),), (up(4, 0.001),)))
class WhileWithAnd(Module):
    def forward(self, x):
        steps = torch.zeros((), dtype=torch.int64)
        while x.sum() < 100 and steps < 3:
            x = x * 2
            steps = steps + 1
        return x, steps


@PROGRAMS.add(cases=((up(2),), (up(3, 500),), (up(4, 0.001),)))
class WhileWithBreak(Module):
    def forward(self, x):
        while x.sum() < 100:
            x = x * 2
            if x.max() > 20:
                break
        return x


@PROGRAMS.add(cases=((up(2),), (up(3, 500),), (up(4, 0.001),)))
class WhileWithACondition(Module):
    def forward(self, x):
        while x.sum() < 100:
            if x.max() > 10:
                x = x * 2
            else:
                x = x * 3 + 1
        return x


@PROGRAMS.add(cases=((up(2),), (up(3, 500),), (up(4, 0.001),)))
class WhileWithALayer(Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        while x.sum() < 100:
            x = x * self.scale + 1
        return x


@PROGRAMS.add(cases=COUNTS)
class WhileCountingDown(Module):
    def forward(self, x, n):
        while n > 0:
            x = x + 1
            n = n - 1
        return x


@PROGRAMS.add(cases=COUNTS)
class RangeOfATensor(Module):
    def forward(self, x, n):
        for _ in range(n):
            x = x + 1
        return x


@PROGRAMS.add(cases=COUNTS)
class RangeOfAnItem(Module):
    def forward(self, x, n):
        total = torch.zeros(4)
        for i in range(n.item()):
            total = total + x[0] * i
        return total


@PROGRAMS.add(cases=COUNTS)
class RangeDownFromATensor(Module):
    def forward(self, x, n):
        total = torch.zeros(4)
        for i in range(n, 0, -2):
            total = total * 2 + x[0] * i
        return total


@PROGRAMS.add()
class WhilePython(Module):
    def forward(self, x):
        k = 0
        while k < 3:
            if x.sum() > 0:
                x = x - 0.2
            k += 1
        return x


@PROGRAMS.add()
class LoopOverShapeThenCondition(Module):
    def forward(self, x):
        best = x[0]
        for row in x:
            best = row if row.norm() > best.norm() else best
        return best


@PROGRAMS.add()
class LoopInALoop(Module):
    def forward(self, x):
        total = torch.zeros(())
        for row in x:
            for value in row:
                total = total + value
        return total


@PROGRAMS.add()
class LoopInALoopOverSymbols(Module):
    def forward(self, x):
        total = torch.zeros(())
        for a in x:
            for b in x:
                total = total + (a * b).sum()
        return total


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_with_a_loop_is_equal_to_eager(cls: type[Module]) -> None:
    check(cls)
