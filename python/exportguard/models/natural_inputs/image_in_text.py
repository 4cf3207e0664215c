"""A text with a picture in it: the picture's place is held by as many image tokens as the model makes of it."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from ...errors import InvalidArgumentError
from .image import pictures
from .tensors import Sizes, mask, text_config, tokens

_IMAGE_TOKENS = ("image_token_id", "image_token_index")


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """`batch` texts of `seq` tokens, each behind one picture.

    Raises:
        InvalidArgumentError: the model takes pictures in another form than pixels of one size.
    """
    batch, seq = sizes["batch"], sizes["seq"]
    pixels = {"pixel_values": pictures(model, model.config, batch)}
    places = torch.full((batch, _tokens_of_a_picture(model, pixels, batch)), _image_token(model))
    text = tokens(model, (batch, seq))
    ids = torch.cat([places.to(text.device), text], dim=1)
    return {"input_ids": ids, "attention_mask": mask(model, batch, ids.shape[1]), **pixels}


def _tokens_of_a_picture(model: Any, pixels: dict[str, torch.Tensor], batch: int) -> int:
    extract = getattr(model, "get_image_features", None) or getattr(model.model, "get_image_features", None)
    if extract is None or "pixel_values" not in inspect.signature(extract).parameters:
        raise InvalidArgumentError(f"no natural inputs are known for {type(model).__name__}; pass another task")
    with torch.no_grad():
        features = extract(**pixels)
    features = getattr(features, "pooler_output", features)
    rows = torch.cat(list(features)) if isinstance(features, (list, tuple)) else features
    return int(rows.numel() // text_config(model).hidden_size // batch)


def _image_token(model: Any) -> int:
    token = next((getattr(model.config, name) for name in _IMAGE_TOKENS if hasattr(model.config, name)), None)
    if token is None:
        raise InvalidArgumentError(f"{type(model.config).__name__} names no image token; pass another task")
    return int(token)
