"""Loops over the parts of a split, lists as long as a size, and bodies that read a size which no operand has."""

# ruff: noqa: B905 - what users write

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, up
from torch.nn import Module
from torch.utils import _pytree as pytree

from exportguard import AxisError, RewriteError, to_onnx

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


@RIGHT.add(LONG)
class ExtendedByRows(Module):
    def forward(self, x):
        place, found = 0, []
        while place < len(x) and x[place].sum() < 10:
            found.append(x[place] * 2)
            place += 1
        found.extend(x[place:])
        found += x[:place]
        return torch.stack(found)


@pytest.mark.parametrize("program", RIGHT, ids=lambda cls: cls.__name__)
def test_parts_and_sizes_are_those_of_python(program: type[Module]) -> None:
    onnx = to_onnx(program(), LONG[0], dynamic_shapes=({0: "rows"},), rewrite="auto")
    for (x,) in LONG:
        for found, wanted in zip(onnx.run({"x": x}).values(), pytree.tree_leaves(program()(x)), strict=True):
            torch.testing.assert_close(found, torch.as_tensor(wanted))


LENGTHS = (
    (up(7), torch.tensor([2, 4, 1])),
    (up(9, -1), torch.tensor([3, 6])),
    (up(5, 3), torch.tensor([5])),
    (up(8), torch.tensor([1, 2, 3, 0, 2])),
    (up(3), torch.tensor([0, 3, 0])),
)

OF_LENGTHS = Programs()


@OF_LENGTHS.add(LENGTHS)
class SumsOfSequences(Module):
    def forward(self, x, lengths):
        return torch.stack([part.sum(0) for part in torch.split(x, lengths.tolist())])


@OF_LENGTHS.add(LENGTHS)
class PaddedSequences(Module):
    def forward(self, x, lengths):
        padded = x.new_zeros(len(lengths), int(lengths.max()), 4)
        for k, part in enumerate(x.split(lengths.tolist())):
            padded[k, : part.shape[0]] = part
        return padded


@OF_LENGTHS.add(LENGTHS)
class MeansBesideLengths(Module):
    def forward(self, x, lengths):
        rows = []
        for part, length in zip(x.split(lengths.tolist()), lengths):
            rows.append(part.sum(0) / length.clamp(min=1))
        return torch.stack(rows)


@OF_LENGTHS.add(LENGTHS)
class TwoSplitsBackwards(Module):
    def forward(self, x, lengths):
        sizes, total = lengths.tolist(), torch.zeros(4)
        for one, other in zip(torch.split(x, sizes), (x * 2).t().split(sizes, dim=1)):
            total = total * 0.7 + (one * other.t()).sum(0)
        for part in reversed(x.split(sizes)):
            if part.sum() > 5:
                break
            total = total * 0.5 + part.sum(0)
        for pair in reversed(x.split(2)):
            total = total * 0.5 + pair.sum(0)
        return total


@OF_LENGTHS.add(LENGTHS)
class LongestOfEach(Module):
    def forward(self, x, lengths):
        total = torch.zeros(4)
        for k, part in enumerate(torch.split(x, lengths.tolist(), dim=0)):
            total = total + part.amax(0) * k if len(part) > 2 else total * 0.5 + part.sum(0)
        return total


def layers(count: int) -> torch.nn.ModuleList:
    torch.manual_seed(count)
    return torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(count))


@OF_LENGTHS.add(LENGTHS)
class ALayerForEachPart(Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts, self.few = layers(5), layers(2)

    def forward(self, x, lengths):
        sizes, total = lengths.tolist(), torch.zeros(4)
        for part, one in zip(x.split(sizes), self.few):
            total = total * 0.5 + one(part).sum(0)
        for k, (expert, part) in enumerate(zip(self.experts, torch.split(x, sizes))):
            total = total * 0.5 + expert(part).sum(0) * (k + 1)
        parts = [layer(part) * size for layer, part, size in zip(self.experts, x.split(sizes), sizes)]
        return torch.cat(parts) + total


@pytest.mark.parametrize("program", OF_LENGTHS, ids=lambda cls: cls.__name__)
def test_parts_of_lengths_that_data_gives_are_those_of_python(program: type[Module]) -> None:
    shapes = ({0: "rows"}, {0: "sequences"})
    onnx = to_onnx(program(), LENGTHS[0], dynamic_shapes=shapes, rewrite="auto")
    for x, lengths in LENGTHS:
        found = onnx.run({"x": x, "lengths": lengths}).values()
        torch.testing.assert_close(*found, program()(x, lengths))


@pytest.mark.parametrize("lengths", [[2, 4, 2], [2, 4], [9, -2]])
def test_lengths_that_are_not_those_of_all_rows_end_a_run(lengths: list[int]) -> None:
    onnx = to_onnx(SumsOfSequences(), LENGTHS[0], dynamic_shapes=({0: "rows"}, {0: "sequences"}), rewrite="auto")
    with pytest.raises(RuntimeError):
        SumsOfSequences()(up(7), torch.tensor(lengths))
    with pytest.raises(RuntimeError, match="out of data bounds"):
        onnx.run({"x": up(7), "lengths": torch.tensor(lengths)})


class CatchesLengths(Module):
    def forward(self, x, lengths):
        total = torch.zeros(4)
        try:
            for part in x.split(lengths.tolist()):
                total = total + part.sum(0)
        except RuntimeError:
            total = total - 1
        return total


def test_lengths_that_a_handler_may_ask_for_are_refused() -> None:
    with pytest.raises(AxisError, match="sizes of parts that do not add up"):
        to_onnx(CatchesLengths(), LENGTHS[0], dynamic_shapes=({0: "rows"}, {0: "sequences"}), rewrite="auto")


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
            best[i:] = [best[i]] * 2
        return torch.tensor(best)


def test_who_writes_into_a_list_of_a_size_is_told_of_tensors() -> None:
    with pytest.raises(RewriteError, match=r"line \d+ of .*an assignment to several of its.*table\[i, j\] = "):
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
