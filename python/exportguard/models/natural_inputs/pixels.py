"""Pictures as numbers: as many, as large and with as many channels as a model was configured for."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import REFUSALS
from ...optional import OptionalModule
from ..checkpoint_files import file_beside
from .tensors import values

transformers: Any = OptionalModule("transformers")

logger = logging.getLogger(__name__)

_PICTURES = ((300, 250, 3), (250, 400, 3))  # with other ratios
_PROCESSOR = "preprocessor_config.json"  # that transformers writes beside the weights
_PARTS = (None, "vision_config", "backbone_config")


def pictures(model: torch.nn.Module, config: object, count: int, size: tuple[int, int] | None = None) -> torch.Tensor:
    """`count` random pictures of the configured channels, of some height and width or else those of
    `size_of_pictures`."""
    height, width = size or size_of_pictures(config)
    return values(model, (count, _field(config, "num_channels") or 3, height, width))


def size_of_pictures(config: object) -> tuple[int, int]:
    """The configured height and width; for a model that takes any, those that the processor beside the weights makes,
    and 64 by 64 where there is none, or where it makes several."""
    made = _sizes_made_beside(config)
    size = configured_size(config) or (made[0] if len(made) == 1 else 64)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return int(height), int(width)


def configured_size(config: object) -> Any:
    """The size of pictures that a configuration names, a number or two; None for a model that takes any."""
    return _field(config, "image_size") or _field(config, "input_size")


def has_several_sizes(config: object) -> bool:
    """Whether the processor beside the weights makes pictures of more than one size."""
    return len(_sizes_made_beside(config)) > 1


def _sizes_made_beside(config: object) -> Sequence[tuple[int, int]]:
    """The heights and widths of pictures that the processor in the folder of a checkpoint makes of some."""
    processor = file_beside(config, _PROCESSOR)
    return () if processor is None else _sizes_made_by(str(processor.parent))


@functools.cache
def _sizes_made_by(folder: str) -> Sequence[tuple[int, int]]:
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        made = [processor(images=torch.zeros(size).numpy())["pixel_values"][0].shape[-2:] for size in _PICTURES]
    except (*REFUSALS, ImportError, OSError) as error:
        reason = str(error).partition("\n")[0]
        logger.warning("the size of pictures is not known, as the processor in %s cannot be run: %s", folder, reason)
        return ()
    return [*dict.fromkeys((int(height), int(width)) for height, width in made)]


def _field(config: object, name: str) -> Any:
    """A field of the configuration, or of the part in it that sees pictures."""
    encoder = getattr(config, "encoder", None)
    owners = [config, encoder]
    parts = [owner if part is None else getattr(owner, part, None) for part in _PARTS for owner in owners]
    return next((value for part in parts if (value := getattr(part, name, None)) is not None), None)
