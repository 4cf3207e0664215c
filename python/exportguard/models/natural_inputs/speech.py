"""A recording as an encoder sees it, and a decoder that continues its transcript."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...errors import InvalidArgumentError
from . import decoder
from .encoder_decoder import decoder_past
from .search import Calls, Search
from .tensors import Sizes, tokens, values

_WIDTHS = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_dim", "d_model")
_FRAMES = 64
_layout: Search[tuple[int, int]] = Search()
_SAMPLES = 3200  # a fifth of a second at the 16 kHz of speech models


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """One recording as long as the encoder's positions, and `seq` tokens after `past` cached ones.

    A model that puts the recording before its prompt only needs its cache for the tokens after it.
    """
    if not model.config.is_encoder_decoder:
        return decoder.make_inputs(model, sizes)
    encoded = recording(model, sizes["batch"])
    return {
        **encoded,
        "decoder_input_ids": tokens(model, (sizes["batch"], sizes["seq"])),
        **decoder_past(model, encoded, sizes["batch"], sizes["past"]),
    }


def recording(model: Any, batch: int) -> dict[str, torch.Tensor]:
    """Samples, or features in the layout that the encoder takes.

    Raises:
        InvalidArgumentError: it takes none of the layouts known.
    """
    name = "input_values"
    if name in (model.main_input_name, getattr(model.get_encoder(), "main_input_name", None)):
        return {name: values(model, (batch, _SAMPLES))}

    def features(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
        return {"input_features": values(model, (batch, *shape))}

    def candidates() -> Iterator[tuple[tuple[int, int], Calls]]:
        first = {"decoder_input_ids": tokens(model, (batch, 1))}
        return ((shape, [{**features(shape), **first}]) for shape in _layouts(model.config))

    layout = _layout(model, candidates)
    if layout is None:
        raise InvalidArgumentError(f"no natural inputs are known for {type(model).__name__}; pass another task")
    return features(layout)


def _layouts(config: object) -> list[tuple[int, int]]:
    """Features before frames, for as long as the positions reach (a convolution halves them), and after them."""
    parts = [config, *(getattr(config, name, None) for name in ("encoder", "encoder_config", "audio_config"))]
    widths = [getattr(part, name) for name in _WIDTHS for part in parts if hasattr(part, name)]
    frames = [2 * config.max_source_positions] if hasattr(config, "max_source_positions") else []
    return [layout for width in widths for layout in (*((width, n) for n in frames), (_FRAMES, width))]
