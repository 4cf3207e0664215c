"""Programs that return from within a branch on tensor data: each is equal to eager on every path."""

# ruff: noqa: SIM102, SIM108 - the programs are what users write

from __future__ import annotations

import pytest
from control_flow_program import Programs, check
from torch.nn import Module

PROGRAMS = Programs()


@PROGRAMS.add()
class EarlyReturn(Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        y = x * 2
        return y - 1


@PROGRAMS.add()
class ReturnInBoth(Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        else:
            return x - 1


@PROGRAMS.add()
class ThreeReturns(Module):
    def forward(self, x):
        if x.sum() > 5:
            return x
        if x.sum() > 0:
            return x * 2
        x = x + 1
        return x * 3


@PROGRAMS.add()
class NestedReturns(Module):
    def forward(self, x):
        y = x + 1
        if x.sum() > 0:
            if x.max() > 2:
                return y
            y = y * 2
        else:
            y = y * 3
        return y + x


@PROGRAMS.add()
class ReturnsTuple(Module):
    def forward(self, x):
        if x.sum() > 0:
            return x, x + 1
        return x * 2, x


@PROGRAMS.add()
class ReturnsDict(Module):
    def forward(self, x):
        if x.sum() > 0:
            return {"a": x, "b": x + 1}
        return {"a": x * 2, "b": x}


@PROGRAMS.add()
class BranchReturnsItsInput(Module):
    def forward(self, x):
        if x.sum() > 0:
            y = x
        else:
            y = x.transpose(0, 1).transpose(0, 1)
        return y, x


@PROGRAMS.add()
class SameTensorTwice(Module):
    def forward(self, x):
        if x.sum() > 0:
            a = b = x + 1
        else:
            a, b = x, x
        return a + b


@PROGRAMS.add()
class NoneInBoth(Module):
    def forward(self, x):
        if x.sum() > 0:
            y, z = x + 1, None
        else:
            y, z = x - 1, None
        return y if z is None else z


@PROGRAMS.add()
class ReturnWhereSomethingIsGiven(Module):
    """Python's own test around one that data decide."""

    def chosen(self, x, kept=None):
        if kept is not None:
            if x.sum() > 0:
                if kept.dtype != x.dtype:
                    kept = kept.to(x.dtype)
                return kept
        y = x * 2
        return y - 1

    def forward(self, x):
        return self.chosen(x) + self.chosen(x, x + 3)


@PROGRAMS.add()
class ReturnOfEitherKind(Module):
    def forward(self, x):
        if isinstance(x, list):
            y = x[0]
        elif not self.training:
            y = x + 1
            if x.sum() > 5:
                return y
            elif x.sum() > 0:
                y = y * 2
        else:
            return x
        return y + x


@PROGRAMS.add()
class ReturnInALoopOfPython(Module):
    def steps(self, x, scale=None):
        for number in range(2):
            x = x + number
        if scale is None:
            scale = 2
        elif x.max() > 4:
            return x
        if hasattr(self, "training"):
            if hasattr(self, "forward"):
                if x.sum() < 0:
                    return x * scale
            x = x - 1
        return x / scale

    def forward(self, x):
        return self.steps(x), self.steps(x, 3)


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_with_a_test_on_tensor_data_is_equal_to_eager(cls: type[Module]) -> None:
    check(cls)
