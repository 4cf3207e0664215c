"""Texts with pictures in them: the form in which each model takes the pictures."""

from __future__ import annotations

import pytest
import torch

from exportguard.models import BuildOptions, ModelCase, build_model

SHAPES = {
    "plain": ("llava", {"pixel_values": (2, 3, 32, 32)}),
    "patches and their grid": ("qwen2_vl", {"pixel_values": (32, 384), "image_grid_thw": (2, 3)}),
    "patches that are pictures": ("paddleocr_vl", {"pixel_values": (32, 3, 8, 8), "image_grid_thw": (2, 3)}),
    "several for each text": ("idefics3", {"pixel_values": (2, 1, 3, 32, 32)}),
    "pictures and their sizes": ("mistral3", {"pixel_values": (2, 3, 32, 32), "image_sizes": (2, 2)}),
    "patches that are padded": ("lfm2_vl", {"pixel_values": (2, 16, 192), "spatial_shapes": (2, 2)}),
    "patches behind their places": ("pix2struct", {"flattened_patches": (2, 4, 770)}),
}


def case_of(name: str) -> ModelCase:
    return build_model(name, BuildOptions(task="image-text-to-text"))


@pytest.mark.parametrize(("name", "shapes"), SHAPES.values(), ids=SHAPES)
def test_pictures_have_the_form_that_the_model_takes(name: str, shapes: dict[str, tuple[int, ...]]) -> None:
    case = case_of(name)
    inputs = case.inputs(case.task.sizes)
    assert {key: tuple(inputs[key].shape) for key in shapes} == shapes
    with torch.no_grad():
        case.model(**inputs)


def test_pictures_of_any_size_have_as_many_rows_as_asked_for() -> None:
    case = case_of("qwen2_vl")
    inputs = case.inputs({"batch": 2, "seq": 6, "rows": 3})
    assert inputs["image_grid_thw"].tolist() == [[1, 6, 4]] * 2
    held = inputs["input_ids"] == case.model.config.image_token_id  # type: ignore[union-attr]
    assert held.sum(1).tolist() == [6, 6]
    assert torch.equal(inputs["mm_token_type_ids"], held.long())


def test_a_model_that_takes_pictures_in_no_form_known_gets_the_text_alone() -> None:
    case = case_of("fuyu")
    assert set(case.inputs(case.task.sizes)) == {"input_ids", "attention_mask"}
