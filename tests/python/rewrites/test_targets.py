"""Programs whose branches on tensor data store: in names, attributes, containers and tensors."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check
from torch.nn import Module

PROGRAMS = Programs()


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
class AnnotatedAssignment(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            y: torch.Tensor = x + 1
        else:
            y = x
        return y


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


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_with_a_test_on_tensor_data_is_equal_to_eager(cls: type[Module]) -> None:
    check(cls)
