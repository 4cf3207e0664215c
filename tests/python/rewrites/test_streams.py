"""What Python computes element by element: what makes one and the loop over it see what the other one changed."""

from __future__ import annotations

import itertools

import pytest
import torch
from control_flow_program import Programs, check, up
from random_programs import model_of
from torch.nn import Module

from exportguard import RewriteError, to_onnx, torch_export_rewrite

LONG = ((up(4),), (up(3, -1),), (up(6, 4),))

#: What makes elements of `x` with a function `f` of one row, and a test `t` of one row.
MAKERS = {
    "map": "map(f, x)",
    "map of two": "map(lambda a, b: f(a) + b, x, x * 2)",
    "starmap": "itertools.starmap(lambda a, b: f(a) * b, zip(x, x * 2))",
    "filter": "filter(t, x)",
    "filterfalse": "itertools.filterfalse(t, x)",
    "takewhile": "itertools.takewhile(lambda r: not t(r), x)",
    "dropwhile": "itertools.dropwhile(lambda r: not t(r), x)",
    "accumulate": "itertools.accumulate(x, lambda a, b: f(a) + b)",
    "accumulate from": "itertools.accumulate(x, lambda a, b: f(a) + b, initial=x[0])",
    "chain": "itertools.chain(map(f, x), [x.sum(0)], filter(t, x))",
    "islice": "itertools.islice(map(f, x), 1, 3)",
    "pairs": "(a * b for a, b in itertools.pairwise(map(f, x)))",
    "enumerate": "(r * k for k, r in enumerate(map(f, x), 1))",
    "enumerate filtered": "(r * k for k, r in enumerate(filter(t, x), 1))",
    "zip": "(a * b.sum() for a, b in zip(map(f, x), x))",
    "zip behind": "(a * b.sum() for a, b in zip(x[:2], filter(t, x)))",
    "zip before": "(a * b.sum() for a, b in zip(filter(t, x), x[:2]))",
    "expression": "(f(r) for r in x)",
    "filtered expression": "(f(r) for r in x if t(r))",
    "generator": "made(x)",
    "generator of generators": "twice(made(x))",
}

_PROGRAM = """
import itertools
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        scale = torch.ones(())
        calls = torch.zeros(())

        def f(row):
            nonlocal calls
            calls = calls + 1
            return row * scale

        def t(row):
            nonlocal calls
            calls = calls + 1
            return row.sum() * scale + calls * 0.25 > 1

        def made(rows):
            for row in rows:
                if t(row):
                    yield f(row)
                yield row - scale

        def twice(rows):
            yield from rows
            for row in x:
                yield f(row)

        total = torch.zeros(4)
        for row in {maker}:
            {leave}
            total = total * 0.5 + row * calls
            scale = scale * 0.75 + row.sum() * 0.1
        return total, scale, calls
"""

LEAVES = {"": "pass", " and is left": "if row.sum() > 3: break"}


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("maker", MAKERS)
def test_the_steps_of_what_makes_elements_and_of_the_loop_follow_each_other(maker: str, leave: str) -> None:
    source = _PROGRAM.format(maker=MAKERS[maker], leave=LEAVES[leave])
    cls = type(model_of(source, f"/streams/{maker}{leave}.py"))
    cls.cases = LONG
    check(cls)


PROGRAMS = Programs()


@PROGRAMS.add(LONG)
class WindowsOfAMethod(Module):
    def windows(self, x, size, *, step=1):
        for start in range(0, x.shape[0] - size + 1, step):
            yield x[start : start + size]

    def forward(self, x):
        return torch.stack([window.mean(0) for window in self.windows(x, 2)])


@PROGRAMS.add(LONG)
class AtOnce(Module):
    def rows(self, x):
        for row in x:
            yield row * 2

    def forward(self, x):
        listed = list(self.rows(x))
        best = max(self.rows(x), key=lambda row: row.sum())
        found = any(row.sum() > 3 for row in self.rows(x))
        return torch.stack(listed), sum(self.rows(x)), best, found, torch.stack(tuple(self.rows(x)))


@PROGRAMS.add(LONG)
class WritesWhatTheGeneratorReads(Module):
    def pairs(self, y):
        for i in range(1, y.shape[0]):
            yield i, y[i - 1] + y[i]

    def forward(self, x):
        y = x.clone()
        for i, s in self.pairs(y):
            y[i] = s * 0.5
        return y


@PROGRAMS.add(LONG)
class CountsInTheGenerator(Module):
    def __init__(self):
        super().__init__()
        self.made = 0

    def sums(self, x):
        for row in x:
            self.made += 1
            yield row.sum()

    def forward(self, x):
        self.made = 0
        total = torch.zeros(())
        for s in self.sums(x):
            if s > 2:
                break
            total = total + s
        return total, torch.tensor(self.made)


@PROGRAMS.add(LONG)
class Numbered(Module):
    def kept(self, x):
        for row in x:
            if row.sum() > 1:
                yield row

    def scaled(self, rows):
        for k, row in enumerate(rows):
            yield row * (k + 1)

    def forward(self, x):
        total = torch.zeros(4)
        for k, row in enumerate(self.scaled(self.kept(x)), 2):
            total = total * 0.9 + row * k
        return total


@PROGRAMS.add(LONG)
class ReturnsEarly(Module):
    def until(self, x):
        for row in x:
            if row.sum() > 3:
                return
            yield row
        yield x.sum(0)

    def forward(self, x):
        total = torch.zeros(4)
        for row in self.until(x):
            total = total * 0.5 + row
        return total


@PROGRAMS.add(LONG)
class TakesTheFirstByPython(Module):
    def three(self, x):
        yield x[0]
        yield x[1] * 2
        yield x[2]

    def forward(self, x):
        rows = self.three(x)
        first = next(rows)
        for row in rows:
            first = first * 0.5 + row
        return first


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_generators_mean_what_they_mean_in_python(cls: type[Module]) -> None:
    check(cls)


def test_a_generator_and_what_goes_through_it_are_rewritten_together() -> None:
    onnx = to_onnx(Numbered(), LONG[0], dynamic_shapes=({0: "n"},), rewrite="auto")
    for (x,) in LONG:
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), Numbered()(x))


class Sends(Module):
    def rows(self, x):
        for row in x:
            scale = yield row
            print(scale)

    def forward(self, x):
        return sum(self.rows(x))


class WithinABlock(Module):
    def rows(self, x):
        with torch.no_grad():
            yield from x

    def forward(self, x):
        return sum(self.rows(x))


@pytest.mark.parametrize(
    ("cls", "text"), [(Sends, "takes what is sent"), (WithinABlock, "yields within a `with`")], ids=["sends", "block"]
)
def test_a_generator_that_cannot_call_its_steps_is_refused(cls: type[Module], text: str) -> None:
    with pytest.raises(RewriteError, match=text):
        torch_export_rewrite(cls.rows).__enter__()


class InALoop(Module):
    def forward(self, x):
        rows = map(torch.tanh, x)
        total = torch.zeros(4)
        for row in x:
            for other in itertools.islice(rows, 2):
                total = total + row * other
        return total


def test_an_iterator_from_outside_of_a_loop_is_refused_in_it() -> None:
    with torch_export_rewrite(InALoop), pytest.raises(RewriteError, match="made outside of this branch or loop"):
        torch.export.export(InALoop(), (up(3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)
