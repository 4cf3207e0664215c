"""`x.narrow(axis, i, 3)` from the number of a loop, of which torch would ask the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.index_parts import WHOLE
from exportguard.rewrites.numbers import is_number


def narrowed(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """The entries by their places, known as a part of what they are taken from; None of another call."""
    if getattr(func, "__name__", "") != "narrow":
        return None
    narrow = _arguments(*args, **kwargs)
    tensor, axis, start, length = (narrow[name] for name in ("input", "dim", "start", "length"))
    if not is_number(start) or not isinstance(axis, int) or not isinstance(length, int | torch.SymInt):
        return None
    places = start + torch.arange(length)  # type: ignore[arg-type]
    found: torch.Tensor = tensor[(*(WHOLE,) * (axis % tensor.dim()), places)]
    aliases_now().link(found, [tensor])
    return found


def _arguments(input: Any, dim: Any, start: Any, length: Any) -> dict[str, Any]:
    return {"input": input, "dim": dim, "start": start, "length": length}
