"""A text with a picture in it: the picture's place is held by as many image tokens as the model makes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ...errors import InvalidArgumentError
from .image import pictures
from .tensors import Sizes, mask, text_config, tokens

_EXTRACT = "get_image_features"
#: In the name of an argument that tells how the pictures were cut.
_FORM = ("grid", "sizes", "shapes", "pixel_", "position", "qformer")
_IMAGE_TOKENS = ("image_token_id", "image_token_index")


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """`batch` texts of `seq` tokens, each behind one picture.

    A model that takes pictures in a form of its own (as patches with a grid, say) gets the texts alone.

    Raises:
        InvalidArgumentError: it names no token that holds the place of a picture.
    """
    batch, seq = sizes["batch"], sizes["seq"]
    text = tokens(model, (batch, seq))
    extract = _feature_extractor(model)
    if extract is None:
        return {"input_ids": text, "attention_mask": mask(model, batch, seq)}
    pixels = {"pixel_values": pictures(model, model.config, batch)}
    places = torch.full((batch, _tokens_of_a_picture(model, extract(**pixels), batch)), _image_token(model))
    ids = torch.cat([places.to(text.device), text], dim=1)
    return {"input_ids": ids, "attention_mask": mask(model, batch, ids.shape[1]), **pixels}


def _feature_extractor(model: Any) -> Callable[..., Any] | None:
    """What makes features of plain pictures; None if the model has no such function."""
    owners = (model, getattr(model, "model", None))
    extract = next((getattr(owner, _EXTRACT) for owner in owners if hasattr(owner, _EXTRACT)), None)
    if extract is None:
        return None
    names = set(inspect.signature(extract).parameters)
    form = [name for name in names - {"pixel_values"} if any(word in name for word in _FORM)]
    is_needed = [name for name in form if name != "image_sizes" or _has_no_default(extract, name)]
    return None if "pixel_values" not in names or is_needed else torch.no_grad()(extract)


def _has_no_default(function: Callable[..., Any], name: str) -> bool:
    return inspect.signature(function).parameters[name].default is inspect.Parameter.empty


def _tokens_of_a_picture(model: Any, features: Any, batch: int) -> int:
    features = getattr(features, "pooler_output", features)
    rows = torch.cat(list(features)) if isinstance(features, (list, tuple)) else features
    return int(rows.numel() // text_config(model).hidden_size // batch)


def _image_token(model: Any) -> int:
    token = next((getattr(model.config, name) for name in _IMAGE_TOKENS if hasattr(model.config, name)), None)
    if token is None:
        raise InvalidArgumentError(f"{type(model.config).__name__} names no image token; pass another task")
    return int(token)
