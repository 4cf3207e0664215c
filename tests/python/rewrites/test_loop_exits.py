"""Programs that return from a loop, or have an `else` behind one, equal to eager whichever way the loop is left."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Linear, Module, ModuleList

from exportguard import transform_method

PROGRAMS = Programs()
RISING = ((up(3),), (up(2, -1),), (up(6, 3),), (up(4, -9),))


@PROGRAMS.add(cases=RISING)
class ReturnOfARow(Module):
    def forward(self, x):
        for row in x:
            if row.sum() > 2:
                return row * 2
        return x[0] - 1


@PROGRAMS.add(cases=RISING)
class ReturnOfWhatTheLoopComputed(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            total = total + row
            scaled = total * 3
            if scaled.sum() > 4:
                return scaled, total
        return total, total


@PROGRAMS.add(cases=RISING)
class BreakInTheElseOfAnInnerLoop(Module):
    def forward(self, x):
        total, found = x.sum(0), torch.zeros(())
        for i in range(3):
            if total.max() > i:
                total = total * 0.5
            for j in range(2):
                total = total + j
            else:
                break
        else:
            found = found + 1
        for row in x:
            for _ in range(3):
                if row.sum() > 2:
                    break
            else:
                if row.max() < 0:
                    continue
                total = total - row
        return total, found


@PROGRAMS.add(cases=RISING)
class ReturnOfAPosition(Module):
    def forward(self, x):
        for i, row in enumerate(x):
            if row.sum() > 2:
                return i
        return -1


@PROGRAMS.add(cases=RISING)
class TwoReturns(Module):
    def forward(self, x):
        for row in x:
            if row.sum() > 3:
                return row
            if row.sum() < -5:
                return -row * 2
        return x.sum(0)


@PROGRAMS.add(cases=RISING)
class ReturnFromAnInnerLoop(Module):
    def forward(self, x):
        for row in x:
            for k in range(4):
                if row[k] > 0.5:
                    return row + k
        return x[0] * 0


@PROGRAMS.add(cases=RISING)
class EarlyExitOfLayers(Module):
    def __init__(self):
        super().__init__()
        self.layers = ModuleList(Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if x.mean() > 0:
                return x
        return x.relu() - 1


@PROGRAMS.add(cases=RISING)
class StatementsBehindTheLoop(Module):
    def forward(self, x):
        total = torch.ones(4)
        for row in x:
            if row.max() > 1:
                return total
            total = total - row
        total = total * 2
        if total.sum() > 0:
            total = total + 1
        return total


@PROGRAMS.add(cases=RISING)
class ReturnFromWhile(Module):
    def forward(self, x):
        y = x.abs().sum(0)
        while y.sum() < 50:
            y = y * 2 + 1
            if y.max() > 20:
                return -y
        return y


@PROGRAMS.add(cases=RISING)
class WhileTrue(Module):
    def forward(self, x):
        y = x.abs().sum(0)
        while True:
            y = y * 2
            if y.sum() > 100:
                break
        return y


@PROGRAMS.add(cases=RISING)
class ReturnFromWhileTrue(Module):
    def forward(self, x):
        y = x.abs().sum(0)
        while True:
            y = y + y.max()
            if y.sum() > 100:
                return y / 2


@PROGRAMS.add(cases=RISING)
class ReturnFromWhileTrueThatContinues(Module):
    def forward(self, x):
        y, count = x.abs().sum(0), 0
        while True:
            count = count + 1
            y = y + y.max()
            if count < 3:
                continue
            if y.sum() > 60:
                return y, count


@PROGRAMS.add(cases=RISING)
class ElseOfFor(Module):
    def forward(self, x):
        found = torch.zeros(4)
        for row in x:
            if row.sum() > 2:
                found = row
                break
        else:
            found = x[0] * 10
        return found


@PROGRAMS.add(cases=RISING)
class ElseWithoutBreak(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            total = total + row
        else:
            total = total * 2
        return total


@PROGRAMS.add(cases=RISING)
class ElseOfWhile(Module):
    def forward(self, x):
        y = x.sum(0)
        while y.sum() < 10:
            y = y + 1
            if y.max() > 3:
                break
        else:
            y = y - 100
        return y


@PROGRAMS.add(cases=RISING)
class ReturnAndElse(Module):
    def forward(self, x):
        y = torch.zeros(4)
        for row in x:
            if row.sum() > 5:
                return row
            if row.sum() > 2:
                y = row
                break
        else:
            return x.mean(0)
        return y * 2


@PROGRAMS.add(cases=RISING)
class ReturnUnderAPythonTest(Module):
    def forward(self, x):
        for name, factor in (("half", 0.5), ("whole", 1.0), ("double", 2.0)):
            if name == "whole":
                return x * factor if x.sum() > 0 else x - factor
        return x


@PROGRAMS.add()
class WhileThatBindsAName(torch.nn.Module):
    def forward(self, x):
        while (largest := x.abs().max()) > 1:
            x = x / (largest * 0.9 + 0.3)
        return x


@PROGRAMS.add()
class WhileThatBindsANameAndGoesOn(torch.nn.Module):
    def forward(self, x):
        n = 0
        while (largest := x.abs().max()) > 1 and n < 5:
            n += 1
            if x.sum() < 0:
                x = x * 0.5
                continue
            x = x / (largest * 0.9 + 0.3)
        return x, largest, n


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_is_right_whichever_way_its_loop_is_left(cls: type[Module]) -> None:
    check(cls)


def returns_inside_with(x):
    for row in x:
        with torch.no_grad():
            if row.sum() > 0:
                return row
    return x


def test_a_return_inside_a_with_is_computed_where_it_stands() -> None:
    source = transform_method(returns_inside_with).source
    block = source[source.index("with torch.no_grad()") :]
    assert block.index("_value_") < block.index("= row\n") < block.index("return _value_")


def finds(numbers, wanted):
    for number in numbers:
        if number == wanted:
            return True
    else:
        numbers = [*numbers, wanted]
    return numbers


@pytest.mark.parametrize("wanted", [1, 2, 9])
def test_a_loop_over_python_values_means_what_it_meant(wanted: int) -> None:
    rewritten = transform_method(finds)
    assert "return in a loop" in str(rewritten.applied)
    assert rewritten.func([1, 2, 3], wanted) == finds([1, 2, 3], wanted)
