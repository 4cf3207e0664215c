"""Tests of sizes that decide about more than a padding stay; of others a padding is as short as it can be told."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import Min

from exportguard.patches.transformers.conditional_pads import Comparison, PadByNothing, size_test

_PADS = "x = F.pad(x, (0, n))"
_NEW_MASK = "if mask is None: mask = torch.ones(length)"
_PADDED_MASK = "mask = F.pad(mask, (0, n))"

LEFT_ALONE = {
    "a number that had none before": ([], [_PADS, "short = n"], "return x[:short]"),
    "a number that was a tensor before": (["short = x.sum()"], [_PADS, "short = n"], "return x[:short]"),
    "a number that a loop gave before": (
        ["short = 0", "for i in y: short = i"],
        [_PADS, "short = n"],
        "return x[:short]",
    ),
    "several numbers": (["short = 0"], [_PADS, "short = (n, n)"], "return F.pad(x, short)"),
    "a mask that is returned": ([], [_PADS, _NEW_MASK, _PADDED_MASK], "return x, mask"),
    "a mask that is handed on": ([], [_PADS, _NEW_MASK, _PADDED_MASK], "return attend(x, mask)"),
    "a mask that is added": ([], [_PADS, _NEW_MASK, _PADDED_MASK], "if mask is not None: x = x + mask[0]"),
    "a mask that is counted": (
        [],
        [_PADS, _NEW_MASK, _PADDED_MASK],
        "if mask is not None:\n  rows = mask.view(2, 4)\n  x = x.masked_fill(~rows, rows.sum())",
    ),
    "a mask that fills what it shows": (
        [],
        [_PADS, _NEW_MASK, _PADDED_MASK],
        "if mask is not None: x = x.masked_fill(mask, 0.0)",
    ),
    "another way where there is none": (
        [],
        [_PADS, _NEW_MASK, _PADDED_MASK],
        "if mask is not None:\n  x = x.masked_fill(~mask, 0.0)\nelse:\n  x = x * 2",
    ),
    "a mask of other values": (
        [],
        [_PADS, "if mask is None: mask = torch.zeros(length)", _PADDED_MASK],
        "if mask is not None: x = x.masked_fill(~mask, 0.0)",
    ),
}
PADDED = {
    "a number with a value before": (["short = 0"], [_PADS, "short = n"], "return x[:short]"),
    "a mask that hides": (
        [],
        [_PADS, _NEW_MASK, _PADDED_MASK],
        "if mask is not None:\n  rows = mask.view(2, 4)\n  x = x.masked_fill(~rows[:, None], 0.0)",
    ),
}


def is_padded_by_nothing(parts: tuple[list[str], list[str], str]) -> bool:
    before, branch, behind = parts
    body = [*before, "if n > 0:", *(f"  {line}" for line in branch), *behind.splitlines()]
    function = ast.parse("def f(x, y, n, length, mask=None):\n" + "\n".join(f"  {line}" for line in body)).body[0]
    return "size_test" in ast.unparse(PadByNothing().visit(function))


@pytest.mark.parametrize("parts", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_a_test_that_decides_more_stays(parts: tuple[list[str], list[str], str]) -> None:
    assert not is_padded_by_nothing(parts)


@pytest.mark.parametrize("parts", PADDED.values(), ids=PADDED.keys())
def test_a_test_that_decides_about_a_padding_alone_pads_by_nothing(parts: tuple[list[str], list[str], str]) -> None:
    assert is_padded_by_nothing(parts)


#: The test, how far is padded, and whether the test stays in what is padded.
AMOUNTS: dict[str, tuple[Callable[[Any], list[Comparison]], Callable[[Any], Any], bool]] = {
    "what is left": (lambda n: [(n % 4, "!=", 0)], lambda n: 4 - n % 4, False),
    "what is missing": (lambda n: [(-n % 4, ">", 0)], lambda n: -n % 4, False),
    "its negative": (lambda n: [(-n % 4, ">", 0)], lambda n: -(-n % 4), False),
    "a flag": (lambda n: [(n % 2, "==", 1), (n, "<", 5)], lambda n: n % 2, False),
    "up to a length": (lambda n: [(n, "<=", 5)], lambda n: 5 - n + 1, False),
    "something else": (lambda n: [(n, "<", 5)], lambda n: n + 2, True),
    "what is left, and more": (lambda n: [(n % 4, "!=", 0), (n, "<", 7)], lambda n: 4 - n % 4, True),
}


@pytest.mark.parametrize("name", AMOUNTS)
def test_a_padding_is_told_without_its_test_where_the_number_tells_it(name: str) -> None:
    comparisons, amount, has_test = AMOUNTS[name]
    n = ShapeEnv().create_unbacked_symint()
    torch._check(n >= 2)
    test = size_test(*comparisons(n))
    assert test is not None
    padded = test.times(amount(n)).node.expr
    assert padded.has(Min) == has_test
    for size in range(2, 20):
        holds = any(_SIGNS[sign](left, right) for left, sign, right in comparisons(size))
        assert padded.xreplace({n.node.expr: sympy.Integer(size)}) == (amount(size) if holds else 0)


_SIGNS = {"!=": operator.ne, "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt}
