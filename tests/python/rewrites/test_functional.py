"""`map`, `filter`, `reduce` and `itertools` over rows of which only the run knows how many there are."""

from __future__ import annotations

import functools
import itertools
from functools import reduce

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

from exportguard import RewriteError, torch_export_rewrite

PROGRAMS = Programs()
LONG = ((up(4),), (up(3, -1),), (up(6, 4),))  # the rest of two rows is a single one, which torch makes a constant


@PROGRAMS.add()
class Maps(Module):
    def forward(self, x):
        rows = list(map(lambda row: row * 2 if row.sum() > 1 else row, x))  # noqa: C417
        pairs = map(lambda a, b: a * b.sum(), x, x * 3)
        held = tuple(row + 1 for row in x)
        return torch.stack(rows), sum(pairs), torch.stack(held), len(held)


@PROGRAMS.add()
class PutsRowsIntoALargerList(Module):
    def forward(self, x):
        rows = [row * 2 for row in x]
        return torch.stack([x.sum(0), *rows, *x]), torch.cat([*rows, x[0]]), [*range(3)][1]


@PROGRAMS.add(LONG)
class TakesAndDropsWhile(Module):
    def forward(self, x):
        first, rest = x.sum(0), x.sum(0)
        for row in itertools.takewhile(lambda row: row.sum() < 3, x):
            first = first * 0.5 + row
        for row in itertools.dropwhile(lambda row: row.sum() < 3, x):
            rest = rest * 0.5 - row
        some = [x[0], x[1] * 9, x[2]]
        small = sum(itertools.takewhile(lambda row: row.sum() < 2, some), x[0])
        return first, rest, small, next(itertools.takewhile(lambda n: n < 2, (1, 2)))


@PROGRAMS.add(LONG)
class LeavesOutWhatIsTrue(Module):
    def forward(self, x):
        kept = x.sum(0)
        for row in itertools.filterfalse(lambda row: row.sum() > 2, x):
            kept = kept * 0.5 + row
        products = list(itertools.starmap(lambda a, b: a * b, zip(x, x * 2, strict=True)))
        return kept, torch.stack(products)


@PROGRAMS.add()
class SortsInPlace(Module):
    def forward(self, x):
        held = [x.sum(0), x[0] * 2, x[-1]]
        held.sort(key=lambda row: row.sum(), reverse=True)
        rows = [row * 2 for row in x]
        rows.sort(key=lambda row: float(row[0]))
        numbers = [3, 1, 2]
        numbers.sort()
        return held[0] - held[-1], torch.stack(rows), numbers[0]


@PROGRAMS.add()
class TakesPairsApart(Module):
    def forward(self, x):
        pairs = []
        for row in x:
            pairs.append((row * 2, row.sum()))
        rows, sums = zip(*pairs, strict=True)
        first, second = zip(*[(x[0], 1), (x[-1], 2)])  # noqa: B905
        return torch.stack(rows), torch.stack(sums), first[0] - first[1], second[1]


@PROGRAMS.add()
class Filters(Module):
    def forward(self, x):
        kept = [x.sum(0), *[]]
        kept = kept + list(filter(lambda row: row.sum() > 1, x))
        total = torch.zeros(())
        for value in filter(None, x[:, 0].tolist()):
            total = total + value
        return torch.stack(kept).sum(0), total


@PROGRAMS.add()
class IsComputedWhenItIsGoneThrough(Module):
    def forward(self, x):
        scale = x.sum()
        rows = map(lambda row: row * scale, x)  # noqa: C417
        scale = scale + 1
        return sum(rows)


@PROGRAMS.add(LONG)
class Reduces(Module):
    def forward(self, x):
        first = functools.reduce(lambda a, b: a * 0.5 + b, x, torch.zeros(4))
        return first, reduce(torch.maximum, [row * 2 for row in x])


@PROGRAMS.add(LONG)
class Accumulates(Module):
    def forward(self, x):
        sums = torch.stack(list(itertools.accumulate(x)))
        return sums, torch.stack(list(itertools.accumulate(x, lambda a, b: a * 0.5 + b, initial=x.sum(0))))


@PROGRAMS.add(LONG)
class Chains(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in itertools.chain(x, [x.sum(0)], map(torch.tanh, x)):
            total = total * 0.5 + row
        for row, after in itertools.pairwise(x):
            total = total + row * after
        return total


@PROGRAMS.add()
class Products(Module):
    def forward(self, x):
        total = torch.zeros(())
        for i, j in itertools.product(range(x.shape[0]), range(4)):
            total = total * 0.9 + x[i, j] * (i + 1)
        for row, scale in itertools.product(x, (1.0, 2.0)):
            total = total * 0.9 + row.sum() * scale
        for a, b in itertools.combinations(x, 2):
            total = total * 0.9 + (a * b).sum()
        return total


@PROGRAMS.add(LONG)
class TheBestByAKey(Module):
    def forward(self, x):
        v = x.sum(0)
        widest = max([v[:2], v[2:], v[1:3]], key=lambda part: part.sum())
        column = min(range(4), key=lambda k: x[:, k].sum())
        return widest, x[:, column], column, min(x, key=lambda row: row.abs().sum())


@PROGRAMS.add()
class SortedByAKey(Module):
    def forward(self, x):
        v = x.sum(0)
        parts = sorted([v[:2], v[2:], v[1:3]], key=lambda part: part.sum())
        order = sorted(range(4), key=lambda k: v[k] > 0, reverse=True)
        names = sorted(["a", "b"], key=lambda name: name == "a")
        rows = torch.stack(sorted(x, key=lambda row: row[1], reverse=True))
        return torch.cat(parts), sorted([v[0], v[1], x.sum()]), rows, len(names), torch.tensor(order)


@PROGRAMS.add()
class PairsOfNumbers(Module):
    def forward(self, x):
        total = torch.zeros(())
        for a, b in (x[:, :2] * 10).long().tolist():
            total = total * 0.5 + a * b
        return total


def named_as_built_in() -> type[Module]:
    def map(function, rows):
        return function(rows) * 100

    class CallsAnother(Module):
        def forward(self, x):
            halved = (lambda round: round(x.sum() / 2))(lambda value: value + 0.25)
            rows = [row * 2 for row in x]
            return map(torch.sum, x), halved, torch.stack(rows)

    return CallsAnother


PROGRAMS.add()(named_as_built_in())


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_functions_over_rows_are_right(cls: type[Module]) -> None:
    check(cls)


class Again(Module):
    def forward(self, x):
        rows = map(torch.tanh, x)
        first = sum(rows)
        return first + sum(rows)


class InABranch(Module):
    def forward(self, x):
        rows = map(torch.tanh, x)
        if x.sum() > 0:
            x = x + sum(rows)
        return x


class Next(Module):
    def forward(self, x):
        return next(map(torch.tanh, x))


@pytest.mark.parametrize(
    ("cls", "text"),
    [(Again, "is gone through again"), (InABranch, "made outside of this branch or loop"), (Next, "next")],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_an_iterator_is_gone_through_once_and_where_it_is_made(cls: type[Module], text: str) -> None:
    with torch_export_rewrite(cls), pytest.raises(RewriteError, match=text):
        torch.export.export(cls(), (up(3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)
