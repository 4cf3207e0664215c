"""Iterators without an end beside what ends, and left by tensor data; `iter(x)`, `zip_longest`, and keys of `max`."""

from __future__ import annotations

import itertools

import pytest
import torch
from control_flow_program import check, up
from random_programs import model_of

from exportguard import AxisError, RewriteError, to_onnx
from exportguard.rewrites import runtime_loops
from exportguard.rewrites.drawn import may_have_no_end

LONG = ((up(4),), (up(1),), (up(3, -1),), (up(6, 4),), (up(9, 0.3),))

#: What has no end, with what makes a factor of its element `e`.
ENDLESS = {
    "count": ("itertools.count()", "e"),
    "count from": ("itertools.count(start=2, step=3)", "e"),
    "count of floats": ("itertools.count(0.5, 0.25)", "e"),
    "count of data": ("itertools.count(int(x.abs().sum()))", "e"),
    "cycle": ("itertools.cycle([1.0, -2.0, 0.5])", "e"),
    "cycle of tensors": ("itertools.cycle([x.sum(0), x.sum(0) * 2])", "e"),
    "cycle of functions": ("itertools.cycle([torch.relu, torch.neg])", "e(x.sum(0))"),
    "cycle of rows": ("itertools.cycle(x)", "e"),
    "repeat": ("itertools.repeat(2.0)", "e"),
    "mapped": ("map(lambda k: k * k, itertools.count(1))", "e"),
    "several": ("zip(itertools.count(), itertools.cycle([1, 2]))", "(e[0] + e[1])"),
    "numbered": ("enumerate(itertools.repeat(3))", "sum(e)"),
}

#: What goes through an endless iterator `{e}`; the step has a row and an element.
HEADS = {
    "behind": "for row, e in zip(x, {e}):",
    "before": "for e, row in zip({e}, x):",
    "numbered": "for k, (row, e) in enumerate(zip(x, {e})):",
    "beside a filter": "for e, row in zip({e}, filter(lambda r: r.sum() > 1, x)):",
    "between": "for row, e, other in zip(x, {e}, x * 2):",
}

_PROGRAM = """
import itertools
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        total = torch.zeros(4)
        {head}
            total = total * 0.5 + row * {factor}
        return total
"""


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("head", HEADS)
def test_what_has_no_end_beside_what_has_one(name: str, head: str) -> None:
    if name == "mapped" and head in ("before", "beside a filter", "between"):
        head = "behind"  # what a function makes is refused in front of what ends
    endless, factor = ENDLESS[name]
    source = _PROGRAM.format(head=HEADS[head].format(e=endless), factor=factor)
    cls = type(model_of(source, f"/endless/{name}{head}.py"))
    cls.cases = LONG
    check(cls)


LEFT = {
    "count": "for k in itertools.count(1):\n            if x.norm() < k: break",
    "cycle": "for k in itertools.cycle([2, 3]):\n            if x.norm() < 1: break",
    "generator": "for k in (2 * i for i in itertools.count(1)):\n            if x.norm() < 1: break",
    "accumulated": "for k in itertools.accumulate(itertools.count(1)):\n            if x.norm() < k: break",
    "by Python": "for k in itertools.count(1):\n            if k > 3: break",
    "a slice": "for k in itertools.islice(itertools.count(2), 5):\n            if x.norm() < 1: break",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_has_no_end_left_by_a_break(name: str) -> None:
    body = f"        {LEFT[name]}\n            x = x * 0.5\n        return x, torch.as_tensor(k)\n"
    check_body(body, f"/endless/left {name}.py")


def check_body(body: str, file: str) -> None:
    source = f"import itertools\nimport torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n{body}"
    cls = type(model_of(source, file))
    cls.cases = LONG
    check(cls)


RETURNED = {
    "count": "itertools.count(1)",
    "repeat": "itertools.repeat(2)",
    "numbered": "(k + 1 for k, _ in enumerate(itertools.count()))",
    "mapped": "map(lambda k: k + 1, itertools.count())",
    "several": "(a + b for a, b in zip(itertools.count(), itertools.repeat(1)))",
    "accumulated": "itertools.accumulate(itertools.count(1))",
}


@pytest.mark.parametrize("others", ["", "            if x.abs().sum() > 50: return -x\n"], ids=["one", "two"])
@pytest.mark.parametrize("name", RETURNED)
def test_what_has_no_end_left_by_a_return(name: str, others: str) -> None:
    head = f"        for k in {RETURNED[name]}:\n            x = x * 0.5\n"
    body = f"{head}{others}            if x.norm() < k: return x * 3\n"
    check_body(body, f"/endless/returned {name}{len(others)}.py")


PYTHONS = {
    "count": "itertools.count()",
    "cycle": "itertools.cycle([1, 2])",
    "repeat": "itertools.repeat(2)",
    "enumerated": "enumerate(itertools.count())",
    "between": "zip(itertools.count(), itertools.cycle([1]))",
    "mapped": "map(str, itertools.count())",
    "filtered": "filter(None, itertools.repeat(1))",
    "chained": "itertools.chain(itertools.repeat(1, 3), itertools.count())",
    "accumulated": "itertools.accumulate(itertools.repeat(1))",
}
ENDING = {
    "times": "itertools.repeat(2, 5)",
    "slice": "itertools.islice(itertools.count(), 5)",
    "between": "zip([1, 2], itertools.count())",
    "beside": "map(max, itertools.count(), [1, 2])",
    "enumerated": "enumerate([1, 2])",
    "chained": "itertools.chain([1], (2, 3))",
    "taken": "itertools.takewhile(bool, itertools.repeat(0))",
    "list": "[1, 2]",
    "chosen": "itertools.compress(itertools.count(), [1, 0])",
    "empty": "zip()",
}


@pytest.mark.parametrize(
    ("source", "has_no_end"), [*((s, True) for s in PYTHONS.values()), *((s, False) for s in ENDING.values())]
)
def test_which_iterators_of_pythons_have_no_end(source: str, has_no_end: bool) -> None:
    assert may_have_no_end(eval(source)) is has_no_end


def numbers():
    return itertools.count()


class OfNumbers(torch.nn.Module):
    def forward(self, x):
        for _ in numbers():
            x = x / 2
            if x.norm() < 1:
                return x


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a part of the program: thirty of them take their time."""
    monkeypatch.setattr(runtime_loops, "_STEPS", 6)


@pytest.mark.usefixtures("few_steps")
def test_a_return_from_an_iterator_of_pythons_is_refused_and_does_not_hang() -> None:
    with pytest.raises(RewriteError, match=r"goes through a count, and only tensor data ends it"):
        to_onnx(OfNumbers().eval(), (up(3),), rewrite="auto")


class Called(torch.nn.Module):
    def forward(self, x):
        for _ in iter(int, 1):
            if x.norm() < 1:
                break
            x = x / 2
        return x


class OfAGenerator(torch.nn.Module):
    def powers(self):
        k = 1
        while True:
            yield k
            k *= 2

    def forward(self, x):
        for k in self.powers():
            if x.norm() < k:
                break
        return x * k


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("cls", [Called, OfAGenerator])
def test_a_loop_that_tensor_data_alone_ends_is_refused_and_does_not_hang(cls: type[torch.nn.Module]) -> None:
    with pytest.raises(RewriteError, match=r"line \d+ of .*only tensor data ends it.*write it as `while`"):
        to_onnx(cls(), (up(4),), dynamic_shapes=({0: "rows"},), rewrite="auto")


def _right_at_all_sizes(model: torch.nn.Module, sizes: tuple[int, ...] = (1, 2, 3, 5, 8)) -> None:
    onnx = to_onnx(model, (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows, scale in itertools.product(sizes, (1.0, -2.0)):
        found = onnx.run({"x": up(rows, scale)}).values()
        for a, b in zip(found, model(up(rows, scale)), strict=True):
            torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), check_dtype=False)


class TakesTheFirst(torch.nn.Module):
    def forward(self, x):
        rows = iter(x)
        first = next(rows)
        total = first
        for row in rows:
            total = total * 0.5 + row
        return first, total


class TakesTwo(torch.nn.Module):
    def forward(self, x):
        rows = iter(x)
        first = next(rows, torch.zeros(4))
        second = next(rows, first * 3)
        return first, second, sum((row.sum() for row in rows), torch.zeros(()))


class SeesWrites(torch.nn.Module):
    def forward(self, x):
        y = x.clone()
        rows = iter(y)
        y += 1
        total = torch.zeros(4)
        for row in rows:
            total = total * 0.5 + row
        return (total,)


class FillsUp(torch.nn.Module):
    def forward(self, x):
        total = torch.zeros(4)
        for a, b in itertools.zip_longest(x, x[1:], fillvalue=torch.ones(4)):
            total = total * 0.5 + a * b
        numbers = torch.zeros(())
        for a, b, c in itertools.zip_longest(x.sum(1).tolist(), x[::2, 0].tolist(), range(len(x)), fillvalue=2.0):
            numbers = numbers * 0.5 + a * b + c
        return total, numbers


class ByAKey(torch.nn.Module):
    def forward(self, x):
        best = max(range(len(x)), key=lambda i: x[i].norm())
        number, row = min(enumerate(x), key=lambda pair: pair[1].sum())
        order = sorted(range(len(x)), key=lambda i: x[i, 0].item(), reverse=True)
        a, b = max(zip(x, x.flip(0), strict=False), key=lambda pair: pair[0].dot(pair[1]))
        return best, number, row, torch.stack([x[i] for i in order]), a + b, x * sum(range(len(x)))


@pytest.mark.parametrize("cls", [TakesTheFirst, TakesTwo, SeesWrites, FillsUp, ByAKey])
def test_it_is_right_at_all_sizes(cls: type[torch.nn.Module]) -> None:
    _right_at_all_sizes(cls())


class GoesOn(torch.nn.Module):
    def forward(self, x):
        numbers = itertools.count()
        total = torch.zeros(4)
        for k, row in zip(numbers, x, strict=False):
            total = total + row * k
        return total * next(numbers)


class FunctionInFront(torch.nn.Module):
    def forward(self, x):
        calls = torch.zeros(())

        def counted(k):
            nonlocal calls
            calls = calls + 1
            return k

        total = torch.zeros(4)
        for k, row in zip(map(counted, itertools.count()), x, strict=False):
            total = total + row * k
        return total, calls


class NextInALoop(torch.nn.Module):
    def forward(self, x):
        rows = iter(x)
        total = torch.zeros(4)
        for row in rows:
            total = total + row * next(rows, row)
        return total


class FillsUpWithNone(torch.nn.Module):
    def forward(self, x):
        total = torch.zeros(())
        for a, b in itertools.zip_longest(x, x[1:]):
            if b is None:
                break
            total = total + a.dot(b)
        return total


class ChangesTheList(torch.nn.Module):
    def forward(self, x):
        factors = [1.0, 2.0]
        again = itertools.cycle(factors)
        factors.append(3.0)
        total = torch.zeros(4)
        for row, factor in zip(x, again, strict=False):
            total = total + row * factor
        return total


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (GoesOn, "an iterator is gone through again"),
        (FunctionInFront, "put the endless one last"),
        (NextInALoop, r"next\(…\) of an iterator over a symbolic length"),
        (FillsUpWithNone, "a float32 tensor of shape .* and None"),
        (ChangesTheList, "a list is changed while itertools.cycle goes through it"),
    ],
)
def test_what_is_not_known_is_refused(cls: type[torch.nn.Module], reason: str) -> None:
    with pytest.raises((RewriteError, AxisError), match=reason):
        to_onnx(cls(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
