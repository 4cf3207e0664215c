"""Caches of every kind have names of one scheme: `past_key_values.…` in, `present.…` out, in files and in reports."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from exportguard import InvalidArgumentError, check_inputs, to_onnx, torch_export_patches
from exportguard.cache_names import cache_argument
from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.validation.validate import ValidateOptions, ValidationReport, validate_case

#: What the first layer of each kind keeps.
KEPT = {
    "llama": ["0.key", "0.value"],
    "t5": ["self.0.key", "cross.0.value"],
    "mamba": ["0.conv_states.0", "0.recurrent_states.0"],
}
TASKS = {"llama": "text-generation", "t5": "text2text-generation", "mamba": "text-generation"}


def case_of(model: str) -> ModelCase:
    return build_model(model, BuildOptions(task=TASKS[model]))


def validated(case: ModelCase, folder: Path) -> ValidationReport:
    return validate_case(case, folder / "model.onnx", ValidateOptions(folder=folder))


def of_caches(names: Sequence[str]) -> set[str]:
    return {name for name in names if "." in name}


@pytest.mark.parametrize("model", KEPT)
def test_a_cache_has_the_same_names_in_the_file_and_in_the_report(model: str, tmp_path: Path) -> None:
    report = validated(case_of(model), tmp_path)
    assert report.failure == ""
    for kept in KEPT[model]:
        assert f"past_key_values.{kept}" in report.inputs
        assert f"present.{kept}" in report.outputs
    assert all(name.startswith("past_key_values.") for name in of_caches(report.inputs))
    assert all(name.startswith("present.") for name in of_caches(report.outputs))
    assert {axis.input for axis in report.axes} <= set(report.inputs)
    assert {one.name for one in report.sets[0].outputs} <= set(report.outputs)


def takes_the_older_name(forward: Callable[..., Any]) -> Callable[..., Any]:
    """As transformers from 5.24 to 5.39 does: the signature only tells of the new one."""

    @functools.wraps(forward)
    def call(self: object, *args: Any, **kwargs: Any) -> Any:
        if "past_key_values" in kwargs:
            kwargs["cache"] = kwargs.pop("past_key_values")
        return forward(self, *args, **kwargs)

    return call


class Newer(torch.nn.Module):
    @takes_the_older_name
    def forward(self, states, cache=None):
        keys, values = cache.update(states, states * 2, 0)
        return {"out": (keys + values).sum(2), "cache": cache}


class Older(torch.nn.Module):
    def forward(self, states, past_key_values=None):
        keys, values = past_key_values.update(states, states * 2, 0)
        return {"out": (keys + values).sum(2), "past_key_values": past_key_values}


def cache_of(tokens: int) -> DynamicCache:
    cache = DynamicCache()
    cache.update(torch.randn(2, 1, tokens, 4), torch.randn(2, 1, tokens, 4), 0)
    return cache


@pytest.mark.parametrize(
    "words", [("cache", "cache"), ("past_key_values", "past_key_values"), ("past_key_values", "cache")]
)
@pytest.mark.parametrize("cls", [Newer, Older])
def test_a_cache_goes_by_either_name(cls: type[torch.nn.Module], words: tuple[str, str]) -> None:
    argument, asked = words
    inputs = {"states": torch.randn(2, 1, 3, 4), argument: cache_of(5)}
    shapes = {asked: {0: "batch", 2: "past"}, "states": {0: "batch", 2: "seq"}}
    model = to_onnx(cls(), kwargs=inputs, dynamic_shapes=shapes)
    assert [value.name for value in model.inputs] == ["states", "past_key_values.0.key", "past_key_values.0.value"]
    assert [value.name for value in model.outputs] == ["out", "present.0.key", "present.0.value"]
    assert all(axis.input in [value.name for value in model.inputs] for axis in model.axes)
    with torch_export_patches(patch=False):  # which takes caches apart
        check_inputs(cls(), [inputs, {**inputs, argument: cache_of(6)}], shapes)


def test_one_cache_under_two_names_is_refused() -> None:
    inputs = {"states": torch.randn(2, 1, 3, 4), "cache": cache_of(5), "past_key_values": cache_of(5)}
    with pytest.raises(InvalidArgumentError, match="past_key_values"):
        to_onnx(Newer(), kwargs=inputs)


class OwnCache(torch.nn.Module):
    def forward(self, x, cache):
        return {"cache": {"mean": cache["mean"] + x.mean(0)}, "out": x - cache["mean"]}


def test_a_cache_of_another_kind_keeps_its_name() -> None:
    model = to_onnx(OwnCache(), (torch.randn(2, 3), {"mean": torch.zeros(3)}), dynamic_shapes=({0: "n"}, None))
    assert [value.name for value in model.inputs] == ["x", "cache.mean"]
    assert "cache.mean_out" in [value.name for value in model.outputs]


def test_the_argument_of_the_installed_models_is_found() -> None:
    """That of mamba was `cache_params` up to transformers 5.23."""
    for model in KEPT:
        forward = case_of(model).model.forward
        assert cache_argument(forward) in inspect.signature(forward).parameters
