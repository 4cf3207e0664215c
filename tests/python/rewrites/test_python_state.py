"""What a branch or the body of a loop changes in Python comes out of the graph, wherever it is kept, or is refused."""

from __future__ import annotations

import collections
import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from control_flow_program import SIGNS, Programs, check

from exportguard import RewriteError, to_onnx

RIGHT = Programs()
REFUSED = Programs()

_SETTINGS = {"scale": 1}
_LOG: list[int] = []


class Register:
    """Holds what classes hold."""

    count = 0


class Slotted:
    """An object without a dict."""

    __slots__ = ("factor", "value")

    def __init__(self, value: torch.Tensor, factor: int) -> None:
        self.value = value
        self.factor = factor


class Child(torch.nn.Module):
    """A submodule with attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.last: torch.Tensor | None = None

    def boost(self) -> None:
        self.scale = 4.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@RIGHT.add()
class OtherClass(torch.nn.Module):
    def forward(self, x):
        Register.count = 1
        if x.sum() > 0:
            Register.count = 5
        return x * Register.count


def _set_scale(scale: int) -> None:
    _SETTINGS["scale"] = scale


@RIGHT.add()
class GlobalDictByAFunction(torch.nn.Module):
    def forward(self, x):
        _SETTINGS["scale"] = 1
        if x.sum() > 0:
            _set_scale(3)
        return x * _SETTINGS["scale"]


@RIGHT.add()
class GlobalList(torch.nn.Module):
    def forward(self, x):
        _LOG.clear()
        if x.sum() > 0:
            _LOG.append(2)
        else:
            _LOG.append(7)
        return x * _LOG[0]


@RIGHT.add()
class ObjectWithSlots(torch.nn.Module):
    def forward(self, x):
        state = Slotted(x, 2)
        if x.sum() > 0:
            state.value = state.value * 5
            state.factor = 3
        return state.value + state.factor


@RIGHT.add()
class AttributeOfASubmodule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(Child())

    def forward(self, x):
        self.inner[0].scale = 1.0
        if x.sum() > 0:
            self.inner[0].boost()
        return self.inner(x)


@RIGHT.add()
class StateOfASubmoduleInALoop(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Child()

    def forward(self, x):
        self.inner.last = torch.zeros(4)
        for row in x:
            self.inner.last = self.inner.last * 0.5 + row
        return self.inner.last + 1


@RIGHT.add()
class DefaultArgument(torch.nn.Module):
    def _noted(self, x, log=[]):  # noqa: B006
        log.clear()
        if x.sum() > 0:
            log.append(3)
        else:
            log.append(1)
        return x * log[0]

    def forward(self, x):
        return self._noted(x)


@RIGHT.add()
class AttributeOfAFunction(torch.nn.Module):
    def forward(self, x):
        def scaled(y):
            return y * scaled.by

        scaled.by = 1
        if x.sum() > 0:
            scaled.by = 4
        return scaled(x)


@RIGHT.add()
class ListThatABranchShortens(torch.nn.Module):
    def forward(self, x):
        queue = [x, x + 1, x + 2, x + 3]
        if x.sum() > 0:
            queue.pop(0)
            queue.pop()
            y = queue[0] * queue[-1]
            queue.insert(0, x)
            queue.append(y)
        return queue[0] + queue[-1]


@REFUSED.add()
class SetInABranch(torch.nn.Module):
    def forward(self, x):
        seen = set()
        if x.sum() > 0:
            seen.add(1)
        return x + len(seen)


@REFUSED.add()
class AttributeOfATensorInABranch(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        if x.sum() > 0:
            y.scale = x.max()
        return y * getattr(y, "scale", 1.0)


@REFUSED.add()
class AttributeOfATensorThatABranchMakes(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        if x.sum() > 0:
            y = x + 1
            y.scale = 3.0
        return y * getattr(y, "scale", 1.0)


@REFUSED.add()
class AttributeOfATensorThatALoopCarries(torch.nn.Module):
    def forward(self, x):
        h = torch.zeros(4)
        for row in x:
            h = h * getattr(h, "scale", 1.0) + row
            h.scale = 0.5
        return h


@REFUSED.add()
class AttributeOfAParameterInALoop(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        h = torch.zeros(4)
        for row in x:
            h = h + row * getattr(self.weight, "scale", 1.0)
            self.weight.scale = 0.5
        return h


@REFUSED.add()
class SetInALoop(torch.nn.Module):
    def forward(self, x):
        seen, total = set(), torch.zeros(4)
        for row in x:
            if len(seen) < 2:
                total = total + row
            seen |= {len(seen)}
        return total


@REFUSED.add()
class ArrayOfNumpy(torch.nn.Module):
    def forward(self, x):
        numbers = np.ones(2)
        if x.sum() > 0:
            numbers[0] = 5.0
        return x * float(numbers[0])


@REFUSED.add()
class DequeInABranch(torch.nn.Module):
    def forward(self, x):
        queue = collections.deque([1, 2])
        if x.sum() > 0:
            queue.append(5)
        else:
            queue.popleft()
        return x * sum(queue)


@REFUSED.add()
class RandomNumberInABranch(torch.nn.Module):
    def forward(self, x):
        numbers = random.Random(3)
        return x * numbers.random() if x.sum() > 0 else x


@REFUSED.add()
class RandomNumberOfNumpyInALoop(torch.nn.Module):
    def forward(self, x):
        numbers = np.random.default_rng(3)
        total = torch.zeros(4)
        for row in x:
            total = total + row * float(numbers.random())
        return total


@REFUSED.add()
class NextInABranch(torch.nn.Module):
    def forward(self, x):
        numbers = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        y = x * next(numbers)
        if x.sum() > 0:
            y = y + next(numbers)
        return y * next(numbers)


@REFUSED.add()
class CounterInALoop(torch.nn.Module):
    def forward(self, x):
        count, total = itertools.count(1), torch.zeros(4)
        for row in x:
            total = total + row * next(count)
        return total


@REFUSED.add()
class GeneratorInABranch(torch.nn.Module):
    def forward(self, x):
        def numbers():
            yield from range(100)

        some = numbers()
        y = x * next(some) if x.sum() > 0 else x
        return y + next(some)


class LastKeysFirst(torch.nn.Module):
    """What a dict holds as one tensor, in which the order of its keys counts."""

    @staticmethod
    def told(entries):
        total = torch.zeros(4)
        for value in entries.values():
            total = total * 2 + value
        return total


@RIGHT.add()
class RandomNumberBeforeABranch(torch.nn.Module):
    def forward(self, x):
        numbers = random.Random(3)
        factor = numbers.random()
        y = x * factor if x.sum() > 0 else x
        return y + numbers.random()


@RIGHT.add()
class KeyThatBothBranchesMove(LastKeysFirst):
    def forward(self, x):
        entries = {"a": x[0], "b": x[0] * 2}
        if x.sum() > 0:
            entries["a"] = entries.pop("a") * 3
        else:
            entries["a"] = entries.pop("a") * 5
        return self.told(entries)


@RIGHT.add()
class NewKeysInOneOrder(LastKeysFirst):
    def forward(self, x):
        entries = {"a": x[0]}
        if x.sum() > 0:
            entries["b"], entries["c"] = x[1], x[0] * 3
        else:
            entries["b"], entries["c"] = x[0] * 5, x[1]
        return self.told(entries)


@REFUSED.add()
class NewKeysInTwoOrders(LastKeysFirst):
    def forward(self, x):
        entries = {}
        if x.sum() > 0:
            entries["a"], entries["b"] = x[0], x[1]
        else:
            entries["b"], entries["a"] = x[0], x[1]
        return self.told(entries)


@REFUSED.add()
class KeyThatOneBranchMoves(LastKeysFirst):
    def forward(self, x):
        entries = collections.OrderedDict(a=x[0], b=x[1], c=x[0] * 3)
        if x.sum() > 0:
            entries.move_to_end("a")
        return self.told(entries)


@REFUSED.add()
class KeyThatIsTakenOutAndPutBack(LastKeysFirst):
    def forward(self, x):
        entries = {"a": x[0]}
        if x.sum() > 0:
            entries.pop("a")
            entries["b"], entries["a"] = x[0] * 2, x[0] * 3
        else:
            entries["b"] = x[0] * 5
        return self.told(entries)


@REFUSED.add()
class KeyThatEachStepMoves(LastKeysFirst):
    def forward(self, x):
        entries = {"a": x[0], "b": x[0] * 2}
        for row in x:
            first = next(iter(entries))
            entries[first] = entries.pop(first) + row
        return self.told(entries)


def test_a_class_keeps_no_tensor_of_the_export() -> None:
    to_onnx(OtherClass(), SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
    to_onnx(GlobalDictByAFunction(), SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert isinstance(Register.count, int)
    assert isinstance(_SETTINGS["scale"], int)


@pytest.mark.parametrize("program", RIGHT, ids=lambda cls: cls.__name__)
def test_what_python_keeps_comes_out_of_the_graph(program: type[torch.nn.Module]) -> None:
    check(program)


@pytest.mark.parametrize("program", REFUSED, ids=lambda cls: cls.__name__)
def test_what_no_graph_can_keep_is_refused_with_its_line(program: Any) -> None:
    with pytest.raises(RewriteError, match=r"line \d+"):
        to_onnx(program(), SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite=program)
