"""Pictures as numbers: as many, as large and with as many channels as a model was configured for."""

from __future__ import annotations

from typing import Any

import torch

from .tensors import values

_PARTS = (None, "vision_config", "backbone_config")


def pictures(model: torch.nn.Module, config: object, count: int) -> torch.Tensor:
    """`count` random pictures of the configured channels and size; 64 by 64 for a model that takes any size."""
    size = _field(config, "image_size") or 64
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return values(model, (count, _field(config, "num_channels") or 3, height, width))


def _field(config: object, name: str) -> Any:
    """A field of the configuration, or of the part in it that sees pictures."""
    encoder = getattr(config, "encoder", None)
    owners = [config, encoder]
    parts = [owner if part is None else getattr(owner, part, None) for part in _PARTS for owner in owners]
    return next((value for part in parts if (value := getattr(part, name, None)) is not None), None)
