"""Features that are split into pictures and joined again stay one tensor, with its rows whatever their number is."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

from called import CalledWithTwo
from exportguard import OnnxModel, to_onnx
from exportguard.joined_parts import joined_parts
from exportguard.patches.transformers.picture_parts import Joined, of_each, parts_of, squeezed_to_split


def test_what_is_squeezed_to_be_split_is_named() -> None:
    tree = Joined().visit(ast.parse("out.parts = torch.split(out.features.squeeze(0), sizes)"))
    assert ast.unparse(tree) == "out.parts = parts_of(squeezed_to_split(out.features), sizes)"
    tree = Joined().visit(ast.parse("parts = torch.split(features.squeeze(1), sizes, dim=0)"))
    assert ast.unparse(tree) == "parts = parts_of(features.squeeze(1), sizes, dim=0)"


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (1, 1), (1, 2, 3), (2, 2, 3), (1,), ()], ids=str)
def test_it_is_squeezed_in_eager(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    assert torch.equal(squeezed_to_split(x), x.squeeze(0))


def test_rows_that_data_count_stay_rows_in_a_file() -> None:
    def joined(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return torch.cat([*parts_of(squeezed_to_split(x[chosen]), chosen.sum()[None])]) * 2

    example = (torch.randn(5, 3), torch.tensor([True, False, True, True, False]))
    onnx = to_onnx(CalledWithTwo(joined).eval(), example, dynamic_shapes=({0: "rows"}, {0: "rows"}))
    for chosen in ([True, True, False], [False, False, True], [False, False]):
        x, mask = torch.randn(len(chosen), 3), torch.tensor(chosen)
        (found,) = onnx.run({"x": x, "y": mask}).values()
        torch.testing.assert_close(found, x[mask] * 2)


def test_what_is_made_of_all_parts_is_all_of_what_is_made_of_each() -> None:
    tree = Joined().visit(ast.parse("kept = [f.reshape(-1, n) for f in states.split(sizes) if f]"))
    assert "of_each" not in ast.unparse(tree)
    tree = Joined().visit(ast.parse("out = [f.reshape(-1, n) for f in states.split(sizes.tolist())]"))
    assert ast.unparse(tree) == "out = of_each(parts_of(states, numbers_of(sizes)), lambda f: f.reshape(-1, n))"
    assert of_each([1, 2], lambda one: one + 1) == [2, 3]
    with joined_parts() as found:
        parts = parts_of(torch.zeros(3, 2), torch.tensor([1, 2]))
        (made,) = of_each(parts, lambda part: part * 2)
    assert any(made is whole for whole in found.wholes)


SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
PICTURE, TOKEN = CLIPVisionConfig(**SMALL, image_size=16, patch_size=8), 95  # 4 patches


def llava() -> tuple[torch.nn.Module, Callable[[int], dict[str, torch.Tensor]]]:
    text = LlamaConfig(**SMALL, vocab_size=96)
    config = LlavaConfig(vision_config=PICTURE, text_config=text, image_token_index=TOKEN, vision_feature_layer=-1)

    def inputs(pictures: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor([[5, *[TOKEN] * (4 * pictures), 7, 8]])
        return {"input_ids": ids, "pixel_values": torch.rand(pictures, 3, 16, 16)}

    return LlavaForConditionalGeneration(config).eval(), inputs


def idefics() -> tuple[torch.nn.Module, Callable[[int], dict[str, torch.Tensor]]]:
    text = {"model_type": "llama", **SMALL, "vocab_size": 96}
    vision = {**SMALL, "image_size": 16, "patch_size": 8}
    config = Idefics3Config(vision_config=vision, text_config=text, image_token_id=TOKEN, scale_factor=2)

    def inputs(texts: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor([[5, TOKEN, 7, TOKEN]] * texts)
        return {"input_ids": ids, "pixel_values": torch.rand(texts, 2, 3, 16, 16)}

    return Idefics3ForConditionalGeneration(config).eval(), inputs


CHANGING: dict[str, Any] = {
    "llava": (llava, {"input_ids": {1: "seq"}, "pixel_values": {0: "pictures"}}),
    "idefics": (idefics, {"input_ids": {0: "batch"}, "pixel_values": {0: "batch"}}),
}


def parts(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [*model(**inputs).image_outputs.pooler_output]


def names_of_parts(onnx: OnnxModel) -> list[str]:
    return [value.name for value in onnx.outputs if "pooler_output" in value.name]


@pytest.mark.parametrize(("name", "count"), [("llava", 3), ("idefics", 3), ("idefics", 1)])
def test_parts_of_which_data_tell_the_number_are_one_output_under_the_name_of_the_list(
    name: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    make, shapes = CHANGING[name]
    model, inputs = make()
    with caplog.at_level(logging.WARNING, logger="exportguard.joined_parts"):
        onnx = to_onnx(model, kwargs=inputs(count), dynamic_shapes=shapes)
    assert names_of_parts(onnx) == ["image_outputs.pooler_output"]
    told = [entry.getMessage() for entry in caplog.records if entry.name == "exportguard.joined_parts"]
    assert len(told) == 1
    assert "image_outputs.pooler_output has all parts of a list behind each other" in told[0]
    for other in (1, 2, 4):
        given = inputs(other)
        expected = parts(model, given)
        torch.testing.assert_close(onnx.run(given)["image_outputs.pooler_output"], torch.cat(expected))


@pytest.mark.parametrize("count", [1, 3])
def test_pictures_of_a_fixed_number_are_an_output_each(count: int, caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = llava()
    with caplog.at_level(logging.WARNING, logger="exportguard.joined_parts"):
        onnx = to_onnx(model, kwargs=inputs(count))
    assert names_of_parts(onnx) == [f"image_outputs.pooler_output.{at}" for at in range(count)]
    assert not [entry for entry in caplog.records if entry.name == "exportguard.joined_parts"]
    given = inputs(count)
    got = onnx.run(given)
    for at, part in enumerate(parts(model, given)):
        torch.testing.assert_close(got[f"image_outputs.pooler_output.{at}"], part)
