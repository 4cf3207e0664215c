"""Loops as people write them: recurrent cells, lists that loops fill, states of several kinds, numbers, windows."""

# ruff: noqa: B905, B007, N805, RUF007 - what users write

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from control_flow_program import SIGNS, Programs, check, up
from torch import nn
from torch.nn import Module

from exportguard import AxisError, RewriteError, to_onnx

PROGRAMS = Programs()
LONG = ((up(4),), (up(3, -1),), (up(6, 4),))  # the rest of two rows is a single one, which torch makes a constant
POSITIVE = ((up(3),), (up(5, 4),))
LENGTHS = (
    (torch.linspace(-1, 1, 72).reshape(3, 6, 4), torch.tensor([2, 3, 6])),
    (torch.linspace(-1, 1, 120).reshape(5, 6, 4), torch.tensor([1, 3, 6, 2, 5])),
)
BATCHES = ((torch.linspace(-1, 1, 24).reshape(3, 2, 4),), (torch.linspace(-1, 2, 40).reshape(5, 2, 4),))


@dataclass
class State:
    h: torch.Tensor
    n: int


@PROGRAMS.add()
class AliasLoop(Module):
    def forward(self, x):
        h = torch.zeros(4)
        prev = h
        out = torch.zeros(4)
        for row in x:
            h.add_(row)
            out = out + prev
        return out, h


@PROGRAMS.add()
class OutsRev(Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs.append(row * 2)
        return torch.stack(outs[::-1])


@PROGRAMS.add()
class OutsLast(Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs.append(row * 2)
        return outs[-1]


@PROGRAMS.add()
class OutsLen(Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs.append(row * 2)
        return torch.stack(outs).sum(0) / len(outs)


@PROGRAMS.add(LONG)
class OutsSlice(Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs.append(row * 2)
        return torch.stack(outs[1:])


@PROGRAMS.add()
class Fib(Module):
    def forward(self, x):
        a, b = 0, 1
        out = torch.zeros(4)
        for row in x:
            out = out + a * row
            a, b = b, a + b
        return out


@PROGRAMS.add()
class NumTotal(Module):
    def forward(self, x):
        t = 0
        for row in x:
            t = t + row.sum()
        return t


@PROGRAMS.add()
class NumTotalVec(Module):
    def forward(self, x):
        t = 0
        for row in x:
            t = t + row
        return t


@PROGRAMS.add()
class FloatNum(Module):
    def forward(self, x):
        t = 1
        out = torch.zeros(4)
        for row in x:
            t = t / 2
            out = out + row * t
        return out


@PROGRAMS.add(LONG)
class NoneStart(Module):
    def forward(self, x):
        h = None
        for row in x:
            h = row if h is None else h * 0.5 + row
        return h


@PROGRAMS.add()
class WhileInPlace(Module):
    def forward(self, x):
        h = x.sum(0)
        while h.sum() < 50:
            h += 10
        return h


@PROGRAMS.add()
class WhileInPlace2(Module):
    def forward(self, x):
        h = x.sum(0).abs()
        n = 0
        while h.sum() < 50 and n < 20:
            h += h.mean() + 1
            n += 1
        return h, n


@PROGRAMS.add()
class Cell(Module):
    def __init__(self):
        super().__init__()
        self.i = nn.Linear(4, 5)
        self.h = nn.Linear(5, 5)

    def forward(self, x):
        h = torch.zeros(5)
        outs = []
        for t in range(x.shape[0]):
            h = torch.tanh(self.i(x[t]) + self.h(h))
            outs.append(h)
        return torch.stack(outs), h


@PROGRAMS.add(BATCHES)
class CellB(Module):
    def __init__(self):
        super().__init__()
        self.i = nn.Linear(4, 5)
        self.h = nn.Linear(5, 5)

    def forward(self, x):
        h = x.new_zeros(x.size(1), 5)
        outs = []
        for t in range(x.size(0)):
            h = torch.tanh(self.i(x[t]) + self.h(h))
            outs.append(h)
        return torch.stack(outs, dim=1), outs[-1]


@PROGRAMS.add(LENGTHS)
class Lengths(Module):
    def forward(self, x, lengths):
        outs = []
        for i, n in enumerate(lengths):
            outs.append(x[i, :n].mean(0))
        return torch.stack(outs)


@PROGRAMS.add(LENGTHS)
class LengthsToList(Module):
    def forward(self, x, lengths):
        outs = []
        for i, n in enumerate(lengths.tolist()):
            outs.append(x[i, :n].mean(0))
        return torch.stack(outs)


@PROGRAMS.add(((up(5),), (up(4),), (up(7),)))
class Windows(Module):
    def forward(self, x):
        outs = []
        for i in range(x.shape[0] - 2):
            outs.append(x[i : i + 3].mean(0))
        return torch.stack(outs)


@PROGRAMS.add()
class NegIndex(Module):
    def forward(self, x):
        t = torch.zeros(4)
        for i in range(1, x.shape[0]):
            t = t * 0.5 + x[-i]
        return t


@PROGRAMS.add()
class DictState(Module):
    def forward(self, x):
        st = {"h": torch.zeros(4), "n": 0}
        for row in x:
            st["h"] = st["h"] * 0.5 + row
            st["n"] += 1
        return st["h"] * st["n"]


@PROGRAMS.add()
class DataclassState(Module):
    def forward(self, x):
        st = State(torch.zeros(4), 0)
        for row in x:
            st = State(st.h * 0.5 + row, st.n + 1)
        return st.h * st.n


@PROGRAMS.add()
class DataclassState2(Module):
    def forward(self, x):
        st = State(torch.zeros(4), 0)
        for row in x:
            st.h = st.h * 0.5 + row
            st.n += 1
        return st.h * st.n


@PROGRAMS.add()
class MinMax(Module):
    def forward(self, x):
        return x * max(x.sum(), x.mean()) + min(x.max(), 2.0)


@PROGRAMS.add(POSITIVE)
class CompFilter(Module):
    def forward(self, x):
        rows = [r * 2 for r in x if r.sum() > 1]
        return torch.stack(rows)


@PROGRAMS.add()
class Comp(Module):
    def forward(self, x):
        return torch.stack([r * r.sum() for r in x])


@PROGRAMS.add()
class AnyGen(Module):
    def forward(self, x):
        if any(r.sum() > 1 for r in x):
            return x * 2
        return x


@PROGRAMS.add()
class AllGen(Module):
    def forward(self, x):
        if all((r > 0).all() for r in x):
            return x * 2
        return x


@PROGRAMS.add()
class SelfSeen(Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen = []
        for row in x:
            self.seen.append(row * 2)
        return torch.stack(self.seen)


@PROGRAMS.add()
class Tuples(Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs.append((row * 2, row.sum()))
        a = torch.stack([o[0] for o in outs])
        b = torch.stack([o[1] for o in outs])
        return a, b


@PROGRAMS.add()
class Floats(Module):
    def forward(self, x):
        vals = []
        for row in x:
            vals.append(float(row.sum()))
        return torch.tensor(vals)


@PROGRAMS.add()
class SumOuts(Module):
    def forward(self, x):
        outs = [row * 2 for row in x]
        return sum(outs) / len(outs)


@PROGRAMS.add(LONG)
class MaxList(Module):
    def forward(self, x):
        return max(row.sum() for row in x)


@PROGRAMS.add()
class EnumIf(Module):
    def forward(self, x):
        total = 0.0
        for i, row in enumerate(x):
            if row.sum() > 1:
                total += row.sum() * i
            else:
                total -= 1
        return x + total


@PROGRAMS.add()
class AppendIf(Module):
    def forward(self, x):
        keep = [x[0]]
        for row in x:
            if row.sum() > 1:
                keep.append(row)
        return torch.stack(keep)


@PROGRAMS.add()
class BestRow(Module):
    def forward(self, x):
        best, where = -1e9, -1
        for i, row in enumerate(x):
            s = row.sum()
            if s > best:
                best, where = s, i
        return best, where


@PROGRAMS.add()
class Reversed(Module):
    def forward(self, x):
        h = torch.zeros(4)
        outs = []
        for row in reversed(x):
            h = h * 0.5 + row
            outs.append(h)
        return torch.stack(outs[::-1])


@PROGRAMS.add()
class RangeRev(Module):
    def forward(self, x):
        h = torch.zeros(4)
        for i in range(x.shape[0] - 1, -1, -1):
            h = h * 0.5 + x[i]
        return h


@PROGRAMS.add()
class RevRange(Module):
    def forward(self, x):
        h = torch.zeros(4)
        for i in reversed(range(x.shape[0])):
            h = h * 0.5 + x[i]
        return h


@PROGRAMS.add()
class LSTMCellLoop(Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x):
        h, c = torch.zeros(1, 3), torch.zeros(1, 3)
        for row in x:
            h, c = self.cell(row[None], (h, c))
        return h, c


@PROGRAMS.add()
class SubLoop(Module):
    class _I(Module):
        def __init__(s):
            super().__init__()
            s.l = nn.Linear(4, 4)

        def forward(s, x):
            h = x[0] * 0
            for row in x:
                h = s.l(row + h).tanh()
            return h

    def __init__(self):
        super().__init__()
        self.i = SubLoop._I()

    def forward(self, x):
        return self.i(x) + self.i(x * 2)


@PROGRAMS.add()
class NestedForDyn(Module):
    def forward(self, x):
        rows = []
        for a in x:
            s = 0
            for b in x:
                s = s + (a * b).sum()
            rows.append(s)
        return torch.stack(rows)


@PROGRAMS.add()
class IntDiv(Module):
    def forward(self, x):
        n = 7
        for row in x:
            n = n // 2 + 1
        return x * n


@PROGRAMS.add()
class CountPos(Module):
    def forward(self, x):
        n = 0
        for row in x:
            if row.sum() > 0:
                n += 1
        return n / x.shape[0]


@PROGRAMS.add()
class Beam(Module):
    def forward(self, x):
        state = {"score": torch.zeros(()), "rows": []}
        for row in x:
            state["score"] = state["score"] + row.max()
            state["rows"].append(row + state["score"])
        return torch.stack(state["rows"]), state["score"]


@PROGRAMS.add()
class DictRebind(Module):
    def forward(self, x):
        st = {"h": torch.zeros(4), "c": torch.zeros(4)}
        for row in x:
            st = {"h": st["c"] + row, "c": st["h"] * 0.5}
        return st["h"], st["c"]


@PROGRAMS.add(LONG)
class Prev(Module):
    def forward(self, x):
        prev = None
        out = []
        for row in x:
            if prev is not None:
                out.append(row - prev)
            prev = row
        return torch.stack(out)


@PROGRAMS.add()
class Write(Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        for i in range(x.shape[0]):
            y[i] = x[i] * i
        return y


@PROGRAMS.add(SIGNS[:1] + SIGNS[2:])
class CumMax(Module):
    def forward(self, x):
        m = x[0]
        outs = [m]
        for row in x[1:]:
            m = torch.maximum(m, row)
            outs.append(m)
        return torch.stack(outs)


@PROGRAMS.add()
class SoftmaxTemp(Module):
    def forward(self, x):
        t = 1.0
        p = torch.softmax(x, -1)
        while p.max() > 0.35 and t < 20:
            t *= 1.5
            p = torch.softmax(x / t, -1)
        return p, t


@PROGRAMS.add()
class TernList(Module):
    def forward(self, x):
        ys = [r if r.sum() > 1 else -r for r in x]
        return torch.stack(ys)


@PROGRAMS.add(LONG)
class ZipPairs(Module):
    def forward(self, x):
        t = torch.zeros(())
        for a, b in zip(x[:-1], x[1:]):
            t = t + (a * b).sum()
        return t


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_a_loop_is_equal_to_eager(cls: type[Module]) -> None:
    check(cls)


class KeepsWhatItCollects(Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen = []
        for row in x:
            self.seen.append(row * 2)
        return torch.stack(self.seen)


def test_a_model_keeps_nothing_of_the_rewriting() -> None:
    model = KeepsWhatItCollects()
    to_onnx(model, (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert model.seen == []


class ReturnsAList(Module):
    def forward(self, x):
        rows = []
        for row in x:
            rows.append(row * 2 if row.sum() > 1 else row)
        return rows


class UnpacksAList(Module):
    def forward(self, x):
        rows = []
        for row in x:
            rows.append(row * 2 if row.sum() > 1 else row)
        first, _ = rows
        return first


@pytest.mark.parametrize("cls", [ReturnsAList, UnpacksAList])
def test_what_needs_the_length_of_a_list_that_a_loop_fills_is_refused(cls: type[Module]) -> None:
    with pytest.raises(RewriteError, match="as many elements as the loop has steps"):
        to_onnx(cls(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


class GainsAxesInALoop(Module):
    def forward(self, x):
        out = x[0]
        for row in x:
            out = torch.stack([out, out * row.sum()])
        return out.sum()


def test_an_axis_that_stays_fixed_says_why_its_loop_could_not_be_rewritten() -> None:
    text = (
        r"what stands at .*test_loops_as_written.py.* cannot be rewritten: line \d+: a loop over tensors carries `out`"
    )
    with pytest.raises(AxisError, match=text):
        to_onnx(GainsAxesInALoop(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
