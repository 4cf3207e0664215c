"""The generator of configurations: what it changes, and that a draw is exported and compared at every size."""

from __future__ import annotations

import random
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import GemmaConfig, LlamaConfig, PreTrainedConfig, T5Config
from transformers.activations import ACT2FN

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CONFIGS = (LlamaConfig, GemmaConfig, T5Config)


@pytest.fixture(scope="module")
def variation() -> dict[str, Any]:
    return runpy.run_path(str(BENCHMARKS / "variation.py"))


def _changed(config: PreTrainedConfig, changes: dict[str, Any]) -> PreTrainedConfig:
    return type(config)(**{**config.to_dict(), **changes})


@pytest.mark.parametrize("config_class", CONFIGS, ids=lambda one: one.model_type)
@pytest.mark.parametrize("seed", range(5))
def test_a_draw_changes_few_fields_and_the_same_seed_the_same_ones(
    variation: dict[str, Any], config_class: Any, seed: int
) -> None:
    drawn = variation["drawn_changes"]
    changes = drawn(config_class(), random.Random(seed))
    assert 1 <= len(changes) <= 4
    assert changes == drawn(config_class(), random.Random(seed))
    assert set(changes) <= set(vars(config_class()))


def test_every_kind_of_rotary_positions_and_of_activation_can_be_taken(variation: dict[str, Any]) -> None:
    config = LlamaConfig(hidden_size=32, num_attention_heads=4)
    source = random.Random(0)
    kinds = set()
    for _ in range(40):
        rope = variation["_rope"](config.rope_parameters, config, source)
        kinds.add(_changed(config, {"rope_parameters": rope}).rope_parameters["rope_type"])
    assert kinds == {"default", "linear", "dynamic", "yarn", "longrope", "llama3"}
    assert set(variation["_ACTIVATIONS"]) <= set(ACT2FN)


def test_a_draw_is_compared_at_every_combination_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    command = runpy.run_path(str(BENCHMARKS / "varied_configurations.py"))
    source = random.Random(4)
    draw = next(command["draws"](["text-generation"], ["llama"], source, "float32"))
    assert draw.model == "llama"
    assert str(draw).startswith("-t text-generation -m llama ")
    plain = command["Draw"](model="llama", task="text-generation", changes={"num_hidden_layers": 1})
    assert command["outcome"](plain) == "right"
    wrong = command["Draw"](model="llama", task="text-generation", changes={"num_attention_heads": 7})
    assert command["outcome"](wrong).startswith("not run: ")
