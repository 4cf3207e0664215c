"""Pictures as numbers: as many, as large and with as many channels as a model was configured for."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import torch

from ...errors import REFUSALS
from ...optional import OptionalModule
from .tensors import values

transformers: Any = OptionalModule("transformers")

logger = logging.getLogger(__name__)

_PICTURES = ((300, 250, 3), (250, 400, 3))  # with other ratios
_PROCESSOR = "preprocessor_config.json"  # that transformers writes beside the weights
_PARTS = (None, "vision_config", "backbone_config")


def pictures(model: torch.nn.Module, config: object, count: int) -> torch.Tensor:
    """`count` random pictures of the configured channels and size: that which the processor beside the weights makes,
    for a model that takes any, and 64 by 64 where there is none."""
    size = _field(config, "image_size") or _field(config, "input_size") or _size_made_beside(config) or 64
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return values(model, (count, _field(config, "num_channels") or 3, height, width))


def _size_made_beside(config: object) -> tuple[int, int] | None:
    """The height and width that the processor in the folder of a checkpoint gives all pictures, if it is one size."""
    folder = str(getattr(config, "_name_or_path", ""))
    return _size_made_by(folder) if folder and (Path(folder) / _PROCESSOR).is_file() else None


@functools.cache
def _size_made_by(folder: str) -> tuple[int, int] | None:
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        made = [processor(images=torch.zeros(size).numpy())["pixel_values"][0].shape[-2:] for size in _PICTURES]
    except (*REFUSALS, ImportError, OSError) as error:
        reason = str(error).partition("\n")[0]
        logger.warning("the size of pictures is not known, as the processor in %s cannot be run: %s", folder, reason)
        return None
    if made[0] != made[1]:
        logger.warning(
            "the processor in %s makes pictures of several sizes, and the file has one; for another one, or for all, "
            "pass path/file.py:function with inputs of it",
            folder,
        )
        return None
    return int(made[0][0]), int(made[0][1])


def _field(config: object, name: str) -> Any:
    """A field of the configuration, or of the part in it that sees pictures."""
    encoder = getattr(config, "encoder", None)
    owners = [config, encoder]
    parts = [owner if part is None else getattr(owner, part, None) for part in _PARTS for owner in owners]
    return next((value for part in parts if (value := getattr(part, name, None)) is not None), None)
