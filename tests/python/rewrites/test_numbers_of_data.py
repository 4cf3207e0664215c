"""Numbers that Python reads from tensors, `match` over them, and what a loop leaves behind on one way out alone."""

from __future__ import annotations

import math
from math import floor, sqrt
from typing import NamedTuple

import pytest
import torch
from control_flow_program import SIGNS, Programs, check
from torch.nn import Module

from exportguard import RewriteError, to_onnx

RIGHT = Programs()


@RIGHT.add()
class ItemThatIsTested(Module):
    def forward(self, x):
        value = x.sum().item()
        if value > 0:
            factor = 1
        elif value < -2:
            factor = 2
        else:
            factor = 3
        return x * factor


@RIGHT.add()
class ItemInALoop(Module):
    def forward(self, x):
        best, place = -1e9, 0
        for i in range(x.shape[0]):
            value = x[i].sum().item()
            if value > best:
                best, place = value, i
        return x[place], torch.tensor(best)


@RIGHT.add()
class RoundedNumbers(Module):
    def forward(self, x):
        tens, top, low = round(float(x.mean()) * 10), math.floor(x.max().item()), math.ceil(float(x.min()))
        return x * tens + top - low + round(float(x.mean()), 1)


@RIGHT.add()
class FunctionsOfMath(Module):
    def forward(self, x):
        norm = sqrt(float(x.pow(2).sum())) + floor(float(x.abs().max()))
        return x / norm + math.exp(-float(x.abs().mean())) * math.atan2(float(x[0, 0]), 2.0)


@RIGHT.add()
class QuotientAndRemainder(Module):
    def forward(self, x):
        quotient, remainder = divmod(int(x.sum() * 3), 4)
        return x * quotient + remainder


@RIGHT.add()
class MatchOfANumber(Module):
    def forward(self, x):
        y = x
        match int(x.sum()):
            case 0 | 2:
                y = y + 1
            case n if n > 5:
                y = y * n
            case -1:
                return y * 7
            case _:
                y = y - 1
        return y


@RIGHT.add()
class MatchOfText(Module):
    mode = "double"

    def forward(self, x):
        match self.mode:
            case "double":
                y = x * 2
            case _:
                raise ValueError(self.mode)
        return y if y.sum() > 1 else -y


@RIGHT.add()
class ListThatGrowsInPlace(Module):
    def forward(self, x):
        rows, sums = [], []
        for row in x:
            rows += [row, row * 2]
            sums += [row.sum()]
        return torch.stack(rows), torch.stack(sums)


@RIGHT.add()
class FoundOrNot(Module):
    def forward(self, x):
        for i, row in enumerate(x):
            if row.sum() > 2:
                place, found = i, row
                break
        else:
            place, found = -1, x[0]
        return found * 2, place


class Two(NamedTuple):
    """A pair with names."""

    first: torch.Tensor
    second: torch.Tensor


@RIGHT.add()
class NamedTupleInALoop(Module):
    def forward(self, x):
        two = Two(torch.zeros(4), torch.ones(4))
        for row in x:
            two = Two(two.second, two.first + row) if row.sum() > 1 else two._replace(first=row)
        return two.first, two.second


@RIGHT.add()
class SlicesInAComprehension(Module):
    def forward(self, x):
        lengths = (x[:, 0] * 0).long() + 2
        return torch.stack([x[i, :n].amax(0) for i, n in enumerate(lengths)])


@RIGHT.add()
class ListThatMayBeEmpty(Module):
    def forward(self, x):
        kept = [row for row in x if row.sum() > 2]
        if not kept:
            return torch.zeros(4)
        return torch.stack(kept).mean(0)


@RIGHT.add()
class FromAGenerator(Module):
    @staticmethod
    def _positive(x):
        for row in x:
            if row.sum() > 0:
                yield row

    def forward(self, x):
        return sum(self._positive(x), torch.zeros(4))


@pytest.mark.parametrize("program", RIGHT, ids=lambda cls: cls.__name__)
def test_numbers_of_tensor_data_compute_as_pythons(program: type[Module]) -> None:
    check(program)


class RowsChangedInPlace(Module):
    def forward(self, x):
        y = x.clone()
        for row in y:
            row.clamp_(min=0)
        return y


class KnownOnOnePath(Module):
    def forward(self, x):
        is_positive = x.sum() > 0
        if is_positive:
            y = x * 2
        z = x + 1
        if is_positive:
            z = z + y
        return z


def test_what_is_refused_is_told_in_words_of_the_model() -> None:
    with pytest.raises(RewriteError, match="has a value on one path"):
        to_onnx(KnownOnOnePath(), SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite="auto")


def test_a_loop_that_changes_its_rows_in_place_is_refused() -> None:
    with pytest.raises(RewriteError, match="changes the row that it is at in place"):
        to_onnx(RowsChangedInPlace(), SIGNS[0], dynamic_shapes=({0: "rows"},), rewrite=RowsChangedInPlace)
