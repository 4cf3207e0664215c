"""The names of axes and inputs, whatever users call them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim
from transformers import LlamaConfig, LlamaForCausalLM

from exportguard import observe_inputs, register_class_serialization, to_onnx, unregister_class_serialization
from exportguard.cache_names import cache_argument


class Doubles(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize(
    ("asked", "name"),
    [("5", "d5"), ("größe", "gr__e"), ("batch size", "batch_size"), ("a-b", "a_b"), ("Max", "Max"), ("时间", "__")],
)
def test_an_axis_of_any_name_changes(asked: str, name: str) -> None:
    model = to_onnx(Doubles(), (torch.zeros(3, 4),), dynamic_shapes={"x": {0: asked}})
    assert model.inputs[0].shape == (name, 4)
    assert next(iter(model.run({"x": torch.ones(7, 4)}).values())).shape == (7, 4)


def test_names_that_look_alike_stay_two() -> None:
    model = to_onnx(Doubles(), (torch.zeros(3, 4),), dynamic_shapes={"x": {0: "a-b", 1: "a+b"}})
    assert model.inputs[0].shape == ("a_b", "a_b_1")


def test_a_derived_dim_is_told_in_the_name_that_it_is_derived_from() -> None:
    model = to_onnx(Doubles(), (torch.zeros(6, 4),), dynamic_shapes={"x": {0: 2 * Dim("half", min=2)}})
    assert [axis.size for axis in model.axes] == ["2*half"]


class Pair:
    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


class Adds(torch.nn.Module):
    def forward(self, pair: Pair) -> torch.Tensor:
        return pair.left + pair.right  # type: ignore[no-any-return]


def test_the_keys_of_a_registered_class_name_its_inputs() -> None:
    register_class_serialization(
        Pair, lambda pair: ([pair.left, pair.right], None), lambda leaves, _: Pair(*leaves), keys=lambda _: ["a", "b"]
    )
    try:
        shapes = {"pair": {"a": {0: "n"}, "b": {0: "n"}}}
        model = to_onnx(Adds(), (Pair(torch.ones(2), torch.ones(2)),), dynamic_shapes=shapes)
    finally:
        unregister_class_serialization(Pair)
    assert [value.name for value in model.inputs] == ["pair.a", "pair.b"]


def test_what_is_observed_in_generate_has_the_shapes_of_the_cache() -> None:
    config = LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=20, pad_token_id=0
    )
    model = LlamaForCausalLM(config).eval()
    with observe_inputs(model) as seen:
        model.generate(torch.ones(1, 3, dtype=torch.int64), max_new_tokens=4, do_sample=False)
    shapes = seen.dynamic_shapes()
    (key, value) = shapes[cache_argument(model.forward) or ""]
    assert set(key) == set(value) == {2}
