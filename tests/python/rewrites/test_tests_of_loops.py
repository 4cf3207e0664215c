"""Tests of `while` that do more than to tell: what they change is changed before each step, and behind the last."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

PROGRAMS = Programs()
SEVERAL = ((up(4),), (up(3, -1),), (up(6, 4),))


@PROGRAMS.add(SEVERAL)
class CountsInTheTest(Module):
    def forward(self, x):
        i = 0

        def more():
            nonlocal i
            i += 1
            return x.sum() * i < 30 and i < 6

        total = torch.zeros(4)
        while more():
            total = total * 0.5 + x.sum(0) * i
        return total, i


@PROGRAMS.add(SEVERAL)
class ChangesATensor(Module):
    def forward(self, x):
        y = x.abs() + 0.1

        def small():
            y.mul_(2)
            return y.sum() < 300

        n = 0
        while small():
            n += 1
        return y, n


@PROGRAMS.add(SEVERAL)
class SetsAnAttribute(Module):
    def __init__(self):
        super().__init__()
        self.level = torch.zeros(())

    def rises(self, x):
        self.level = self.level + x.abs().mean() + 0.1
        return self.level < 5

    def forward(self, x):
        self.level = torch.zeros(())
        total = torch.zeros(4)
        while self.rises(x):
            total = total + x[0] * self.level
        return total, self.level


@PROGRAMS.add(SEVERAL)
class FillsAList(Module):
    def forward(self, x):
        i, rows = 0, [x[0]]

        def more():
            nonlocal i
            i += 1
            return x.abs().sum() * i < 60

        while more():
            rows.append(x[0] * i)
        return torch.stack(rows), i


@PROGRAMS.add(SEVERAL)
class OfPythonAlone(Module):
    def forward(self, x):
        names = iter(["a", "b", "c", "stop", "d"])
        while next(names) != "stop":
            x = x * 2 if x.sum() > 0 else x - 1
        return x, len([*names])


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_test_is_asked_as_often_as_python_asks(cls: type[Module]) -> None:
    check(cls)
