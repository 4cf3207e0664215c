"""Several ways to end a text, of which a model chooses one."""

from __future__ import annotations

from typing import Any

from . import text
from .tensors import Sizes


def make_inputs(model: object, sizes: Sizes) -> dict[str, Any]:
    """The inputs of `batch * choices` whole texts, each of shape (batch, choices, seq)."""
    shape = (sizes["batch"], sizes["choices"], sizes["seq"])
    flat = text.make_inputs(model, {**sizes, "batch": sizes["batch"] * sizes["choices"]})
    return {name: value.reshape(shape) for name, value in flat.items()}
