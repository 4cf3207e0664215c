"""Pictures of the size that the model was configured for."""

from __future__ import annotations

import inspect
from typing import Any

from .picture_forms import forms
from .pixels import pictures
from .tensors import Sizes, tokens

__all__ = ["make_inputs", "picture_arguments", "pictures"]


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """`batch` pictures, of a `height` and `width` if there are such; as rows of colours from a palette for a model that
    reads them like a text."""
    if model.main_input_name == "input_ids":
        return {"input_ids": tokens(model, (sizes["batch"], model.config.max_position_embeddings))}
    if "height" in sizes:
        return {"pixel_values": pictures(model, model.config, sizes["batch"], (sizes["height"], sizes["width"]))}
    return picture_arguments(model, model.config, sizes["batch"])


def takes_whole_pictures(model: Any) -> bool:
    """Whether a model takes pictures as they are, one after the other: no patches, films, or rows of colours."""
    names = inspect.signature(model.forward).parameters
    return model.main_input_name == "pixel_values" and "pixel_values" in names and "spatial_shapes" not in names


def picture_arguments(model: Any, config: Any, count: int) -> dict[str, Any]:
    """`count` pictures, in patches with the shape of each for a model that takes those; films for one of films."""
    names = inspect.signature(model.forward).parameters
    if "spatial_shapes" in names:
        return next(forms(model, ("spatial_shapes",), [2 + place % 2 for place in range(count)]))
    if "pixel_values" not in names and "pixel_values_videos" in names:
        frames = int(getattr(config, "num_frames", 1))
        films = pictures(model, config, count * frames)
        return {"pixel_values_videos": films.view(count, frames, *films.shape[1:])}
    return {"pixel_values": pictures(model, config, count)}
