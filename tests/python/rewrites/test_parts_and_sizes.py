"""Loops over the parts of a split, lists as long as a size, and bodies that read a size which no operand has."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, up
from torch.nn import Module
from torch.utils import _pytree as pytree

from exportguard import RewriteError, to_onnx

LONG = ((up(4),), (up(3, -1),), (up(6, 4),), (up(1),))

RIGHT = Programs()


@RIGHT.add(LONG)
class PartsOfAList(Module):
    def forward(self, x):
        rows = []
        for part in x.split(2):
            rows.append(part.mean(0))
        return torch.stack(rows)


@RIGHT.add(LONG)
class NumberedParts(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for k, part in enumerate(torch.split(x, 3)):
            total = total * 0.5 + part.sum(0) * (k + 1)
        return total, torch.stack([pair.amax(0) for pair in x.split(2, dim=0)])


@RIGHT.add(LONG)
class PartsOfAnotherAxis(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for part in x.t().split(3, 1):
            if part.sum() > 5:
                break
            total = total * 0.5 + part.sum(1)
        for half in torch.split(x, 2, dim=1):  # whose number Python knows
            total = total + half.sum()
        return total


@RIGHT.add(LONG)
class WordsOfAText(Module):
    def forward(self, x):
        words = "a b c"
        for k, _ in enumerate(words.split(" ")):
            x = x + 1 if x.sum() > k else x * 2
        return x


@RIGHT.add(LONG)
class NumbersOfASize(Module):
    def forward(self, x):
        n = x.shape[0]
        weights = [2] * n
        total = torch.zeros(4)
        for i in range(n):
            if x[i].sum() > 0:
                total = total + x[i] * weights[i]
        return total, torch.tensor(weights)


@RIGHT.add(LONG)
class SizeThatNoOperandHas(Module):
    def forward(self, x):
        n = x.shape[0]
        rows = [torch.zeros(n + 1) + k for k in range(n + 1)]
        return torch.stack(rows) if x.sum() > 0 else torch.stack(rows) + 1


@pytest.mark.parametrize("program", RIGHT, ids=lambda cls: cls.__name__)
def test_parts_and_sizes_are_those_of_python(program: type[Module]) -> None:
    onnx = to_onnx(program(), LONG[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
    for (x,) in LONG:
        for found, wanted in zip(onnx.run({"x": x}).values(), pytree.tree_leaves(program()(x)), strict=True):
            torch.testing.assert_close(found, torch.as_tensor(wanted))


class AddsParts(Module):
    def forward(self, x):
        total = torch.ones(4)
        for k, part in enumerate(x.split(2)):
            total = total * 0.5 + part.sum(0) * (k + 1)
        return total


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_a_split_of_nothing_has_one_part(rows: int) -> None:
    onnx = to_onnx(AddsParts(), (up(4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    x = torch.rand(rows, 4)
    torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), AddsParts()(x))


class WritesIntoAListOfASize(Module):
    def forward(self, x):
        best = [0.0] * x.shape[0]
        for i in range(1, x.shape[0]):
            if x[i].sum() > x[i - 1].sum():
                best[i] = best[i - 1] + 1
        return torch.tensor(best)


def test_who_writes_into_a_list_of_a_size_is_told_of_tensors() -> None:
    with pytest.raises(RewriteError, match=r"line \d+ of .*an assignment to one of its elements.*table\[i, j\] = "):
        to_onnx(WritesIntoAListOfASize(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


class WordsThatDecide(Module):
    def forward(self, x):
        mode = "run"
        for row in x:
            if row.sum() > 0:
                mode = "idle"
        return x * 2 if mode == "run" else x


def test_a_text_of_data_is_to_be_a_number() -> None:
    with pytest.raises(RewriteError, match="use a number in its place"):
        to_onnx(WordsThatDecide(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
