"""Loops over rows of which there may be none, in onnxruntime."""

# ruff: noqa: B905, RUF007 - the programs are what users write

from __future__ import annotations

import pytest
import torch
from control_flow_program import up
from torch.nn import Module

from exportguard import to_onnx


class CarriesAState(Module):
    def forward(self, x):
        h = torch.zeros(4)
        for row in x:
            h = torch.tanh(h + row)
        return h


class CollectsBehindAnElement(Module):
    def forward(self, x):
        outs = [x.sum(0)]
        for row in x:
            outs.append(row * 2)
        return torch.stack(outs)


class CollectsOverADynamicAxis(Module):
    def forward(self, x):
        y = x.T
        outs = [y.sum(1)]
        for column in x.T[:, :2]:
            outs.append(column.sum() + y.sum(1))
        return torch.stack(outs)


class MayBreak(Module):
    def forward(self, x):
        h = torch.zeros(4)
        for row in x:
            if row.sum() > 100:
                break
            h = h + row
        return h


class LeavesOutTheFirst(Module):
    def forward(self, x):
        h = x.sum(0)
        for before, row in zip(x, x[1:]):
            h = h * 0.5 + before * row
        return h


class SumsWhatIsLeft(Module):
    def forward(self, x):
        return sum(row.sum() for row in x if row[0] > 0) + x.sum(0)


class AsksEveryRow(Module):
    def forward(self, x):
        return x.sum(0) if any(row.sum() > 1 for row in x) else x.sum(0) - 1


PROGRAMS = (
    CarriesAState,
    CollectsBehindAnElement,
    CollectsOverADynamicAxis,
    MayBreak,
    LeavesOutTheFirst,
    SumsWhatIsLeft,
    AsksEveryRow,
)


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_no_rows_and_one_are_right(cls: type[Module]) -> None:
    model = cls().eval()
    onnx = to_onnx(model, (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (up(3), torch.zeros(0, 4), up(1), up(1, -1), up(5, 2)):
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, model(x))
