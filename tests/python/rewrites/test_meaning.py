"""`and` and `or` as values, variables that functions share, names assigned in a branch of Python's."""

# ruff: noqa: E731, B023 - the programs are what users write

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

PROGRAMS = Programs()
ZERO = ((up(3),), (up(2, -1),), (torch.zeros(4, 4),))


@PROGRAMS.add(ZERO)
class OrAsAValue(Module):
    def forward(self, x):
        scale = x.sum() or 5.0
        return (x + 1) * scale


@PROGRAMS.add(ZERO)
class AndAsAValue(Module):
    def forward(self, x):
        scale = x.sum() and x.mean()
        return (x + 1) * scale


@PROGRAMS.add(ZERO)
class ThreeAsAValue(Module):
    def forward(self, x):
        return (x + 1) * (x.sum() or x.abs().sum() or torch.tensor(2.0))


@PROGRAMS.add(ZERO)
class OrOfPythonAndData(Module):
    def forward(self, x, given=None):
        return x + (given or x.sum())


@PROGRAMS.add()
class OperandThatChangesSomething(Module):
    def forward(self, x):
        state = {"n": torch.zeros(())}

        def note():
            state["n"] = state["n"] + 1
            return x.max() > 2

        if x.sum() > 0 or note():
            x = x + 1
        return x + state["n"]


@PROGRAMS.add()
class OperandThatMayFail(Module):
    def forward(self, x):
        first = 0
        while first < x.shape[0] and x[first].sum() < 1:
            first += 1
        return x * first


@PROGRAMS.add()
class NumberOfData(Module):
    def forward(self, x):
        count = 0
        for row in x:
            count += int((row > 0.5).all())
        return x + count


@PROGRAMS.add()
class NamesInTests(Module):
    def forward(self, x):
        if (s := x.sum()) > 0 and x.max() > 2:
            return x * s
        return x - s


@PROGRAMS.add()
class LambdaOverABranch(Module):
    def forward(self, x):
        s = x.sum()
        scaled = lambda: s * 2
        if x.sum() > 0:
            s = s + 1
            y = scaled()
        else:
            y = scaled() - 1
        return x + y + scaled()


@PROGRAMS.add()
class LambdasInAList(Module):
    def forward(self, x):
        found = []
        for k in range(3):
            found.append(lambda: x * k)
        if x.sum() > 0:
            x = x + 1
        return found[0]() + found[1]()


@PROGRAMS.add()
class FunctionOverALoop(Module):
    def forward(self, x):
        h, out = torch.zeros(4), torch.zeros(4)

        def doubled():
            return h * 2

        for row in x:
            h = h + row
            out = out + doubled()
        return out + doubled()


@PROGRAMS.add()
class FunctionThatAssigns(Module):
    def forward(self, x):
        total = x.sum(0) * 0

        def add(row):
            nonlocal total
            total = total + row

        for row in x:
            add(row)
            if total.sum() > 1:
                total = total * 0.5
        return total


@PROGRAMS.add()
class NameOfABranchAlone(Module):
    def forward(self, x):
        if x.sum() > 0:
            scale = x.max()
            grow = lambda y: y * scale
            x = grow(x)
        return x


@PROGRAMS.add()
class NameBeforeContinue(Module):
    def forward(self, x):
        for k in range(3):
            if self.training and k > 0:
                chance = torch.rand([])
                if chance < 0.5:
                    continue
            x = x + k
        if x.sum() > 0:
            x = -x
        return x


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_means_what_it_means_in_python(cls: type[Module]) -> None:
    check(cls)
