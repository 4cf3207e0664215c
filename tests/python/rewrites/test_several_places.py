"""An assignment to several places, of which some have an index that only the run knows."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

LONG = ((up(4),), (up(1),), (up(3, -1),), (up(6, 4),), (up(7, 0.3),))
PROGRAMS = Programs()


@PROGRAMS.add(LONG)
class BubbleSort(Module):
    def forward(self, x):
        y = (x * torch.tensor([1.0, -1.0, 0.5, 2.0])).sin().flatten().clone()
        n = x.shape[0]
        for i in range(n):
            for j in range(n - i - 1):
                if y[j] > y[j + 1]:
                    y[j], y[j + 1] = y[j + 1].clone(), y[j].clone()
        return y


@PROGRAMS.add(LONG)
class IndexBeforeItChanges(Module):
    def forward(self, x):
        y = x.clone()
        i = 0
        for row in x:
            y[i], i = row * 2, i + 1
        return y, i


@PROGRAMS.add(LONG)
class IndexBehindItsChange(Module):
    def forward(self, x):
        y = x.clone()
        i = -1
        for row in x:
            i, y[i] = i + 1, row * 2
        return y, i


@PROGRAMS.add(LONG)
class OneValueForMany(Module):
    def forward(self, x):
        y, z = x.clone(), x.clone()
        for i in range(len(x)):
            y[i] = z[-i] = last = x[i] * i + 1
        return y, z, last


@PROGRAMS.add(LONG)
class Nested(Module):
    def forward(self, x):
        a, b = torch.zeros(len(x)), torch.zeros(len(x))
        for i in range(len(x)):
            (a[i], [b[i], *rest]) = x[i].sum(), (x[i].max(), 2, 3)
        return a, b + sum(rest)


@PROGRAMS.add(LONG)
class TakenApartBehindAWrite(Module):
    def forward(self, x):
        y = x.sum(0)
        k = x.sum().long() % 2
        y[k], (p, *_) = torch.tensor(7.0), y
        return y, p


@PROGRAMS.add(LONG)
class ByANumberOfData(Module):
    def forward(self, x):
        y = x.clone()
        scales = [1.0, 2.0, 3.0]
        k = x.sum().long().abs() % x.shape[0]
        j = x.sum().long().abs() % 3
        y[k], y[0] = y[0].clone(), y[k].clone()
        scales[j], scales[0] = scales[0], scales[j]
        return y * scales[0] - scales[1]


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_the_program_is_that_of_eager_mode(cls: type[Module]) -> None:
    check(cls)
