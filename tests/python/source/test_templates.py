"""Code with holes, found on the syntax tree whatever its layout and the names of its variables."""

from __future__ import annotations

import ast

import pytest

from exportguard.source.errors import RewriteError
from exportguard.source.templates import Template, exchange

LOOP = """
for i in range($n):
    state = $a[:, i] * state + $b[:, i]
    $out.append(state)
"""


def statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


@pytest.mark.parametrize(
    ("template", "code", "holes"),
    [
        ("$x[:, -$n:]", "self.keys[:,\n -( a - 1 ):]", {"x": "self.keys", "n": "a - 1"}),
        ("$x + $x", "f(a) + f( a )", {"x": "f(a)"}),
        ("$x * 2", "2 * y", {"x": "y"}),
        ("$a == $b & 1", "1 & c == d", {"a": "d", "b": "c"}),
        ("$n > 0", "0 < length", {"n": "length"}),
        ("$f($x, dim=$d, keepdim=True)", "sum(y, keepdim=True, dim=-1)", {"f": "sum", "x": "y", "d": "-1"}),
        ("$x if $c else None", "a if b else None", {"x": "a", "c": "b"}),
        ("torch.stack($x)", "np.stack(x)", None),
        ("$x + $x", "a + b", None),
        ("$x - 1", "1 - x", None),
        ("f($x)", "f(a, b)", None),
        ("f($x)", "f(*a)", {"x": "*a"}),
        ("[$x]", "['a']", {"x": "'a'"}),
        ("f($x, ..., dim=$d)", "f(a, b, c, out=y, dim=1)", {"x": "a", "d": "1"}),
        ("f($x, ...)", "f(a)", {"x": "a"}),
        ("f(...)", "f()", {}),
        ("f($x, ...)", "f(out=y)", None),
        ("f(..., dim=$d)", "f(a, 1)", None),
        ("f(a, ...)", "g(a, b)", None),
        ("1", "1.0", None),
        ("1", "True", None),
    ],
)
def test_an_expression(template: str, code: str, holes: dict[str, str] | None) -> None:
    match = Template(template).match(ast.parse(code, mode="eval").body)
    assert (None if match is None else {hole: match.text(hole) for hole in match.holes}) == holes


def test_a_variable_of_the_template_may_have_any_name() -> None:
    code = "for index in range(seq_len):\n    h = A[:, index] * h + (B[:, index])  # one\n    found.append(h)"
    match = Template(LOOP).match(*statements(code))
    assert match is not None
    assert match.names == {"i": "index", "state": "h"}
    assert {hole: match.text(hole) for hole in match.holes} == {"n": "seq_len", "a": "A", "b": "B", "out": "found"}


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(n):\n    h = A[:, i] * h + B[:, j]\n    found.append(h)",
        "for i in range(n):\n    i = A[:, i] * i + B[:, i]\n    found.append(i)",
        "for i in range(n):\n    h = A[:, i] * h + B[:, i]\n    found.append(g)",
        "for i in range(n):\n    h = A[:, i] * h + B[:, i]\n    found.append(h)\n    print(h)",
    ],
    ids=["another index", "one name for two", "another value", "more statements"],
)
def test_another_loop_is_no_match(code: str) -> None:
    assert Template(LOOP).match(*statements(code)) is None


def test_statements_are_exchanged_where_they_follow_each_other() -> None:
    rule = exchange("Swaps", ("held = $a\n$a = $b\n$b = held", "$a, $b = $b, $a"), ("len($x) > 0", "bool($x)"))
    code = "def f(x, y):\n    if len(g(len(x) > 0)) > 0:\n        t = x\n        x = y\n        y = t\n    return x"
    tree = rule().visit(ast.parse(code))
    assert ast.unparse(tree) == "def f(x, y):\n    if bool(g(bool(x))):\n        x, y = (y, x)\n    return x"
    swap = tree.body[0].body[0].body[0]
    assert swap.lineno == 3
    compile(tree, "<test>", "exec")


def test_a_hole_without_a_value_is_refused() -> None:
    with pytest.raises(RewriteError, match=r"no value for \$y"):
        exchange("Wrong", ("f($x)", "g($y)"))().visit(ast.parse("f(1)"))
