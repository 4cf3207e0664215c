"""Pictures and the texts that may describe them."""

from __future__ import annotations

from typing import Any

from .image import picture_arguments
from .tensors import Sizes, mask, tokens


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """`texts` texts of `seq` tokens and `images` pictures."""
    vision = getattr(model.config, "vision_config", model.config)
    return {
        "input_ids": tokens(model, (sizes["texts"], sizes["seq"])),
        "attention_mask": mask(model, sizes["texts"], sizes["seq"]),
        **picture_arguments(model, vision, sizes["images"]),
    }
