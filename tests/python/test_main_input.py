"""Inputs by the arguments of `forward`: what is required, and what a model turns out not to run without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from exportguard.errors import InvalidArgumentError
from exportguard.models import BuildOptions, build_model
from exportguard.models.natural_inputs import main_input

SIZES = {"batch": 2, "seq": 6}

SHAPES = {
    "bert": {"input_ids": (2, 6), "attention_mask": (2, 6), "token_type_ids": (2, 6)},
    "vit": {"pixel_values": (2, 3, 32, 32)},
    "idefics3_vision": {"pixel_values": (2, 3, 32, 32)},
    "clip": {"input_ids": (2, 6), "attention_mask": (2, 6), "pixel_values": (2, 3, 32, 32)},
    "mt5": {"input_ids": (2, 6), "attention_mask": (2, 6), "decoder_input_ids": (2, 6)},
    "bros": {"input_ids": (2, 6), "attention_mask": (2, 6), "token_type_ids": (2, 6), "bbox": (2, 6, 4)},
    "wav2vec2": {"input_values": (2, 11900)},
    "encodec": {"input_values": (2, 1, 11900), "padding_mask": (2, 11900)},
    "parakeet_encoder": {"input_features": (2, 112, 80), "attention_mask": (2, 112)},
    "moonshine": {"input_values": (2, 11900), "decoder_input_ids": (2, 6)},
    "videomae": {"pixel_values": (2, 16, 3, 32, 32)},
    "patchtst": {"past_values": (2, 32, 1)},
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_model_gets_what_it_runs_on(name: str) -> None:
    case = build_model(name, BuildOptions(task="feature-extraction"))
    inputs = case.inputs(SIZES)
    assert {name: tuple(value.shape) for name, value in inputs.items()} == SHAPES[name]
    with torch.no_grad():
        case.model(**inputs)
        case.model(**case.inputs({"batch": 3, "seq": 8}))


class Model(torch.nn.Module):
    main_input_name = "input_features"
    config = LlamaConfig(num_mel_bins=5, max_source_positions=7)

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))


class OfOneLength(Model):
    def forward(self, input_features: torch.Tensor) -> Any:
        if input_features.shape[1:] != (5, 14):
            raise ValueError("as long as the positions")


class OfAnyLength(Model):
    def forward(self, input_features: torch.Tensor, attention_mask: Any = None) -> Any:
        return input_features[..., :5] * attention_mask[..., None]


class OfNothing(Model):
    def forward(self, input_features: torch.Tensor) -> Any:
        raise NotImplementedError("not at all")


class OfSomethingElse(Model):
    def forward(self, input_features: torch.Tensor, colours: Any) -> Any: ...


def test_an_axis_that_the_model_fixes_does_not_change() -> None:
    model = OfOneLength()
    shapes = [main_input.make_inputs(model, {**SIZES, "seq": seq})["input_features"].shape for seq in (3, 6)]
    assert shapes == [(2, 5, 14)] * 2


def test_an_axis_that_the_model_leaves_open_changes_and_its_mask_with_it() -> None:
    model = OfAnyLength()
    first, second = (main_input.make_inputs(model, {**SIZES, "seq": seq}) for seq in (3, 6))
    assert first["input_features"].shape == (2, 64, 5)
    assert second["input_features"].shape == (2, 112, 5)
    assert second["attention_mask"].shape == (2, 112)


def test_a_model_that_runs_on_nothing_gets_the_usual_form() -> None:
    assert list(main_input.make_inputs(OfNothing(), SIZES)) == ["input_features"]


def test_an_argument_that_is_not_known_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="OfSomethingElse, which takes input_features, colours; pass"):
        main_input.make_inputs(OfSomethingElse(), SIZES)


class BeginsWithATextOfItsOwn(torch.nn.Module):
    """As a diffusion of texts does; a second argument that it draws nothing for stands before it."""

    main_input_name = "input_ids"
    config = LlamaConfig(vocab_size=20)

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 4)

    def forward(self, input_ids: torch.Tensor, pixel_values: Any = None, decoder_input_ids: Any = None) -> torch.Tensor:
        if decoder_input_ids is None:
            decoder_input_ids = torch.randint(20, input_ids.shape)
        return self.embedding(input_ids) + self.embedding(decoder_input_ids)


def test_a_model_is_given_what_it_would_draw() -> None:
    inputs = main_input.make_inputs(BeginsWithATextOfItsOwn().eval(), SIZES)
    assert {"input_ids", "decoder_input_ids"} <= set(inputs)
    assert "pixel_values" not in inputs
