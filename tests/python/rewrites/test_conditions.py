"""Programs with tests on tensor data: each is exported, and equal to eager on every path."""

# ruff: noqa: SIM108 - the programs are what users write

from __future__ import annotations

import contextlib

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

PROGRAMS = Programs()


@PROGRAMS.add()
class AssignInBoth(Module):
    def forward(self, x):
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
        return y * 2


@PROGRAMS.add()
class WithoutElse(Module):
    def forward(self, x):
        y = x * 2
        if x.sum() > 0:
            y = y + 10
        return y


@PROGRAMS.add()
class Elif(Module):
    def forward(self, x):
        if x.sum() > 5:
            y = x * 2
        elif x.sum() > 0:
            y = x * 3
        elif x.sum() > -5:
            y = x * 4
        else:
            y = x * 5
        return y


@PROGRAMS.add()
class Nested(Module):
    def forward(self, x):
        y = x
        if x.sum() > 0:
            if x.max() > 2:
                y = y + 1
            else:
                y = y + 2
            y = y * 2
        return y


@PROGRAMS.add()
class NoneStays(Module):
    def forward(self, x, mask=None):
        y = None
        if mask is None:
            y = x
        if x.sum() > 0:
            y = y + 1
        return y


@PROGRAMS.add()
class ListValue(Module):
    def forward(self, x):
        if x.sum() > 0:
            items = [x, x + 1]
        else:
            items = [x * 2, x]
        return items[0] + 2 * items[1]


@PROGRAMS.add()
class NumbersThatDiffer(Module):
    def forward(self, x):
        if x.sum() > 0:
            w = 2
        else:
            w = 5
        return x * w


@PROGRAMS.add()
class NumbersThatAgree(Module):
    def forward(self, x):
        if x.sum() > 0:
            y, axis = x + 1, 1
        else:
            y, axis = x, 1
        return y.sum(axis)


@PROGRAMS.add()
class PythonTestsStay(Module):
    def forward(self, x, scale=True):
        if scale:
            x = x * 2
        if self.training:
            x = x + 100
        if x.dim() == 2 and x.shape[1] == 4:
            x = x + 1
        if x.sum() > 0:
            x = -x
        return x


@PROGRAMS.add()
class MixedTest(Module):
    def forward(self, x, clip=True):
        if clip and x.max() > 1:
            x = x / 2
        return x


@PROGRAMS.add()
class Float16Clamp(Module):
    def forward(self, x):
        if x.dtype == torch.float16 or (torch.isinf(x).any() or torch.isnan(x).any()):
            x = torch.clamp(x, -10, 10)
        return x


@PROGRAMS.add()
class InsideWith(Module):
    def forward(self, x):
        with torch.no_grad(), contextlib.nullcontext():
            if x.sum() > 0:
                x = x + 1
            else:
                x = x * 2
        return x


@PROGRAMS.add()
class InsideTry(Module):
    def forward(self, x):
        try:
            if x.sum() > 0:
                x = x + 1
            else:
                x = x * 2
        finally:
            x = x - 3
        return x


@PROGRAMS.add()
class WithInsideABranch(Module):
    def forward(self, x):
        if x.sum() > 0:
            with torch.no_grad():
                x = x * 2
        return x


@PROGRAMS.add()
class ConditionByItem(Module):
    def forward(self, x):
        if x.sum().item() > 0:
            x = x + 1
        return x


@PROGRAMS.add()
class ConditionOnAll(Module):
    def forward(self, x):
        if (x > 0).all():
            x = x + 1
        return x


@PROGRAMS.add(cases=((up(2), torch.tensor(1)), (up(3), torch.tensor(0)), (up(2), torch.tensor(-3))))
class ConditionOnAnInteger(Module):
    def forward(self, x, n):
        if n:
            x = x + 1
        return x


@PROGRAMS.add()
class TwoIndependentTests(Module):
    def forward(self, x):
        y = x
        if x.sum() > 0:
            y = y + 1
        if y.max() > 2:
            y = y - x
        return y


@PROGRAMS.add(cases=((up(3), up(3)), (up(2), up(2, -1)), (up(2, -1), up(2))))
class TwoInputs(Module):
    def forward(self, x, y):
        if x.sum() > y.sum():
            x, y = y, x
        return x - 2 * y


@PROGRAMS.add()
class BuildsTensorsInABranch(Module):
    def forward(self, x):
        if x.sum() > 0:
            y = torch.ones(x.shape[0], 4)
        else:
            y = torch.zeros(x.shape[0], 4)
        return x + y


@PROGRAMS.add()
class ComprehensionInABranch(Module):
    def forward(self, x):
        if x.sum() > 0:
            y = sum(x * k for k in range(3))
        else:
            y = torch.stack([x[:, k] for k in range(4)], 1)
        return y


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_with_a_test_on_tensor_data_is_equal_to_eager(cls: type[Module]) -> None:
    check(cls)
