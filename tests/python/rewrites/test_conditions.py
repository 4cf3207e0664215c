"""Programs with tests on tensor data: each is exported, and equal to eager on every path."""

# ruff: noqa: SIM108 - the programs are what users write

from __future__ import annotations

import contextlib

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Linear, Module

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
class TupleTarget(Module):
    def forward(self, x):
        if x.sum() > 0:
            a, b = x + 1, x + 2
        else:
            b, a = x - 1, x - 2
        return a * 3 + b


@PROGRAMS.add()
class StarredTarget(Module):
    def forward(self, x):
        if x.sum() > 0:
            a, *b = x, x + 1, x + 2
        else:
            a, *b = x, x - 1, x - 2
        return a + b[0] * b[1]


@PROGRAMS.add()
class AugmentedTarget(Module):
    def forward(self, x):
        y = x + 0
        if x.sum() > 0:
            y += 1
        else:
            y *= 2
        return y, x


@PROGRAMS.add()
class AttributeTarget(Module):
    def forward(self, x):
        if x.sum() > 0:
            self.last = x + 1
        else:
            self.last = x - 1
        return self.last * 2


@PROGRAMS.add()
class AttributeOfObject(Module):
    def forward(self, x):
        box = Box()
        if x.sum() > 0:
            box.content = x + 1
        else:
            box.content = x * 2
        return box.content


class Box:
    def __init__(self) -> None:
        self.content = None


@PROGRAMS.add()
class DictEntryTarget(Module):
    def forward(self, x):
        d = {"k": x}
        if x.sum() > 0:
            d["k"] = x + 1
            d["new"] = x
        else:
            d["new"] = x * 2
        return d["k"] + d["new"]


@PROGRAMS.add()
class ListElementTarget(Module):
    def forward(self, x):
        items = [x, x]
        if x.sum() > 0:
            items[0] = x + 1
        return items[0] * items[1]


@PROGRAMS.add()
class ListAppend(Module):
    def forward(self, x):
        items = [x]
        if x.sum() > 0:
            items.append(x + 1)
        else:
            items.append(x - 1)
        return torch.cat(items)


@PROGRAMS.add()
class TensorStoreInBranch(Module):
    def forward(self, x):
        y = x.clone()
        if x.sum() > 0:
            y[:, 0] = 7
        return y


@PROGRAMS.add()
class InPlaceMethodInBranch(Module):
    def forward(self, x):
        y = x.clone()
        if x.sum() > 0:
            y.mul_(2)
        else:
            y.add_(1)
        return y


@PROGRAMS.add()
class ReadBeforeAndAfterInPlace(Module):
    def forward(self, x):
        y = x.clone()
        before = y * 1
        if x.sum() > 0:
            y += 5
        return before, y


@PROGRAMS.add()
class VariableOfOneBranch(Module):
    def forward(self, x):
        if x.sum() > 0:
            a = x * 2
            y = a + 1
        else:
            y = x
        return y


@PROGRAMS.add()
class SubmoduleCall(Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Linear(4, 4), Linear(4, 4)

    def forward(self, x):
        if x.sum() > 0:
            x = self.first(x)
        else:
            x = self.second(x) + 1
        return x


@PROGRAMS.add()
class SameSubmoduleInBoth(Module):
    def __init__(self):
        super().__init__()
        self.layer = Linear(4, 4)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


@PROGRAMS.add()
class MethodCall(Module):
    def scaled(self, x, by):
        return x * by

    def forward(self, x):
        if x.sum() > 0:
            x = self.scaled(x, 2)
        else:
            x = self.scaled(x, by=3)
        return x


@PROGRAMS.add()
class ConditionInsideACalledMethod(Module):
    def clamped(self, x):
        if x.max() > 1:
            return x / x.max()
        return x

    def forward(self, x):
        return self.clamped(x) + 1


@PROGRAMS.add()
class ConditionInsideASubmodule(Module):
    def __init__(self):
        super().__init__()
        self.inner = EarlyReturn()

    def forward(self, x):
        return self.inner(x) + self.inner(-x)


@PROGRAMS.add()
class BufferRead(Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("offset", torch.arange(4.0))

    def forward(self, x):
        if x.sum() > 0:
            x = x + self.offset
        return x


@PROGRAMS.add()
class CallsSuper(AssignInBoth):
    def forward(self, x):
        if x.max() > 1:
            return super().forward(x)
        return super().forward(-x) + 1


@PROGRAMS.add()
class PrivateNames(Module):
    def __init__(self):
        super().__init__()
        self.__factor = 3

    def forward(self, x):
        if x.sum() > 0:
            x = x * self.__factor
        return x


def _with_closure():
    factor = torch.tensor([1.0, 2.0, 3.0, 4.0])

    class Closure(Module):
        def forward(self, x):
            if x.sum() > 0:
                x = x * factor
            return x

    return Closure


PROGRAMS.add()(_with_closure())


@PROGRAMS.add()
class Decorated(Module):
    @torch.no_grad()
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x


@PROGRAMS.add()
class StaticMethod(Module):
    @staticmethod
    def pick(x):
        if x.sum() > 0:
            return x + 1
        return x

    def forward(self, x):
        return self.pick(x)


@PROGRAMS.add()
class ClassMethod(Module):
    FACTOR = 2

    @classmethod
    def pick(cls, x):
        if x.sum() > 0:
            return x * cls.FACTOR
        return x

    def forward(self, x):
        return self.pick(x)


@PROGRAMS.add()
class DefaultsAndKeywordOnly(Module):
    def pick(self, x, by=2.0, *, shift=1.0):
        if x.sum() > 0:
            return x * by
        return x + shift

    def forward(self, x):
        return self.pick(x) + self.pick(x, 3.0, shift=2.0)


@PROGRAMS.add()
class NestedFunction(Module):
    def forward(self, x):
        def shifted(t):
            return t + x

        if x.sum() > 0:
            x = shifted(x)
        return x


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
class NoneInBoth(Module):
    def forward(self, x):
        if x.sum() > 0:
            y, z = x + 1, None
        else:
            y, z = x - 1, None
        return y if z is None else z


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


@PROGRAMS.add()
class AnnotatedAssignment(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            y: torch.Tensor = x + 1
        else:
            y = x
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
