"""What Python's floats make of a size: the same in a trace and in a file, rounded after each operation."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from called import Called
from exportguard import to_onnx
from exportguard.axes.evaluation import Evaluation
from exportguard.axes.expressions import Range
from exportguard.axes.float_bounds import holds_for_floats
from exportguard.axes.implication import Answer, decide
from exportguard.errors import AxisError
from exportguard.patches.torch.floats_of_sizes import computed_as_written
from exportguard.rewrites.arithmetic import to_digits, whole_to_digits

Formula = Callable[[Any], Any]
_SIZES = range(1, 401)
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBERS = (0.1, 0.2, 0.3, 0.15, 0.7, 1.1, 1.15, 1 / 3, 2.5, 3, 5, 20.0, 100, -0.3, -7)
_DIVISORS = ("0.1", "0.3", "0.7", "3", str(1 / 3), "-0.3", "(n * 0.1)", "(n + 0.3)", "n")


def formula(chosen: random.Random, depth: int) -> str:
    """An expression of a size `n`, which names it."""
    while True:
        text = _tree(chosen, depth)
        if "n" in text:
            return text


def _tree(chosen: random.Random, depth: int) -> str:
    if not depth or chosen.random() < 0.1:
        return chosen.choice(("n", "n", "n / 3", "n / 7", "n * 0.1", repr(chosen.choice(_NUMBERS))))
    sign = chosen.choice([*_OPERATIONS, "*", "*", "+"])
    left = _tree(chosen, depth - 1)
    right = chosen.choice(_DIVISORS) if sign in ("/", "//", "%") else _tree(chosen, depth - 1)
    return f"({left} {sign} {right})"


def computed(text: str, n: Any) -> Any:
    return eval(text, {"n": n})


@pytest.fixture
def rows() -> Iterator[torch.SymInt]:
    """A size that a trace knows."""
    env = ShapeEnv()
    fake = torch._subclasses.FakeTensorMode(shape_env=env)
    with computed_as_written():
        yield fake.from_tensor(torch.empty(9)).shape[0]  # type: ignore[misc]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(300))
def test_a_float_of_a_size_is_that_of_python(seed: int, rows: torch.SymInt) -> None:
    chosen = random.Random(seed)
    text = formula(chosen, chosen.choice((2, 3, 4)))
    found = computed(text, rows)
    if not isinstance(found, torch.SymInt | torch.SymFloat):  # n - n
        assert all(computed(text, size) == found for size in _SIZES)
        return
    evaluation = Evaluation(found.node.expr, [rows.node.expr])
    for size in _SIZES:
        assert evaluation({rows.node.expr: size}) == computed(text, size), (text, size, found)


@pytest.mark.parametrize("sign", _COMPARISONS)
@pytest.mark.parametrize("seed", range(12))
def test_a_comparison_is_that_of_python(sign: str, seed: int, rows: torch.SymInt) -> None:
    """Written in another order than the example's: 0.1 * n * 3 beside 0.3 * n."""
    chosen = random.Random(f"{sign} {seed}")
    a, b = chosen.choice(((0.1, 0.2), (0.1, 0.7), (1.1, 1.1), (0.15, 20.0))), chosen.choice((3, 0.3, 1.1))
    compare = _COMPARISONS[sign]

    def asked(n: Any) -> Any:
        return compare(n * a[0] * b + n * a[1], n * (a[0] * b + a[1]))

    question = asked(rows)
    assert isinstance(question, torch.SymBool)
    evaluation = Evaluation(question.node.expr, [rows.node.expr])
    assert [evaluation({rows.node.expr: size}) for size in _SIZES] == [asked(size) for size in _SIZES]


def _written(text: str, folder: Path) -> torch.nn.Module:
    """The module that returns what an expression of `x` and its rows `n` is, of which the source can be read."""
    source = f"import math\nimport torch\n\n\ndef function(x):\n    n = x.shape[0]\n    return {text}\n"
    path = folder / "written.py"
    path.write_text(source, "utf-8")
    names: dict[str, Any] = {"__name__": "written"}
    exec(compile(source, str(path), "exec"), names)
    return Called(names["function"]).eval()


def _is_the_same(text: str, folder: Path, rewrite: Any = "auto") -> None:
    model = _written(text, folder)
    made = to_onnx(model, (torch.ones(6, 2),), dynamic_shapes=({0: "rows"},), rewrite=rewrite)
    assert all(axis.kept for axis in made.axes)
    for size in _SIZES:
        x = torch.ones(size, 2)
        wanted = model(x)
        for got, want in zip(
            made.run({"x": x}).values(), wanted if isinstance(wanted, tuple) else [wanted], strict=True
        ):
            dtype = torch.float64 if isinstance(want, float) else None
            torch.testing.assert_close(got, torch.as_tensor(want, dtype=dtype), rtol=0, atol=0)


@pytest.mark.parametrize("rounded", ["int", "math.floor", "math.ceil", "round", "float"])
@pytest.mark.parametrize("seed", range(5))
def test_a_number_in_a_file_is_that_of_python(rounded: str, seed: int, tmp_path: Path) -> None:
    text = formula(random.Random(f"{rounded} {seed}"), 3)
    _is_the_same(f"({rounded}({text}), x.sum())", tmp_path)


CASES: dict[str, str] = {
    "a product of products": "(int(n * 0.15 * 20), x.sum())",
    "at the example": "(int(n * 1.15 * 100), x.sum())",
    "a quotient": "(n * 0.1 // 0.1, x.sum())",
    "a quotient of a size": "(n // 0.1, x.sum())",
    "a quotient by a size": "(7.0 // n, x.sum())",
    "a quotient of quotients": "((n / 3) // (1 / 3), x.sum())",
    "quotient and remainder": "(*divmod(n * 0.1, 0.1), x.sum())",
    "a remainder": "((n * 0.1) % 0.3, x.sum())",
    "a test of a product": "x * 2 if n * 0.1 * 3 > n * 0.3 else x",
    "a test of a sum": "x * 2 if n * 0.1 + 0.2 * n <= n * 0.3 else x",
    "a test of a power": "x * 2 if n * 1.1 * 1.1 > 1.21 * n else x",
    "a test of a root": "x * 2 if n ** 0.5 % 1 == 0 else x",
    "tens": "(round(n, -1), x.sum())",
    "tens of tens": "x * 2 if round(n, -1) > 20 else x",
    "hundreds of a float": "(round(n * 2.5, -2), x.sum())",
    "digits": "(round(n * 0.015, 2), x.sum())",
    "digits in a test": "x * 2 if round(n / 3, 1) > 2.3 else x",
    "rows of a share": "torch.zeros(int(n * 0.15 * 20), 2) + x.sum()",
}


@pytest.mark.parametrize("name", CASES)
def test_each_of_these_is_that_of_python(name: str, tmp_path: Path) -> None:
    _is_the_same(CASES[name], tmp_path)


_HALVES = [(2 * k + 1) / 2 / 10**digits for digits in range(4) for k in range(60)]


@pytest.mark.parametrize("digits", [*range(-4, 7), 15, 22])
def test_a_float_is_rounded_to_digits_as_python_rounds_it(digits: int) -> None:
    chosen = random.Random(digits)
    numbers = [chosen.uniform(-1, 1) * 10 ** chosen.randint(-8, 12) for _ in range(300)]
    near = [math.nextafter(half * 10.0**scale, end) for half in _HALVES for scale in (0, 3) for end in (-9e9, 0, 9e9)]
    for number in (*numbers, *near, *_HALVES, *(-half for half in _HALVES), 0.0, 1e300, math.inf):
        found = to_digits(torch.tensor(number, dtype=torch.float64), digits)
        assert float(found) == round(number, digits), (number, digits)


@pytest.mark.parametrize("digits", range(-3, 2))
def test_a_whole_number_is_rounded_to_digits_as_python_rounds_it(digits: int) -> None:
    assert all(whole_to_digits(number, digits) == round(number, digits) for number in range(-2500, 2500))


def test_without_branches_a_test_is_a_bound(tmp_path: Path) -> None:
    with pytest.raises(AxisError, match=r"rows=5"):
        _is_the_same(CASES["a test of a product"], tmp_path, rewrite=False)


# ---------------------------------------------------------------------------------------------------- proofs

PROVED: dict[str, Formula] = {
    "shares": lambda n: n * 0.1 < n * 0.2,
    "a share and more": lambda n: n * 0.3 + 1 != n * 0.3,
    "halves": lambda n: n * 0.5 <= n,
    "a sum of quotients": lambda n: n / 3 + n / 7 < n,
    "a difference": lambda n: n - n * 0.75 + 0.1 > 0,
    "a whole number": lambda n: (n // 3) * 1.5 <= (n // 3) * 1.6 + 1e-3,
}
NOT_PROVED: dict[str, Formula] = {
    "rounded otherwise": lambda n: n * 0.1 * 3 > n * 0.3,
    "alike": lambda n: n * 0.1 * 3 <= n * (0.1 * 3),
    "too near": lambda n: n * 0.3 < n * (0.1 + 0.2),
    "lost beyond 53 digits": lambda n: n * 1.0 + 1e-18 > n,
    "a remainder": lambda n: (n * 0.3) % 0.1 < 0.05,
    "a bound": lambda n: n * 0.1 < 10,
}


def _guard(asked: Formula, rows: torch.SymInt) -> tuple[sympy.Basic, dict[sympy.Symbol, Range]]:
    return asked(rows).node.expr, {rows.node.expr: Range(1)}


@pytest.mark.parametrize("name", PROVED)
def test_what_is_far_apart_is_proved(name: str, rows: torch.SymInt) -> None:
    assert decide(*_guard(PROVED[name], rows)).answer == Answer.PROVED


@pytest.mark.parametrize("name", NOT_PROVED)
def test_what_rounding_may_decide_is_not(name: str, rows: torch.SymInt) -> None:
    assert not holds_for_floats(*_guard(NOT_PROVED[name], rows))


@pytest.mark.parametrize("seed", range(200))
def test_what_is_proved_holds(seed: int, rows: torch.SymInt) -> None:
    chosen = random.Random(seed)
    factors = [chosen.choice((0.1, 0.3, 0.30000000000000004, 1 / 3, 0.7, 1.1, 3.0)) for _ in range(4)]
    added = chosen.choice((0.0, 1e-17, 1e-9, 0.5))
    compare = _COMPARISONS[chosen.choice([*_COMPARISONS])]

    def asked(n: Any) -> Any:
        return compare(n * factors[0] * factors[1] + n / 7 + added, n * factors[2] + n * factors[3])

    question = asked(rows)
    if holds_for_floats(question.node.expr, {rows.node.expr: Range(1)}):
        assert all(asked(size) for size in (*_SIZES, *(10**k + 7 for k in range(3, 14))))
