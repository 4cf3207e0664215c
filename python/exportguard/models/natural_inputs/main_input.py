"""Whatever a model names as its main input: a text, pictures, or a recording."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidArgumentError
from . import image, text
from .tensors import Sizes, values

_SECOND = 1600  # samples; a tenth of a second at the 16 kHz of speech models


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """The inputs of the family that `model.main_input_name` belongs to.

    Raises:
        InvalidArgumentError: a main input of another kind.
    """
    name = model.main_input_name
    if name == "input_ids":
        return text.make_inputs(model, sizes)
    if name == "pixel_values":
        return image.make_inputs(model, sizes)
    if name == "input_values":
        return {name: values(model, (sizes["batch"], _SECOND * sizes["seq"]))}
    if name == "input_features":
        return {name: values(model, (sizes["batch"], *_features(model.config)))}
    raise InvalidArgumentError(
        f"no natural inputs are known for {type(model).__name__}, whose main input is {name}; pass another task"
    )


def _features(config: Any) -> tuple[int, int]:
    return config.num_mel_bins, config.max_source_positions * 2
