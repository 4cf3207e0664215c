"""A branch that no data lead into is looked at for its shapes once at each size, whatever data a trial has."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exportguard import to_onnx
from exportguard.axes import true_shapes


class Branches(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        for row in x[:3]:
            if row.sum() > 0:
                y = y + row
            elif row[0] > 1:
                y = y - row
        return y


def test_a_branch_is_looked_at_once_at_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    asked: list[Any] = []
    readings: dict[int, true_shapes.Reading] = {}
    original, mode = true_shapes.GraphWithTrueShapes._look_at, true_shapes.FakeTensorMode

    def look_at(self: Any, module: Any, given: Any) -> None:
        asked.append(module)
        readings[id(self._blocks.reading)] = self._blocks.reading
        original(self, module, given)

    monkeypatch.setattr(true_shapes.GraphWithTrueShapes, "_look_at", look_at)
    monkeypatch.setattr(true_shapes, "FakeTensorMode", lambda **options: looks.append(1) or mode(**options))
    to_onnx(Branches().eval(), (torch.ones(5, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert len(looks) == sum(len(reading.looked_at) for reading in readings.values())
    assert 0 < len(looks) < len(asked) / 2
