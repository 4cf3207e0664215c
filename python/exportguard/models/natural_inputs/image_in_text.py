"""Texts with pictures in them: a picture's place is held by as many image tokens as the model makes of it."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...errors import REFUSALS, InvalidArgumentError
from .picture_forms import Form, forms
from .search import Search
from .tensors import Sizes, source_of, text_config, tokens, values

_FRAMES = 2  # of a film
_FEATURES = ("pooler_output", "last_hidden_state")
_GRIDS = (
    "image_grid_thw", "video_grid_thw", "image_grid_hw", "target_sizes", "target_sizes_videos", "spatial_shapes",
    "image_sizes",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Medium:
    """What is put into texts: what makes features of it, and the fields and arguments that it goes by.

    `renamed` has the arguments that take its pictures, by what those of single pictures are called. `kind` is what
    tokens of it are in a list of their kinds. `places` knows of each model the first candidate that it runs on.
    """

    extract: str
    tokens: Sequence[str]
    kind: int
    renamed: Mapping[str, str] = field(default_factory=dict)
    is_film: bool = False
    places: Search[int] = field(default_factory=Search)

    def named(self, form: Form) -> Form:
        """The form under the names of the medium's own arguments."""
        if not self.renamed:
            return form
        return {other: form[name] for name, other in self.renamed.items() if name in form}


IMAGE = Medium(
    extract="get_image_features", tokens=("image_token_id", "image_token_index", "img_context_token_id"), kind=1
)


def make_inputs(model: object, sizes: Sizes, medium: Medium = IMAGE) -> dict[str, Any]:
    """`batch` texts of `seq` tokens behind `pictures` pictures, which are shared out among them.

    Where pictures may have any size the first has `rows` rows, and the others one more. A model for which each text has
    one picture gets those. One that takes pictures in none of the forms known gets the texts alone.
    """
    candidates = enumerate(_candidates(model, sizes, medium))
    place = medium.places(model, lambda: ((place, [inputs]) for place, inputs in candidates if inputs))
    if place is not None:
        return next(itertools.islice(_candidates(model, sizes, medium), place, None))
    if medium.is_film:
        raise InvalidArgumentError(f"no films are known that {type(model).__name__} takes; pass another task")
    return _text(model, sizes, [[]] * sizes["batch"], medium)


def _candidates(model: Any, sizes: Sizes, medium: Medium) -> Iterator[dict[str, Any]]:
    """For each form that the pictures may have, all inputs; {} where the model makes no features of it."""
    names = inspect.signature(model.forward).parameters
    batch, rows = sizes["batch"], sizes.get("rows", 2)
    for count in (sizes.get("pictures", batch), batch):
        shared = [count // batch + (text < count % batch) for text in range(batch)]
        for form in forms(model, _names_of_forms(model, medium), [rows + (place > 0) for place in range(count)]):
            given = medium.named(_as_films(form) if medium.is_film else form)
            given = {name: value for name, value in given.items() if name in names}
            for one, pieces in _ways_to_stand(model, medium):
                yield _with_text(model, given, _Shares(shared, pieces, one), sizes)


def _ways_to_stand(model: Any, medium: Medium) -> Iterator[tuple[Medium, int]]:
    """What holds the places in a text, and in how many pieces: a film may stand frame by frame, as pictures do."""
    present = [name for name in medium.tokens if getattr(model.config, name, None) is not None]
    for name in present[: None if medium.is_film else 1] or medium.tokens[:1]:
        for pieces in (1, _FRAMES) if medium.is_film else (1,):
            yield replace(medium, tokens=(name,)), pieces


@dataclass(frozen=True)
class _Shares:
    """How many pictures each text gets, and in how many pieces the tokens of each of them stand in it."""

    counts: Sequence[int]
    pieces: int
    medium: Medium

    def of(self, held: Sequence[int]) -> list[list[int]]:
        """For each text the lengths of its pieces; `held` are those of all pictures."""
        remaining = iter(held)
        pictures = [list(itertools.islice(remaining, count)) for count in self.counts]
        return [[length // self.pieces for length in row for _ in range(self.pieces)] for row in pictures]


def _as_films(form: Form) -> Form:
    """The same for films of a few frames, each as one of the pictures."""
    pixels, grid = form["pixel_values"], form.get("image_grid_thw")
    if grid is not None:
        times = torch.cat([torch.full_like(grid[:, :1], _FRAMES), grid[:, 1:]], dim=1)
        return {**form, "pixel_values": torch.cat([pixels] * _FRAMES), "image_grid_thw": times}
    if "target_sizes" in form or pixels.dim() != 4:
        return form
    return {**form, "pixel_values": torch.stack([pixels] * _FRAMES, dim=1)}


def _names_of_forms(model: Any, medium: Medium) -> set[str]:
    """The arguments that tell how pictures were cut: those of what makes features of them, if it names them."""
    extract = _feature_extractor(model, medium)
    own = set(inspect.signature(extract).parameters) if extract is not None else set()
    pixels = medium.renamed.get("pixel_values", "pixel_values")
    names = own if pixels in own else set(inspect.signature(model.forward).parameters)
    as_pictures = {other: name for name, other in medium.renamed.items()}
    return {as_pictures.get(name, name) for name in names if name in as_pictures or not medium.renamed}


def _with_text(model: object, form: Form, shares: _Shares, sizes: Sizes) -> dict[str, Any]:
    """The pictures of a form, of which each text gets as many as its share, and the texts around them."""
    held = _tokens_of_pictures(model, form, shares, sizes)
    if held is None or (shares.medium.is_film and not sum(held)):
        return {}
    inputs = {**_text(model, sizes, shares.of(held), shares.medium), **form}
    return {**inputs, **_positions(model, inputs)}


def _positions(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Positions as `generate` passes them, where the model cannot tell pictures from text by an argument."""
    names = inspect.signature(model.forward).parameters
    if (
        not hasattr(model, "get_rope_index")
        or "mm_token_type_ids" in names
        or not {"image_grid_thw", "video_grid_thw"} & {*inputs}
    ):
        return {}
    known = inspect.signature(model.get_rope_index).parameters
    positions, _ = model.get_rope_index(**{name: value for name, value in inputs.items() if name in known})
    return {"position_ids": positions}


def _text(model: Any, sizes: Sizes, held: Sequence[Sequence[int]], medium: Medium) -> dict[str, Any]:
    """The tokens of each text behind the places that its pictures are `held`, and what the model wants to know of them.

    Where there are several pictures a token stands behind each. Shorter texts are padded in front.
    """
    batch, device = sizes["batch"], source_of(model).device
    ends = tokens(model, (batch, sizes["seq"]))
    texts = map(functools.partial(_one_text, model, medium), held, ends)
    ids, kinds, seen = (_padded_in_front(rows).to(device) for rows in zip(*texts, strict=True))
    inputs = {"input_ids": ids, "attention_mask": seen}
    inputs |= dict.fromkeys(("mm_token_type_ids", "token_type_ids", "image_embeds_position_mask"), kinds)
    inputs["qformer_input_ids"] = tokens(model, (batch, sizes["seq"]))
    targets = getattr(model.config, "canvas_length", sizes["seq"] if model.config.is_encoder_decoder else 0)
    inputs |= {"decoder_input_ids": tokens(model, (batch, targets))} if targets else {}
    inputs["bbox"] = values(model, (batch, ids.shape[1], 4)).sigmoid().sort(-1).values
    inputs["image_attention_mask"] = torch.ones_like(ids)[..., None]
    inputs["cross_attention_mask"] = torch.ones_like(ids)[..., None, None].expand(-1, -1, 1, _tiles(model))
    names = inspect.signature(model.forward).parameters
    return {name: value for name, value in inputs.items() if name in names}


def _one_text(model: Any, medium: Medium, held: Sequence[int], end: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Its tokens, which of them hold a place for a picture, and that each is seen."""
    place = _token_of(model, medium) or 0
    parts = [end.new_full((count + 1,), place) for count in held if count]
    for part in parts:
        part[-1] = end[0]
    ids = torch.cat([*parts, end]) if len(parts) > 1 else torch.cat([*(part[:-1] for part in parts), end])
    return ids, medium.kind * (ids == place).to(ids.dtype) if parts else torch.zeros_like(ids), torch.ones_like(ids)


def _padded_in_front(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.stack([torch.nn.functional.pad(row, (longest - len(row), 0)) for row in rows])


def _tokens_of_pictures(model: Any, form: Form, shares: _Shares, sizes: Sizes) -> list[int] | None:
    """How many tokens the model makes of each picture; 0 if it puts none in the text, None if it refuses them."""
    medium, count = shares.medium, sum(shares.counts)
    extract = _feature_extractor(model, medium)
    if extract is None or _token_of(model, medium) is None:
        return [int(getattr(model.config, "latent_query_num", 0))] * count
    names = inspect.signature(extract).parameters
    asked = {name: value for name, value in _text(model, sizes, [[]] * sizes["batch"], medium).items() if name in names}
    try:
        with torch.no_grad():
            found = extract(**asked, **form)
    except REFUSALS:
        return None
    features, width = _features_of(found), text_config(model).hidden_size
    if isinstance(features, (list, tuple)) and len(features) == count:
        return [row.numel() // width for row in features]
    rows = torch.cat(list(features)) if isinstance(features, (list, tuple)) else features
    return _shared_by_area(form, rows.numel() // width, count)


def _shared_by_area(form: Form, total: int, count: int) -> list[int]:
    """A number of tokens, shared out among pictures by the patches that each has, where a form says that."""
    grids = [form[name] for name in _GRIDS if name in form and form[name].shape[0] == count]
    areas = grids[0].prod(-1).tolist() if grids else [1] * count
    return [total * area // sum(areas) for area in areas]


def _features_of(found: Any) -> Any:
    """What takes the places in the text; where each layer gets features of its own, those of the first."""
    by_name = (getattr(found, name, None) for name in _FEATURES)
    features = next((value for value in by_name if value is not None), None)
    return found.deepstack_features[0][1] if features is None else features


def _feature_extractor(model: object, medium: Medium) -> Any:
    owners = (model, getattr(model, "model", None))
    return next((getattr(owner, medium.extract) for owner in owners if hasattr(owner, medium.extract)), None)


def _tiles(model: Any) -> int:
    """How many pieces a picture may be cut into."""
    return int(getattr(getattr(model.config, "vision_config", None), "max_num_tiles", 1))


def _token_of(model: Any, medium: Medium) -> int | None:
    found = (getattr(model.config, name, None) for name in medium.tokens)
    return next((token for token in found if token is not None), None)
