"""Loops, tests and numbers that a dynamic size decides: right for every size, also where a loop has no steps."""

from __future__ import annotations

import math

import pytest
import torch
from control_flow_program import up
from torch.nn import Module
from torch.utils import _pytree as pytree

from exportguard import to_onnx


class WindowAttn(Module):
    def forward(self, x):
        n = x.shape[0]
        out = torch.zeros_like(x)
        for i in range(n):
            lo = max(0, i - 2)
            hi = min(n, i + 3)
            k = x[lo:hi]
            a = torch.softmax(k @ x[i] / 2.0, 0)
            out[i] = a @ k
        return out


class WhileSize(Module):
    def forward(self, x):
        i = 0
        h = torch.zeros(4)
        while i < x.shape[0]:
            h = h + x[i] * i
            i += 2
        return h, i


class WhileLen(Module):
    def forward(self, x):
        lo, hi = 0, len(x) - 1
        s = x.clone()
        while lo < hi:
            t = s[lo].clone()
            s[lo] = s[hi]
            s[hi] = t
            lo += 1
            hi -= 1
        return s


class BinarySearch(Module):
    def forward(self, x):
        y = x.sort().values
        target = x.mean()
        lo, hi = 0, len(y)
        while lo < hi:
            mid = (lo + hi) // 2
            if y[mid] < target:
                lo = mid + 1
            else:
                hi = mid
        return lo


class ColWrite(Module):
    def forward(self, x):
        y = torch.zeros(4, x.shape[0])
        for i, row in enumerate(x):
            y[:, i] = row
            y[0, i] += 1
        return y


class Anchors(Module):
    def forward(self, x):
        rows, columns = x.shape
        out = []
        for i in range(rows):
            for j in range(columns):
                for size in (0.5, 1.0):
                    out.append(torch.tensor([i * 1.0, j * 1.0, size]))
        return torch.stack(out)


class Padded(Module):
    def forward(self, x):
        y = torch.zeros(x.shape[0] + 1, 4)
        for i, row in enumerate(x):
            y[i + 1] = row
        return y


class Lengths(Module):
    def forward(self, x):
        n = x.shape[0]
        return x.sum(0) * len(x[1:]), x.sum(0) / float(len(x)), x.sum(0) * math.sqrt(n), x * float(x.shape[0])


class InnerRows(Module):
    def forward(self, x):
        h = torch.zeros(4)
        for i, row in enumerate(x[1:-1]):
            h = torch.tanh(h + row * i)
        return h, sum((row for row in x[1:]), torch.zeros(4))


class AsksTheRest(Module):
    def forward(self, x):
        y = x.sum(0) if all(row[0] > 0 for row in x[:-1]) else x.sum(0) * 3
        return y if any(row.sum() > 0 for row in x[1:]) else y - 1


class TwoFors(Module):
    def forward(self, x):
        return torch.stack([(a * b).sum() for a in x for b in x])


class WholeNumbers(Module):
    def forward(self, x):
        n = int(x.shape[0])
        half, upper = round(n / 2), int(math.ceil(n / 2))  # noqa: RUF046
        return x[:half].sum(0) * n, x[upper:].sum(0), torch.zeros(int(n / 2) + 1)


class PartsOfSizes(Module):
    def forward(self, x):
        n = x.shape[0]
        kept = max(1, int(n * 0.3))
        first, rest = x[: math.floor(n * 0.7)].sum(0), x[math.ceil(n * 0.4) :].sum(0)
        return x[:, 0].topk(kept).values, first, rest, x[: round(n * 0.5)].sum(0), x[: int(0.1 * n)].sum(0)


class Capacity(Module):
    """As mixtures of experts fill seats: tests of the number of seats, which torch asks, are no loss of an axis."""

    def forward(self, x):
        seats = int(1.25 * x.shape[0] / 4) + 1
        chosen = torch.nn.functional.one_hot(x.argmax(-1), 4)
        place = (chosen.cumsum(0) * chosen - 1).clamp(0, seats - 1)
        given = torch.nn.functional.one_hot(place, seats) * chosen.unsqueeze(-1)
        seated = torch.einsum("nec,nd->ecd", given.float(), x)
        return torch.einsum("nec,ecd->nd", given.float(), torch.bmm(seated, torch.ones(4, 4, 4).tril()))


PROGRAMS = (
    *(WindowAttn, WhileSize, WhileLen, ColWrite, Anchors, Padded, Lengths, InnerRows, AsksTheRest, TwoFors),
    *(WholeNumbers, PartsOfSizes, Capacity),
)
WITHOUT_ROWS = (WindowAttn, WhileSize, WhileLen, ColWrite, Padded, InnerRows, AsksTheRest)


def require_equal(model: Module, example: torch.Tensor, inputs: list[torch.Tensor], axes: dict[int, str]) -> None:
    """Exports a model and compares it with eager mode."""
    onnx = to_onnx(model, (example,), dynamic_shapes=(axes,), rewrite="auto")
    for x in inputs:
        for found, wanted in zip(onnx.run({"x": x}).values(), pytree.tree_leaves(model(x.clone())), strict=True):
            torch.testing.assert_close(found, torch.as_tensor(wanted), check_dtype=False)


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_every_size_is_right(cls: type[Module]) -> None:
    axes = {0: "rows", 1: "columns"} if cls is Anchors else {0: "rows"}
    inputs = [up(3), up(1), up(2, -1), up(5, 2), *([torch.zeros(0, 4)] if cls in WITHOUT_ROWS else [])]
    require_equal(cls().eval(), up(3), inputs, axes)


def test_a_search_by_halves_is_right() -> None:
    inputs = [torch.linspace(-1, 1, n) ** 3 for n in (5, 1, 2, 9)]
    require_equal(BinarySearch(), inputs[0], inputs, {0: "rows"})


class Windows(Module):
    def forward(self, x):
        return torch.stack([x[i : i + 3].max() for i in range(len(x) - 2)])


def test_the_size_that_makes_an_empty_list_is_a_bound() -> None:
    onnx = to_onnx(Windows(), (up(5),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    told = "; ".join(map(str, onnx.axes))
    assert "rows - 2 > 0" in told
    (found,) = onnx.run({"x": up(4)}).values()
    torch.testing.assert_close(found, Windows()(up(4)))


class CutsTheLastPart(Module):
    def forward(self, x):
        parts = []
        for start in range(0, x.shape[0], 2):
            part = x[start : start + 2]
            parts.append(part - part.mean(0))
        return torch.cat(parts)


class CutsBeforeTheLastPart(Module):
    def forward(self, x):
        parts = []
        for start in range(0, x.shape[0] - 1, 2):
            part = x[start : start + 2]
            parts.append(part - part.mean(0))
        return torch.cat(parts)


@pytest.mark.parametrize("cls", [CutsTheLastPart, CutsBeforeTheLastPart])
def test_parts_of_which_the_last_may_be_shorter_are_joined(cls: type[Module]) -> None:
    require_equal(cls(), up(4), [up(n) for n in (2, 3, 5, 8)], {0: "rows"})


class CutsByData(Module):
    def forward(self, x):
        parts = []
        padded = torch.cat([x, torch.zeros(4, 4)])
        for row in x:
            start = int((row > 0).sum())
            parts.append(padded[start : start + 2])
        return torch.stack(parts)


def test_parts_that_are_stacked_have_one_size() -> None:
    require_equal(CutsByData(), up(4), [up(n) for n in (2, 3, 5)], {0: "rows"})
