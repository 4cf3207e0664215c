"""Texts with pictures in them: the form in which each model takes the pictures."""

from __future__ import annotations

import pytest
import torch
from transformers import CONFIG_MAPPING

from exportguard.models import BuildOptions, ModelCase, build_model
from exportguard.models.shrink import shrunk

#: Two texts with three pictures of two shapes between them, where a text may have several.
SHAPES = {
    "plain": ("llava", {"pixel_values": (3, 3, 32, 32)}),
    "patches and their grid": ("qwen2_vl", {"pixel_values": (64, 384), "image_grid_thw": (3, 3)}),
    "patches that are pictures": ("paddleocr_vl", {"pixel_values": (64, 3, 8, 8), "image_grid_thw": (3, 3)}),
    "several for each text": ("idefics3", {"pixel_values": (3, 1, 3, 32, 32)}),
    "pictures and their sizes": ("mistral3", {"pixel_values": (3, 3, 48, 32), "image_sizes": (3, 2)}),
    "patches that are padded": ("lfm2_vl", {"pixel_values": (3, 24, 192), "spatial_shapes": (3, 2)}),
    "tiles and the ratio of their sides": (
        "mllama",
        {"pixel_values": (2, 1, 4, 3, 32, 32), "aspect_ratio_ids": (2, 1)},
    ),
    "tiles behind the whole": ("llava_next", {"pixel_values": (3, 3, 3, 32, 32), "image_sizes": (3, 2)}),
    "patches and their places": ("gemma4", {"pixel_values": (3, 54, 192), "image_position_ids": (3, 54, 2)}),
    "with a text for what asks of them": ("instructblip", {"qformer_input_ids": (2, 6)}),
    "with the places that they take": ("kosmos-2", {"image_embeds_position_mask": (2, 136)}),
    "patches behind their places": ("pix2struct", {"flattened_patches": (2, 6, 770)}),
    "patches without places": ("fuyu", {"pixel_values": (3, 6, 192)}),
    "several, of which some count": ("granite_docling", {"pixel_values": (3, 1, 3, 32, 32)}),
    "features for each layer": ("granite4_vision", {"pixel_values": (3, 3, 3, 32, 32), "image_sizes": (3, 2)}),
    "in two resolutions": ("deepseek_vl_hybrid", {"high_res_pixel_values": (3, 3, 32, 32)}),
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
    assert inputs["image_grid_thw"].tolist() == [[1, 6, 4], [1, 8, 4]]
    held = inputs["input_ids"] == case.model.config.image_token_id  # type: ignore[union-attr]
    assert held.sum(1).tolist() == [6, 8]
    assert torch.equal(inputs["mm_token_type_ids"], held.long())


def test_a_model_that_takes_pictures_in_no_form_known_gets_the_text_alone() -> None:
    case = case_of("inkling2")
    assert set(case.inputs(case.task.sizes)) == {"input_ids", "attention_mask"}


def test_pictures_in_tiles_are_less_wide_the_more_rows_are_asked_for() -> None:
    case = case_of("llava_next")
    sizes = [case.inputs({"batch": 1, "seq": 6, "rows": rows})["image_sizes"].tolist() for rows in (2, 5)]
    assert sizes == [[[32, 48]], [[32, 24]]]


def test_a_window_in_pixels_holds_two_blocks_of_patches() -> None:
    small = shrunk(CONFIG_MAPPING["qwen2_5_vl"]()).vision_config
    assert (small.window_size, small.patch_size, small.spatial_merge_size) == (32, 8, 2)
    assert shrunk(CONFIG_MAPPING["swin"]()).window_size == 2


def test_pictures_are_cut_to_as_many_tiles_of_the_small_size() -> None:
    small = shrunk(CONFIG_MAPPING["llava_next"]())
    assert small.vision_config.image_size == 32
    assert small.image_grid_pinpoints == [[32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]


def test_an_exception_holds_for_a_nested_configuration_of_its_type() -> None:
    assert shrunk(CONFIG_MAPPING["mllama"]()).vision_config.intermediate_layers_indices == [0, 1]


def test_only_a_task_with_pictures_adds_the_part_that_sees_them() -> None:
    text = build_model("gemma4", BuildOptions(task="text-generation")).model
    assert case_of("gemma4").model.config.vision_config is not None  # type: ignore[union-attr]
    assert text.config.vision_config is None  # type: ignore[union-attr]


@pytest.mark.parametrize(("task", "count"), [("image-classification", 2), ("zero-shot-image-classification", 3)])
def test_patches_with_shapes_go_with_every_task(task: str, count: int) -> None:
    case = build_model("siglip2", BuildOptions(task=task))
    inputs = case.inputs({"batch": count, "texts": 2, "seq": 6, "images": count})
    assert inputs["spatial_shapes"].tolist() == [[4, 4], [6, 4], [4, 4]][:count]
    with torch.no_grad():
        case.model(**inputs)


def test_a_backbone_of_a_package_that_is_missing_becomes_a_residual_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    backbone = shrunk(CONFIG_MAPPING["deformable_detr"]()).backbone_config
    assert (backbone.model_type, backbone.out_features) == ("resnet", ["stage2", "stage3", "stage4"])


def test_a_model_of_films_gets_films() -> None:
    case = build_model("videoprism", BuildOptions(task="zero-shot-image-classification"))
    inputs = case.inputs({"texts": 3, "seq": 6, "images": 2})
    assert inputs["pixel_values_videos"].shape == (2, 16, 3, 32, 32)
    with torch.no_grad():
        case.model(**inputs)
