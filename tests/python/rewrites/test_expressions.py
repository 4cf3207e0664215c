"""Programs with boolean expressions, assertions and raises on tensor data, equal to eager on every path."""

# ruff: noqa: PT018 - the programs are what users write

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

PROGRAMS = Programs()


@PROGRAMS.add()
class ConditionalExpression(Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


@PROGRAMS.add()
class NestedConditionalExpression(Module):
    def forward(self, x):
        return x + 1 if x.sum() > 5 else (x * 2 if x.sum() > 0 else -x)


@PROGRAMS.add()
class ConditionalExpressionOfTuples(Module):
    def forward(self, x):
        a, b = (x, x + 1) if x.sum() > 0 else (x * 2, x)
        return a - 3 * b


@PROGRAMS.add()
class ConditionalExpressionOfNumbers(Module):
    def forward(self, x):
        return x * (2.0 if x.sum() > 0 else 3.0)


@PROGRAMS.add()
class ConditionalExpressionAsArgument(Module):
    def forward(self, x):
        return torch.add(x, x if x.max() > 1 else -x, alpha=2)


@PROGRAMS.add()
class And(Module):
    def forward(self, x):
        if x.sum() > 0 and x.max() > 2:
            x = x + 1
        return x


@PROGRAMS.add()
class Or(Module):
    def forward(self, x):
        if x.sum() > 6 or x.min() < -2:
            x = x + 1
        return x


@PROGRAMS.add()
class Not(Module):
    def forward(self, x):
        if not x.sum() > 0:
            x = x + 1
        return x


@PROGRAMS.add()
class AndOrNot(Module):
    def forward(self, x):
        if (x.sum() > 0 and not x.max() > 2) or x.min() < -5:
            x = x + 1
        return x


@PROGRAMS.add()
class AndIsShortCircuitForPythonValues(Module):
    def forward(self, x, mask=None):
        if mask is not None and mask.sum() > 0:
            x = x * mask
        if mask is None and x.sum() > 0:
            x = x + 1
        return x


@PROGRAMS.add()
class OrDefault(Module):
    def forward(self, x, scale=None):
        scale = scale or 3.0
        return x * scale if x.sum() > 0 else x


@PROGRAMS.add()
class ChainedComparison(Module):
    def forward(self, x):
        if 0 < x.sum() < 8:
            x = x + 1
        return x


@PROGRAMS.add()
class ChainedComparisonOfThree(Module):
    def forward(self, x):
        if -1 < x.mean() <= x.max() < 2:
            x = x + 1
        return x


@PROGRAMS.add()
class ConditionInAVariable(Module):
    def forward(self, x):
        is_large = x.sum() > 0 and x.max() > 1
        if is_large:
            x = x / 2
        return x, is_large


@PROGRAMS.add()
class AnyAndAll(Module):
    def forward(self, x):
        if (x > 1).any() and not (x > 1).all():
            return x.clamp(max=1)
        return x


@PROGRAMS.add(cases=((up(3),), (up(2, 3),), (up(5, 4),)))
class AssertOnData(Module):
    def forward(self, x):
        assert x.sum() > 0, "the sum must be above zero"
        return x + 1


@PROGRAMS.add(cases=((up(3),), (up(2, 3),), (up(5, 4),)))
class RaiseOnData(Module):
    def forward(self, x):
        if x.min() < 0:
            raise ValueError("negative")
        return x.sqrt()


@PROGRAMS.add(cases=((up(3),), (up(2, 3),), (up(5, 4),)))
class AssertWithAnd(Module):
    def forward(self, x):
        assert x.dim() == 2 and x.max() < 100
        return x * 2


@PROGRAMS.add()
class AssertOnShapes(Module):
    def forward(self, x):
        assert x.shape[1] == 4, f"got {x.shape}"
        if x.sum() > 0:
            x = x + 1
        return x


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_program_with_an_expression_on_tensor_data_is_equal_to_eager(cls: type[Module]) -> None:
    check(cls)
