"""Caches with sliding windows whose lengths all go by one name: files are right beyond the window as well."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch.export import Dim
from transformers import DynamicCache, EncoderDecoderCache

import exportguard
from exportguard import to_onnx, torch_export_patches, validate_module
from exportguard.axes.bound import Kind
from exportguard.cache_names import cache_argument, input_name
from exportguard.dynamic_shapes import normalise
from exportguard.errors import InvalidArgumentError
from exportguard.inputs import CallInputs, flatten_named
from exportguard.sliding_lengths import SlidingLength, own_lengths, windows
from exportguard.validation.validate import validate_model

WINDOW = 6
SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 60, "sliding_window": WINDOW,
}  # fmt: skip
MIXED = ["sliding_attention", "full_attention"]


def mixed() -> Any:
    """Every second layer sees all tokens."""
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SMALL, layer_types=MIXED)).eval()


def sliding() -> Any:
    """No layer sees all tokens, so that the cache counts them."""
    return transformers.MistralForCausalLM(transformers.MistralConfig(**SMALL)).eval()


MODELS = {"mixed": mixed, "sliding": sliding}


def inputs(model: Any, past: int, new: int = 2, batch: int = 2) -> dict[str, Any]:
    """New tokens behind a past that the model itself leaves, the first row padded in front."""
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    mask[0, : past // 3] = 0
    cache = DynamicCache(config=model.config)
    name = cache_argument(model.forward) or ""
    with torch.no_grad():
        model(input_ids=torch.randint(3, 60, (batch, past)), attention_mask=mask[:, :past], **{name: cache})
    return {"input_ids": torch.randint(3, 60, (batch, new)), "attention_mask": mask, name: cache}


def shapes(model: Any, past: Any = "past", mask: Any = "past+seq") -> dict[str, Any]:
    cache = {cache_argument(model.forward) or "": {0: "batch", 2: past}}
    return {"input_ids": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: mask}, **cache}


def asked(model: Any, dynamic_shapes: Any, past: int = 4) -> dict[str, Any]:
    """What is asked of the lengths, by the leaf that has them."""
    with torch_export_patches(patch=False):
        found = normalise(CallInputs.of(model.forward, (), inputs(model, past)), dynamic_shapes)
    lengths = {shape.leaf.name: shape.axes.get(2 if shape.leaf.rank == 4 else 0) for shape in found}
    return {name.partition(".")[2]: length for name, length in lengths.items() if "." in name}


@pytest.mark.parametrize("traced", [4, 19], ids=["within", "beyond"])
@pytest.mark.parametrize("kind", MODELS)
def test_one_name_for_all_lengths_of_a_cache_is_right_beyond_the_window(kind: str, traced: int) -> None:
    torch.manual_seed(0)
    model = MODELS[kind]()
    onnx_model = to_onnx(model, kwargs=inputs(model, traced), dynamic_shapes=shapes(model))
    assert all(axis.kept for axis in onnx_model.axes)
    for past in (1, WINDOW - 2, WINDOW - 1, WINDOW, 3 * WINDOW):
        given = inputs(model, past, new=3, batch=3)
        with torch.no_grad():
            expected = model(**copy.deepcopy(given)).logits
        with torch_export_patches(patch=False):
            feeds = {input_name(leaf.name): torch.as_tensor(leaf.value) for leaf in flatten_named(given)}
        got = onnx_model.run({value.name: feeds[value.name] for value in onnx_model.inputs})
        torch.testing.assert_close(got["logits"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_other_sizes_of_a_module_keep_to_the_window(kind: str) -> None:
    model = MODELS[kind]()
    report = validate_module(model, inputs(model, 4), shapes(model))
    assert report.ok, report.failure
    assert max(one.sizes["past"] for one in report.sets) > WINDOW
    assert not any("past_bounded" in one.sizes for one in report.sets)
    assert not report.refused


def test_a_layer_that_keeps_fewer_tokens_has_a_name_of_its_own() -> None:
    model = mixed()
    every = {"0.key": "past_bounded", "0.value": "past_bounded", "1.key": "past", "1.value": "past"}
    assert asked(model, shapes(model)) == every
    assert asked(model, shapes(model), past=19) == every
    each: list[dict[int, str]] = [{0: "batch", 2: "past"}] * 4
    assert asked(model, {**shapes(model), cache_argument(model.forward) or "": each}) == every


def test_the_number_of_all_tokens_is_what_the_lengths_were_called() -> None:
    model = sliding()
    own = dict.fromkeys(["0.key", "0.value", "1.key", "1.value"], "past_bounded")
    assert asked(model, shapes(model)) == {**own, "length": "past"}


def test_names_that_nothing_longer_has_stay() -> None:
    model = sliding()
    found = asked(model, shapes(model, "window", "all"))
    assert {name: length for name, length in found.items() if name != "length"} == dict.fromkeys(
        ["0.key", "0.value", "1.key", "1.value"], "window"
    )


def test_bounds_of_a_dim_are_those_of_the_window() -> None:
    model = mixed()
    found = asked(model, shapes(model, Dim("past", min=2, max=40), "all"))
    ends = {name: (length.__name__, length.min, length.max) for name, length in found.items()}
    assert ends["0.key"] == ("past_bounded", 2, WINDOW - 1)
    assert ends["1.key"] == ("past", 2, 40)


def test_lengths_that_are_not_equal_for_another_reason_are_an_error() -> None:
    model = mixed()
    with pytest.raises(InvalidArgumentError, match="calls axis 0 of input_ids and axis 1 of attention_mask both"):
        asked(model, shapes(model, mask="batch"))


def test_windows_of_several_widths_and_names_that_are_taken_are_told_apart() -> None:
    labels = {
        ("cache.0.key", 2): "past", ("cache.1.key", 2): "past", ("cache.2.key", 2): "past", ("x", 0): "past_bounded",
    }  # fmt: skip
    found = own_lengths(labels, {"cache.0": 5, "cache.1": 7})
    assert found == {
        ("cache.0.key", 2): SlidingLength("past", "past_bounded_2", 5),
        ("cache.1.key", 2): SlidingLength("past", "past_bounded_3", 7),
    }


def test_windows_are_found_in_any_container() -> None:
    model = mixed()
    cache = inputs(model, 4)[cache_argument(model.forward) or ""]
    both = EncoderDecoderCache(cache, DynamicCache())
    assert windows({"a": cache, "b": both, "c": {"d": [cache]}, "e": torch.ones(2)}) == {
        "a.0": WINDOW - 1, "b.self.0": WINDOW - 1, "c.d.0.0": WINDOW - 1,
    }  # fmt: skip


class KeptAlone(torch.nn.Module):
    """Does something else for more tokens than the layer keeps, of which there are never any."""

    def forward(self, x: torch.Tensor, past_key_values: Any) -> torch.Tensor:
        keys = past_key_values.layers[0].keys
        if keys.shape[2] > WINDOW - 1:
            keys = keys * 2
        return x + keys.sum()


@pytest.mark.parametrize("name", ["past", "kept"])
def test_more_tokens_than_a_layer_keeps_are_not_asked_for(name: str) -> None:
    cache = exportguard.make_sliding_window_cache([(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4))], window=WINDOW)
    model, x = KeptAlone().eval(), torch.randn(2, 3)
    dynamic_shapes = {"x": {1: "past"}, "past_key_values": {2: name}}
    onnx_model = to_onnx(model, kwargs={"x": x, "past_key_values": cache}, dynamic_shapes=dynamic_shapes)
    assert all(axis.kept for axis in onnx_model.axes)


def test_what_static_layers_count_is_one_number_at_all_sizes() -> None:
    """A layer has the number as a tensor, the cache as a number: a model is asked for no sizes at which they differ."""
    model: Any = transformers.MistralForCausalLM(transformers.MistralConfig(**SMALL)).eval()
    name = cache_argument(model.forward) or ""
    if not hasattr(transformers.cache_utils, "StaticSlidingWindowLayer"):
        pytest.skip("this version of transformers has no such layers")

    def given(batch: int, seq: int, past: int) -> dict[str, Any]:
        cache = transformers.StaticCache(config=model.config, max_cache_len=16)
        with torch.no_grad():
            model(input_ids=torch.randint(3, 60, (batch, past)), **{name: cache})
        mask = torch.ones(batch, past + seq, dtype=torch.int64)
        mask[0, : past // 2] = 0
        positions = torch.arange(past, past + seq).expand(batch, -1).clone()
        tokens = torch.randint(3, 60, (batch, seq))
        return {"input_ids": tokens, "attention_mask": mask, "position_ids": positions, name: cache}

    torch.manual_seed(0)
    layers = [{0: "batch"}, {0: "batch"}, None] * 2
    axes = {"input_ids": {0: "batch", 1: "seq"}, "position_ids": {0: "batch", 1: "seq"}}
    dynamic_shapes = {**axes, "attention_mask": {0: "batch", 1: "past+seq"}, name: [*layers, "past"]}
    onnx_model = to_onnx(model, kwargs=given(2, 3, 4), dynamic_shapes=dynamic_shapes, rewrite="auto")
    assert all(axis.kept for axis in onnx_model.axes)
    for sizes in ((1, 1, 1), (3, 2, 9), (2, 1, 12)):
        inputs_here = given(*sizes)
        with torch_export_patches(patch=False):
            feeds = {input_name(leaf.name): torch.as_tensor(leaf.value) for leaf in flatten_named(inputs_here)}
        got = onnx_model.run({value.name: feeds[value.name] for value in onnx_model.inputs})
        with torch.no_grad():
            expected = model(**inputs_here).logits
        torch.testing.assert_close(got["logits"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gemma3", "gemma2", "mistral", "gpt_oss"])
@pytest.mark.thinned(1)
def test_a_window_that_is_full_is_no_bound_of_the_model(name: str) -> None:
    """Trials of layers that keep fewer tokens than they would are refused; a file would take that for a limit."""
    report = validate_model(name)
    assert report.outcome == "ok", report.sets
    assert "past beyond the window" in [found.name for found in report.sets]
    assert not [bound for axis in report.axes for bound in axis.bounds if bound.kind == Kind.OWN]
