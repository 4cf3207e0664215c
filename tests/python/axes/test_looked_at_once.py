"""A branch that no data lead into is looked at for its shapes once at each size, whatever data a trial has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from exportguard import make_dynamic_cache, to_onnx, tracing
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


def test_a_decoder_is_traced_on_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own, and that of a mask longer than the keys: single tokens, which transformers asks for, are tried and not
    traced."""
    traces: list[Any] = []
    original = tracing.traced
    monkeypatch.setattr(tracing, "traced", lambda *args, **kwargs: traces.append(args) or original(*args, **kwargs))
    config = LlamaConfig(
        num_hidden_layers=1,
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=32,
    )
    inputs = {
        "input_ids": torch.ones(2, 3, dtype=torch.int64),
        "attention_mask": torch.ones(2, 8, dtype=torch.int64),
        "past_key_values": make_dynamic_cache([(torch.zeros(2, 1, 5, 8), torch.zeros(2, 1, 5, 8))]),
    }
    shapes = {
        "input_ids": {0: "batch", 1: "seq"},
        "attention_mask": {0: "batch", 1: "total"},
        "past_key_values": [({0: "batch", 2: "past"},) * 2],
    }
    to_onnx(LlamaForCausalLM(config).eval(), kwargs=inputs, dynamic_shapes=shapes)
    assert len(traces) == 2
