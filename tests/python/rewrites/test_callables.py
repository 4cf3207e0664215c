"""Programs with a test on tensor data in every kind of function, and calls within the branches."""

# ruff: noqa: SIM108 - the programs are what users write

from __future__ import annotations

import functools

import pytest
import torch
from control_flow_program import Programs, check
from torch.nn import Linear, Module

from exportguard import RewriteError, to_onnx

PROGRAMS = Programs()


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


class Inner(Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        y = x * 2
        return y - 1


@PROGRAMS.add()
class ConditionInsideASubmodule(Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

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


class Base(Module):
    def forward(self, x):
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
        return y * 2


@PROGRAMS.add()
class CallsSuper(Base):
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


@functools.singledispatch
def scaled(factor, x):
    raise TypeError(factor)


@scaled.register
def _(factor: int, x):
    return x * factor if x.sum() > 0 else x


@scaled.register
def _(factor: float, x):
    return x / factor if x.sum() > 0 else -x


class FunctionsOfOneName(Module):
    def forward(self, x):
        return scaled(2, x) + scaled(4.0, x)


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_with_a_test_on_tensor_data_is_equal_to_eager(cls: type[Module]) -> None:
    check(cls)


def test_functions_that_go_by_one_name_are_rewritten_each() -> None:
    onnx = to_onnx(FunctionsOfOneName(), (torch.ones(3, 4),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for x in (torch.ones(2, 4), -torch.ones(5, 4)):
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), FunctionsOfOneName()(x))


class LambdaAsAHook(Module):
    def __init__(self):
        super().__init__()
        self.linear = Linear(4, 4)
        self.linear.register_forward_hook(lambda module, args, y: y * 2 if y.sum() > 0 else y)

    def forward(self, x):
        return self.linear(x)


class PowerModulo(Module):
    def forward(self, x):
        count = int(x.abs().sum()) % 6
        return x * pow(3, count, 5)


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (LambdaAsAHook, "<lambda> is not defined by `def`; rewrite it as a function"),
        (
            PowerModulo,
            r"line \d+: this has no meaning with what stands for a number of tensor data.*unsupported operand",
        ),
    ],
)
def test_what_stops_rewritten_code_is_told_rather_than_what_stopped_it_before(cls: type[Module], reason: str) -> None:
    with pytest.raises(RewriteError, match=reason):
        to_onnx(cls(), (torch.ones(3, 4),), dynamic_shapes=({0: "n"},), rewrite="auto")
