"""A loop that reads a list which it fills: its last elements and its length are carried, or all of it."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

from exportguard import RewriteError, torch_export_rewrite

RIGHT = Programs()
REFUSED = Programs()
LONG = ((up(4),), (up(3, -1),), (up(6, 4),))  # the rest of two rows is a single one, which torch makes a constant


@RIGHT.add(LONG)
class KeepsTheLastInAVariable(Module):
    def forward(self, x):
        last = x[0]
        outs = [last]
        for t in range(1, x.shape[0]):
            last = last * 0.7 + x[t] * 0.3
            outs.append(last)
        return torch.stack(outs)


@RIGHT.add()
class ReadsAListOfItsOwnStep(Module):
    def forward(self, x):
        outs = []
        for row in x:
            parts = [row, row * 2]
            parts.append(row * 3)
            outs.append(parts[-1] + parts[0] + torch.stack(parts).sum(0))
        return torch.stack(outs)


@RIGHT.add()
class ReadsAListThatAnotherLoopFilled(Module):
    def forward(self, x):
        first, second = [], []
        for row in x:
            first.append(row * 2)
        for row in x:
            second.append(row + first[-1] + sum(first))
        return torch.stack(second)


@RIGHT.add(LONG)
class ReadsTheLast(Module):
    def forward(self, x):
        outs = [x[0]]
        for t in range(1, x.shape[0]):
            outs.append(outs[-1] * 0.7 + x[t] * 0.3)
        return torch.stack(outs)


@RIGHT.add(LONG)
class StacksWhatIsThere(Module):
    def forward(self, x):
        keys, outs = [], []
        for row in x:
            keys.append(row)
            outs.append(torch.stack(keys).sum(0))
        return torch.stack(outs)


@RIGHT.add(LONG)
class InsertsAtTheFront(Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs.insert(0, row * 2)
        return torch.stack(outs)


@RIGHT.add(LONG)
class AsksForTheLength(Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs.append(row * len(outs))
        return torch.stack(outs)


@RIGHT.add(LONG)
class AsksWhetherThereIsOne(Module):
    def forward(self, x):
        outs = []
        for row in x:
            outs.append(row * 2 if outs else row)
        return torch.stack(outs)


@RIGHT.add(LONG)
class GoesThroughWhatIsThere(Module):
    def forward(self, x):
        outs, h = [x[0]], x.sum(0)
        for row in x:
            h = h + sum(o * 0.5 for o in outs)
            outs.append(row)
        return h


@RIGHT.add(LONG)
class TakesItApart(Module):
    def forward(self, x):
        outs, h = [x[0]], x.sum(0)
        for row in x:
            first, *_ = outs
            h = h + first
            outs.append(row)
        return h


@RIGHT.add(LONG)
class ReadsInABranch(Module):
    def forward(self, x):
        outs, h = [x[0]], x.sum(0)
        for row in x:
            if row.sum() > 0:
                h = h + outs[-1]
            outs.append(row)
        return h


@RIGHT.add(LONG)
class ReadsByTheNumberOfTheStep(Module):
    def forward(self, x):
        outs = []
        for t in range(x.shape[0]):
            if t == 0:
                outs.append(x[0])
            else:
                outs.append(outs[t - 1] * 0.7 + x[t] * 0.3)
        return torch.stack(outs), outs[-1]


@RIGHT.add()
class ReadsTheLastOfSome(Module):
    def forward(self, x):
        outs = [x.sum(0)]
        for row in x:
            if row.sum() > 1:
                outs.append(outs[-1] * 0.5 + row)
        return torch.stack(outs).sum(0), len(outs)


@RIGHT.add(LONG)
class ReadsTheLastTwo(Module):
    def forward(self, x):
        outs = [x[0], x[-1]]
        for row in x:
            outs.append(outs[-1] + outs[-2] * 0.5 + row)
            outs.append(sum(outs[-2:]) * outs[-1])
        return torch.stack(outs)


@RIGHT.add()
class CarriesPairs(Module):
    def forward(self, x):
        states = [(torch.zeros(4), torch.ones(4))]
        for row in x:
            h, c = states[-1]
            c = c * 0.5 + row
            states.append((torch.tanh(c) + h, c))
        return states[-1][0], torch.stack([h for h, _ in states])


@RIGHT.add()
class EndsAtALength(Module):
    def forward(self, x):
        outs = []
        for k, row in enumerate(x):
            if row.max() < -2:
                continue
            outs.append(row * k)
            if len(outs) == 2:
                break
        return torch.stack([*outs, x.sum(0)])


@RIGHT.add()
class IsLeftOnData(Module):
    def forward(self, x):
        outs = [torch.zeros(4)]
        for row in x:
            if row.sum() > 3:
                return torch.stack(outs).sum(0)
            outs.append(outs[-1] * 0.5 + row)
        return torch.stack(outs).sum(0) * 2


@REFUSED.add()
class ReadsElementsOfSeveralSizes(Module):
    def forward(self, x):
        outs = [x[:1]]
        for t in range(1, x.shape[0]):
            outs.append(torch.cat(outs)[:t])
        return torch.cat(outs)


@RIGHT.add(LONG)
class ReadsByANumberOfItsOwn(Module):
    def forward(self, x):
        outs = [x[0]]
        for t in range(1, x.shape[0]):
            if x[t].sum() > 0:
                outs.append(outs[(t - 1) % len(outs)] + x[t])
        return outs[-1]


@RIGHT.add(LONG)
class PutsAtTheFrontWhatItReads(Module):
    def forward(self, x):
        outs = [x[0]]
        for row in x:
            outs.insert(0, outs[-1] + row)
        return outs[-1]


@pytest.mark.parametrize("cls", RIGHT, ids=lambda cls: cls.__name__)
def test_a_list_that_no_step_reads_is_right(cls: type[Module]) -> None:
    check(cls)


@pytest.mark.parametrize("cls", REFUSED, ids=lambda cls: cls.__name__)
def test_what_else_the_steps_before_appended_is_not_read(cls: type[Module]) -> None:
    with torch_export_rewrite(cls), pytest.raises(RewriteError, match=r"line \d+.*several sizes"):
        torch.export.export(cls(), (up(3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)
