"""Parts of the inputs by the arguments that they fill, each in the forms that models take it in."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import PretrainedConfig

from . import text
from .image import pictures
from .picture_forms import forms
from .tensors import Sizes, mask, source_of, tokens, values

#: Makes keyword arguments of a model for some sizes.
Part = Callable[[Any, Sizes], dict[str, Any]]
Layout = Callable[[Sizes], tuple[int, int]]

_SAMPLES = 1700  # some tenth of a second at the 16 kHz of speech models, and a multiple of no codec's frames
_FRAMES = 16  # of features, for each token of a text
_FILM = 4
_GRID = (1, 4, 6)
_REGIONS = 5
_BYTES = 256
_FIRST = 4  # layers whose widths are looked at
_WIDTHS = (
    "num_mel_bins", "n_mels", "input_feat_per_channel", "feature_projection_input_dim", "feature_size",
    "input_feat_size", "input_dim",
)  # fmt: skip
_STATE_WIDTHS = ("hidden_size", "d_model", "encoder_hidden_size", "latent_dim", "input_dim", "codebook_dim")


def parts_of(argument: str, model: object) -> list[Part]:
    """The parts that fill the argument, the more usual form first; none if it is not known."""
    if argument in _FORMS:
        return list(_FORMS[argument](model))
    return list(_forms_by_name(argument, model))


def required_arguments(model: Any) -> list[str]:
    """What `model.forward` cannot be called without."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(model.forward).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in kinds
    ]


def drawn_arguments(model: object) -> list[str]:
    """What the model draws anew in each call unless it is given."""
    names = (name for name in ("noise", "noise_sequence") if name in optional_arguments(model))
    return [name for name in names if parts_of(name, model)]


def optional_arguments(model: Any) -> list[str]:
    """What it may be given besides that is known here."""
    names = set(inspect.signature(model.forward).parameters) - set(required_arguments(model))
    return [name for name in _FORMS if name in names]


def configured(model: Any, *names: str) -> Iterator[Any]:
    """Every value of these fields in the configuration, and then in the configurations within it."""
    for config in _configurations(model.config):
        yield from (vars(config)[name] for name in names if vars(config).get(name) is not None)


def _configurations(config: PretrainedConfig) -> Iterator[PretrainedConfig]:
    yield config
    for value in vars(config).values():
        if isinstance(value, PretrainedConfig):
            yield from _configurations(value)


def _forms_by_name(argument: str, model: object) -> Iterator[Part]:
    """What an argument of no particular kind is called after: a mask, token numbers, or states of some width."""
    if argument.endswith("_mask"):
        comes_along = argument.removesuffix("_mask") in _FORMS
        yield lambda model, sizes: {} if comes_along else {argument: _ones(model, sizes)}
    elif argument.endswith("_ids"):
        yield lambda model, sizes: {argument: tokens(model, (sizes["batch"], sizes["seq"]))}
    elif argument.endswith(("embeds", "states", "latents", "inputs")):
        widths = dict.fromkeys((*configured(model, *_STATE_WIDTHS), *_widths_of_layers(model)))
        for width, is_width_first in itertools.product(widths, (False, True)):
            yield functools.partial(_states, argument, width, is_width_first)


def _ones(model: Any, sizes: Sizes) -> torch.Tensor:
    return mask(model, sizes["batch"], sizes["seq"])


def _states(argument: str, width: int, is_width_first: bool, model: Any, sizes: Sizes) -> dict[str, Any]:
    shape = (width, sizes["seq"]) if is_width_first else (sizes["seq"], width)
    return {argument: values(model, (sizes["batch"], *shape))}


def _texts(model: object) -> Iterator[Part]:
    yield text.make_inputs


def _targets(model: object) -> Iterator[Part]:
    yield lambda model, sizes: {"decoder_input_ids": tokens(model, (sizes["batch"], sizes["seq"]))}


def _pictures(model: object) -> Iterator[Part]:
    """Pictures, films, and the patches of pictures side by side."""
    yield lambda model, sizes: {"pixel_values": pictures(model, model.config, sizes["batch"])}
    yield lambda model, sizes: {"pixel_values": _films(model, sizes)}
    yield lambda model, sizes: {"pixel_values": _patches(model, sizes)}
    yield lambda model, sizes: {"pixel_values": _pairs(model, sizes)}
    for place, _ in enumerate(_cut_pictures(model, {"batch": 2, "seq": 6})):
        yield functools.partial(_cut_picture, place)


def _cut_picture(place: int, model: object, sizes: Sizes) -> dict[str, Any]:
    return list(_cut_pictures(model, sizes))[place]


def _cut_pictures(model: Any, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Each form that the arguments of the model tell of, with those of them."""
    names = _names(model) - {"pixel_values"}
    rows = max(1, sizes["seq"] // 2)
    for form in forms(model, names, [rows + (place > 0) for place in range(sizes["batch"])]):
        yield {name: value for name, value in form.items() if name in {"pixel_values", *names}}


def _pairs(model: Any, sizes: Sizes) -> torch.Tensor:
    """Two pictures that are to be compared."""
    both = pictures(model, model.config, 2 * sizes["batch"])
    return both.reshape(sizes["batch"], 2, *both.shape[1:])


def _films_alone(model: object) -> Iterator[Part]:
    yield lambda model, sizes: {"pixel_values_videos": _films(model, sizes)}


def _films(model: Any, sizes: Sizes) -> torch.Tensor:
    count = next(configured(model, "num_frames", "frames_per_clip"), _FILM)
    frames = pictures(model, model.config, sizes["batch"] * count)
    return frames.reshape(sizes["batch"], count, *frames.shape[1:])


def _patches(model: Any, sizes: Sizes) -> torch.Tensor:
    """Flat patches, as many for each picture as the grid has places."""
    times, rows, columns = _GRID
    side, depth = (next(configured(model, name), 1) for name in ("patch_size", "temporal_patch_size"))
    channels = next(configured(model, "in_channels", "in_chans", "num_channels"), 3)
    return values(model, (sizes["batch"] * times * rows * columns, channels * depth * side * side))


def _flat_patches(model: object) -> Iterator[Part]:
    yield lambda model, sizes: {"hidden_states": _patches(model, sizes)}


def _grids(name: str) -> Callable[[Any], Iterator[Part]]:
    def forms(model: object) -> Iterator[Part]:
        yield lambda model, sizes: {name: _rows(model, sizes, _GRID)}
        yield lambda model, sizes: {name: _rows(model, sizes, _GRID[1:])}
        yield from _beside_pictures(model)

    return forms


def _beside_pictures(model: object) -> Iterator[Part]:
    """Nothing: it comes along with the pictures that it tells of."""
    yield lambda model, sizes: {}


def _rows(model: Any, sizes: Sizes, row: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([row] * sizes["batch"], device=source_of(model).device)


def _boxes(model: object) -> Iterator[Part]:
    yield lambda model, sizes: {"bbox": _corners(model, sizes).flatten(2)}


def _corners(model: Any, sizes: Sizes) -> torch.Tensor:
    """Two corners of a box for each token, the one at the top left first."""
    return values(model, (sizes["batch"], sizes["seq"], 2, 2)).sigmoid().sort(dim=2).values


def _samples(model: object) -> Iterator[Part]:
    """A recording, with an axis of channels as well, and a spectrogram."""
    step = next(configured(model, "hop_length"), 1)
    length = -(-_SAMPLES // step) * step
    yield lambda model, sizes: {"input_values": values(model, (sizes["batch"], length * (sizes["seq"] + 1)))}
    yield lambda model, sizes: {"input_values": values(model, (sizes["batch"], 1, length * (sizes["seq"] + 1)))}
    frames, bins = (next(configured(model, name), _FRAMES) for name in ("max_length", "num_mel_bins"))
    yield lambda model, sizes: {"input_values": values(model, (sizes["batch"], frames, bins))}


def _features(model: object) -> Iterator[Part]:
    """Frames before or after the width, as many as the text is long, or else as many as there are positions."""
    for width in dict.fromkeys((*configured(model, *_WIDTHS), *_widths_of_layers(model))):
        for layout in _layouts(model, width):
            yield functools.partial(_frames, layout, False)
            yield functools.partial(_frames, layout, True)


def _widths_of_layers(model: Any) -> Iterator[int]:
    """What the first layers take: features may be stacked, or given in a width that the configuration does not name."""
    layers = (layer for layer in model.modules() if isinstance(layer, (torch.nn.Linear, torch.nn.Conv1d)))
    for layer in itertools.islice(layers, _FIRST):
        yield layer.in_features if isinstance(layer, torch.nn.Linear) else layer.in_channels


def _layouts(model: object, width: int) -> Iterator[Layout]:
    yield lambda sizes: (_FRAMES * (sizes["seq"] + 1), width)
    yield lambda sizes: (width, _FRAMES * (sizes["seq"] + 1))
    for positions in configured(model, "max_source_positions"):
        yield functools.partial(_of_fixed_length, width, positions)


def _of_fixed_length(width: int, positions: int, sizes: Sizes) -> tuple[int, int]:
    """A convolution halves the frames on their way to the positions."""
    return width, 2 * positions


def _frames(layout: Layout, is_masked: bool, model: Any, sizes: Sizes) -> dict[str, Any]:
    features = values(model, (sizes["batch"], *layout(sizes)))
    names = [name for name in ("input_features_mask", "attention_mask") if is_masked and name in _names(model)]
    ones = torch.ones(sizes["batch"], max(layout(sizes)), dtype=torch.int64, device=features.device)
    return {"input_features": features, **dict.fromkeys(names[:1], ones)}


def _names(model: Any) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def _series(model: object) -> Iterator[Part]:
    """Numbers of the past, one or several at a time."""
    length = next(configured(model, "context_length"), _FRAMES) + max(next(configured(model, "lags_sequence"), [0]))
    width = next(configured(model, "num_input_channels", "input_size"), 1)
    yield lambda model, sizes: {"past_values": values(model, (sizes["batch"], length))}
    yield lambda model, sizes: {"past_values": values(model, (sizes["batch"], length, width))}


def _regions(name: str, width: str) -> Callable[[Any], Iterator[Part]]:
    """What a detector found in a picture: its regions, some numbers for each."""

    def forms_of_regions(model: object) -> Iterator[Part]:
        for size in configured(model, width):
            yield functools.partial(_region, name, size)

    return forms_of_regions


def _region(name: str, width: int, model: Any, sizes: Sizes) -> dict[str, Any]:
    return {name: values(model, (sizes["batch"], _REGIONS, width)).sigmoid()}


def _tasks(model: object) -> Iterator[Part]:
    """A text that names the task."""
    for length in configured(model, "task_seq_len"):
        yield functools.partial(_task, length)


def _task(length: int, model: Any, sizes: Sizes) -> dict[str, Any]:
    return {"task_inputs": tokens(model, (sizes["batch"], length)) % _BYTES}


def _noises(model: object) -> Iterator[Part]:
    """A number for each patch of a picture, which orders them."""
    for side, patch in itertools.product(configured(model, "image_size"), configured(model, "patch_size")):
        yield functools.partial(_noise, (side // patch) ** 2)


def _noise(count: int, model: Any, sizes: Sizes) -> dict[str, Any]:
    return {"noise": values(model, (sizes["batch"], count))}


def _noise_sequences(model: object) -> Iterator[Part]:
    for width in configured(model, "model_in_channels"):
        yield functools.partial(_noise_sequence, width)


def _noise_sequence(width: int, model: Any, sizes: Sizes) -> dict[str, Any]:
    return {"noise_sequence": values(model, (sizes["batch"], _FRAMES * (sizes["seq"] + 1), width))}


#: What tells how a picture was cut.
_OF_PICTURES = (
    "spatial_shapes", "pixel_attention_mask", "pixel_position_ids", "image_position_ids", "target_sizes", "merge_sizes",
)  # fmt: skip

_FORMS: dict[str, Callable[[Any], Iterator[Part]]] = {
    "input_ids": _texts,
    "decoder_input_ids": _targets,
    "pixel_values": _pictures,
    "pixel_values_videos": _films_alone,
    "hidden_states": _flat_patches,
    "grid_thw": _grids("grid_thw"),
    "image_grid_thw": _grids("image_grid_thw"),
    "bbox": _boxes,
    "input_values": _samples,
    "input_features": _features,
    "past_values": _series,
    "noise": _noises,
    "noise_sequence": _noise_sequences,
    "visual_feats": _regions("visual_feats", "visual_feat_dim"),
    "visual_pos": _regions("visual_pos", "visual_pos_dim"),
    "task_inputs": _tasks,
    **dict.fromkeys(_OF_PICTURES, _beside_pictures),
}
