"""A text with a picture in it: the picture's place is held by as many image tokens as the model makes of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ...errors import REFUSALS
from .picture_forms import Form, forms
from .search import Search
from .tensors import Sizes, mask, text_config, tokens, values

_EXTRACT = "get_image_features"
_IMAGE_TOKENS = ("image_token_id", "image_token_index", "img_context_token_id")
_FEATURES = ("pooler_output", "last_hidden_state")
_places: Search[int] = Search()


def make_inputs(model: object, sizes: Sizes) -> dict[str, Any]:
    """`batch` texts of `seq` tokens, each behind one picture, of `rows` rows where it may have any size.

    A model that takes pictures in none of the forms known gets the texts alone.
    """
    candidates = enumerate(_candidates(model, sizes))
    place = _places(model, lambda: ((place, [inputs]) for place, inputs in candidates if inputs))
    return _text(model, sizes) if place is None else list(_candidates(model, sizes))[place]


def _candidates(model: Any, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """For each form that the pictures may have, all inputs; {} where the model makes no features of it."""
    names = inspect.signature(model.forward).parameters
    for form in forms(model, _names_of_forms(model), sizes["batch"], sizes.get("rows", 2)):
        yield _with_text(model, {name: value for name, value in form.items() if name in names}, sizes)


def _names_of_forms(model: Any) -> set[str]:
    """The arguments that tell how pictures were cut: those of what makes features of them, if it names them."""
    extract = _feature_extractor(model)
    own = set(inspect.signature(extract).parameters) if extract is not None else set()
    return own if "pixel_values" in own else set(inspect.signature(model.forward).parameters)


def _with_text(model: object, form: Form, sizes: Sizes) -> dict[str, Any]:
    held = _tokens_of_a_picture(model, form, sizes)
    inputs = {} if held is None else {**_text(model, sizes, held), **form}
    return {**inputs, **_positions(model, inputs)} if inputs else {}


def _positions(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Positions as `generate` passes them, where the model cannot tell pictures from text by an argument."""
    names = inspect.signature(model.forward).parameters
    if not hasattr(model, "get_rope_index") or "mm_token_type_ids" in names or "image_grid_thw" not in inputs:
        return {}
    known = inspect.signature(model.get_rope_index).parameters
    positions, _ = model.get_rope_index(**{name: value for name, value in inputs.items() if name in known})
    return {"position_ids": positions}


def _text(model: Any, sizes: Sizes, held: int = 0) -> dict[str, Any]:
    """`held` places for a picture before the tokens of each text, and what the model wants to know of them."""
    batch = sizes["batch"]
    ids = tokens(model, (batch, sizes["seq"]))
    places = torch.full((batch, held), _image_token(model) or 0, dtype=ids.dtype, device=ids.device)
    ids = torch.cat([places, ids], dim=1)
    kinds = torch.zeros_like(ids)
    kinds[:, :held] = 1
    inputs = {"input_ids": ids, "attention_mask": mask(model, batch, ids.shape[1])}
    inputs |= dict.fromkeys(("mm_token_type_ids", "token_type_ids", "image_embeds_position_mask"), kinds)
    inputs["qformer_input_ids"] = tokens(model, (batch, sizes["seq"]))
    targets = getattr(model.config, "canvas_length", sizes["seq"] if model.config.is_encoder_decoder else 0)
    inputs |= {"decoder_input_ids": tokens(model, (batch, targets))} if targets else {}
    inputs["bbox"] = values(model, (batch, ids.shape[1], 4)).sigmoid().sort(-1).values
    inputs["image_attention_mask"] = torch.ones_like(ids)[..., None]
    inputs["cross_attention_mask"] = torch.ones_like(ids)[..., None, None].expand(-1, -1, 1, _tiles(model))
    names = inspect.signature(model.forward).parameters
    return {name: value for name, value in inputs.items() if name in names}


def _tokens_of_a_picture(model: Any, form: Form, sizes: Sizes) -> int | None:
    """How many tokens the model makes of a picture; 0 if it does not put them in the text, None if it refuses them."""
    extract = _feature_extractor(model)
    if extract is None or _image_token(model) is None:
        return int(getattr(model.config, "latent_query_num", 0))
    names = inspect.signature(extract).parameters
    asked = {name: value for name, value in _text(model, sizes).items() if name in names}
    try:
        with torch.no_grad():
            found = extract(**asked, **form)
    except REFUSALS:
        return None
    features = _features_of(found)
    rows = torch.cat(list(features)) if isinstance(features, (list, tuple)) else features
    return int(rows.numel() // text_config(model).hidden_size // sizes["batch"])


def _features_of(found: Any) -> Any:
    """What takes the places in the text; where each layer gets features of its own, those of the first."""
    by_name = (getattr(found, name, None) for name in _FEATURES)
    features = next((value for value in by_name if value is not None), None)
    return found.deepstack_features[0][1] if features is None else features


def _feature_extractor(model: object) -> Any:
    owners = (model, getattr(model, "model", None))
    return next((getattr(owner, _EXTRACT) for owner in owners if hasattr(owner, _EXTRACT)), None)


def _tiles(model: Any) -> int:
    """How many pieces a picture may be cut into."""
    return int(getattr(getattr(model.config, "vision_config", None), "max_num_tiles", 1))


def _image_token(model: Any) -> int | None:
    found = (getattr(model.config, name, None) for name in _IMAGE_TOKENS)
    return next((token for token in found if token is not None), None)
