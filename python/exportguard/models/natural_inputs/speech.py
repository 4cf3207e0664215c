"""A recording as an encoder sees it, and a decoder that continues its transcript."""

from __future__ import annotations

from typing import Any

from .encoder_decoder import decoder_past
from .tensors import Sizes, tokens, values


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """One window of audio features, as long as the encoder's positions, and `seq` tokens after `past` cached ones."""
    config = model.config
    frames = config.max_source_positions * 2  # the second convolution of the encoder halves them
    encoded = {"input_features": values(model, (sizes["batch"], config.num_mel_bins, frames))}
    return {
        **encoded,
        "decoder_input_ids": tokens(model, (sizes["batch"], sizes["seq"])),
        "past_key_values": decoder_past(model, encoded, sizes["batch"], sizes["past"]),
    }
