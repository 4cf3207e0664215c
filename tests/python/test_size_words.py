"""Conditions on sizes in a user's words mean what torch's do."""

from __future__ import annotations

import math
import random

import pytest
import sympy
from torch.utils._sympy import functions

from exportguard.size_floats import FloatProduct, FloatSum
from exportguard.size_words import in_python

A, B = sympy.symbols("rows columns", integer=True, positive=True)
SIZES = [{A: a, B: b} for a in (1, 2, 3, 5, 8, 12) for b in (1, 2, 4, 7)]

TEXTS = {
    "rows == 4": sympy.Eq(A, 4),
    "8*(rows // 4) != 0": sympy.Ne(8 * functions.FloorDiv(A, 4), 0),
    "rows % 2 == 0": sympy.Eq(functions.Mod(A, 2), 0),
    "rows / 2 == 3.0": sympy.Eq(functions.IntTrueDiv(A, 2), 3.0),
    "((rows - 1) // 2) + 1 == columns": sympy.Eq(functions.FloorDiv(A - 1, 2) + 1, B),
    "rows // (rows // 2) != 1": sympy.Ne(functions.FloorDiv(A, functions.FloorDiv(A, 2)), 1),
    "max(3, rows) < 2*columns": functions.Max(A, 3) < 2 * B,
    "int(0.5*float(rows)) == 2": sympy.Eq(functions.TruncToInt(functions.ToFloat(A) * 0.5), 2),
    "(columns > 3 or rows > 3) and rows < 9": sympy.And(sympy.Or(A > 3, B > 3), A < 9),
    "math.sqrt(rows) == 2.0": sympy.Eq(functions.OpaqueUnaryFn_sqrt(A), 2.0),
    "math.floor(float(rows)/2) == columns": sympy.Eq(functions.FloorToInt(functions.ToFloat(A) / 2), B),
    "int(0.3 * float(rows)) == 0": sympy.Eq(functions.TruncToInt(FloatProduct(0.3, functions.ToFloat(A))), 0),
    "0.3 * (0.5 + float(rows)) > 1": FloatProduct(FloatSum(functions.ToFloat(A), 0.5), 0.3) > 1,
    "rows == columns": functions.Identity(sympy.Eq(A, B)).args[0],
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_condition_is_written_as_a_user_would(text: str) -> None:
    assert in_python(TEXTS[text]) == text


def drawn(draw: random.Random, depth: int) -> sympy.Expr:
    """An expression of whole numbers."""
    if depth == 0:
        return draw.choice((A, B, sympy.Integer(draw.randint(1, 5))))
    left, right = drawn(draw, depth - 1), drawn(draw, depth - 1)
    makes = (
        lambda: left + right,
        lambda: left - right,
        lambda: -left,
        lambda: left * right,
        lambda: functions.FloorDiv(left, right + draw.randint(1, 3)),
        lambda: functions.FloorDiv(left, draw.randint(2, 4)),
        lambda: functions.PythonMod(left, draw.randint(2, 5)),
        lambda: functions.Max(left, right),
        lambda: functions.Min(left, right, A),
        lambda: left**2,
        lambda: functions.TruncToInt(functions.IntTrueDiv(left, draw.randint(2, 4))),
        lambda: functions.CeilDiv(A, draw.randint(2, 4)) + left,
    )
    return draw.choice(makes)()


def condition(draw: random.Random) -> sympy.Basic:
    """One or several conditions on such expressions."""
    kinds = (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
    parts = [draw.choice(kinds)(drawn(draw, 2), drawn(draw, 1)) for _ in range(draw.choice((1, 1, 2, 3)))]
    joined = draw.choice((sympy.And, sympy.Or))(*parts)
    return draw.choice((joined, sympy.Or(joined, sympy.And(A > 2, parts[0])), sympy.Not(joined)))


@pytest.mark.parametrize("seed", range(60))
def test_a_condition_in_words_is_the_same_condition(seed: int) -> None:
    made = condition(random.Random(seed))
    text = in_python(made)
    assert not [name for name in ("Eq(", "Ne(", "Div(", "Mod(", "ToInt", "&", "|", "~") if name in text]
    for sizes in SIZES:
        try:
            wanted = made.xreplace({symbol: sympy.Integer(size) for symbol, size in sizes.items()})
            found = eval(text, {"math": math}, {str(symbol): size for symbol, size in sizes.items()})
        except ZeroDivisionError:
            continue
        assert found == bool(wanted), (text, made, sizes)
