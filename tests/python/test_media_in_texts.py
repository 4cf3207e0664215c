"""Several pictures and films in texts, each of a shape of its own; small models that give out several layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING

from exportguard.models import BuildOptions, ModelCase, build_model, models_of_task
from exportguard.models.natural_inputs import main_input
from exportguard.models.shrink import shrunk
from exportguard.models.sources import source_of_module


def case_of(name: str, task: str) -> ModelCase:
    return build_model(name, BuildOptions(task=task))


def places(case: ModelCase, inputs: dict[str, Any], name: str) -> list[int]:
    """How many tokens of each text hold a place."""
    return (inputs["input_ids"] == getattr(case.model.config, name)).sum(1).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "grids"), [("qwen2_vl", "image_grid_thw"), ("mistral3", "image_sizes")])
def test_pictures_of_several_shapes_are_shared_out_among_the_texts(name: str, grids: str) -> None:
    case = case_of(name, "image-text-to-text")
    inputs = case.inputs({"batch": 2, "seq": 6, "rows": 2, "pictures": 3})
    assert inputs[grids].unique(dim=0).shape[0] == 2
    first, second = places(case, inputs, "image_token_id")
    assert first > second > 0
    assert inputs["attention_mask"].sum(1).tolist() == [first + 8, second + 6]
    with torch.no_grad():
        case.model(**inputs)


def test_a_model_of_one_picture_for_each_text_gets_one() -> None:
    inputs = case_of("mllama", "image-text-to-text").inputs({"batch": 2, "seq": 6, "rows": 2, "pictures": 3})
    assert inputs["pixel_values"].shape[:2] == (2, 1)


@pytest.mark.parametrize("name", ["qwen2_vl", "glm4v", "llava_next_video"])
def test_films_stand_in_texts(name: str) -> None:
    case = case_of(name, "video-text-to-text")
    inputs = case.inputs(case.task.sizes)
    assert inputs["pixel_values_videos"].shape[0] > 0
    assert "pixel_values" not in inputs
    with torch.no_grad():
        case.model(**inputs)


def test_only_models_that_make_features_of_films_can_do_that_task() -> None:
    names = models_of_task("video-text-to-text")
    assert "qwen2_vl" in names
    assert "llava" not in names


@pytest.mark.parametrize(
    ("name", "field", "count"),
    [("dpt", "backbone_out_indices", 4), ("data2vec-vision", "out_indices", 4), ("depth_anything", "out_indices", 4)],
)
def test_as_many_layers_give_out_their_features_as_did(name: str, field: str, count: int) -> None:
    config = shrunk(CONFIG_MAPPING[name]())
    vision = getattr(config, "backbone_config", None) or config
    chosen = getattr(vision, field)
    assert len(set(chosen)) == count
    assert max(chosen) <= vision.num_hidden_layers < 8


@pytest.mark.parametrize("given", [[2, 5, 8, 11], [3, 6, 9, 12]])
def test_the_last_layer_gives_out_features_where_it_did(given: list[int]) -> None:
    config = CONFIG_MAPPING["dinov2"](out_indices=given)
    small = shrunk(config)
    assert (small.out_indices[-1] == small.num_hidden_layers) == (given[-1] == 12)


OTHER_INPUTS = [
    ("lightglue", "feature-extraction", "pixel_values", (2, 2, 3, 64, 64)),
    ("siglip2_vision_model", "feature-extraction", "spatial_shapes", (2, 2)),
    ("lxmert", "feature-extraction", "visual_pos", (2, 5, 4)),
    ("granite_speech5_encoder", "feature-extraction", "input_features", (2, 112, 320)),
]


@pytest.mark.parametrize(("name", "task", "argument", "shape"), OTHER_INPUTS)
def test_a_model_gets_inputs_of_the_form_that_it_takes(
    name: str, task: str, argument: str, shape: tuple[int, ...]
) -> None:
    case = case_of(name, task)
    inputs = case.inputs(case.task.sizes)
    assert inputs[argument].shape == shape
    with torch.no_grad():
        case.model(**inputs)


class Stacked(torch.nn.Module):
    """Takes frames four at a time, which its configuration does not say."""

    main_input_name = "input_features"

    def __init__(self) -> None:
        super().__init__()
        self.config = CONFIG_MAPPING["bert"]()
        self.first = torch.nn.Linear(52, 8)

    def forward(self, input_features: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.first(input_features)
        return result


def test_the_width_of_features_is_read_off_the_first_layers() -> None:
    assert main_input.make_inputs(Stacked(), {"batch": 2, "seq": 6})["input_features"].shape[-1] == 52


def test_a_module_that_is_not_there_has_no_source() -> None:
    assert source_of_module("transformers.models.no_such.modeling_no_such") == ""
