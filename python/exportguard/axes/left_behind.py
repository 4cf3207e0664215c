"""What a call leaves in its inputs and in buffers, which a file returns beside the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from exportguard.rewrites.written import has_memory

from .rounding import agree

#: The name of a buffer, or the number of an input.
Key = str | int

#: What places hold that were written.
Written = Mapping[Key, torch.Tensor]


class Places:
    """The buffers and inputs of a call that is about to run."""

    def __init__(self, buffers: Mapping[str, torch.Tensor], inputs: Sequence[Any]) -> None:
        self._tensors: dict[Key, torch.Tensor] = dict(buffers.items())
        self._tensors |= {at: leaf for at, leaf in enumerate(inputs) if isinstance(leaf, torch.Tensor)}
        self._versions = {key: _version(tensor) for key, tensor in self._tensors.items()}

    def written(
        self,
        buffers: Mapping[str, torch.Tensor],
        has_written: Callable[[Key, torch.Tensor], bool] = lambda key, tensor: False,
    ) -> Written:
        """Copies of what those hold now into which the call wrote, or in whose place there is another tensor.

        `buffers` are those of now. `has_written` tells of writes past autograd, which no version shows.
        """
        now: dict[Key, torch.Tensor] = {
            **self._tensors,
            **{key: buffers[key] for key in buffers.keys() & self._tensors},
        }
        return {
            key: tensor.detach().clone()
            for key, tensor in now.items()
            if tensor is not self._tensors[key] or _version(tensor) != self._versions[key] or has_written(key, tensor)
        }


def left_otherwise(expected: Written, got: Written, before: Callable[[Key], Any], keys: Iterable[Key]) -> str:
    """The first of some places, in words, in which two calls leave different things; nothing if there is none.

    Where a call does not write there is what was there `before`; None for a place that one of them does not have.
    """
    for key in keys:
        one, other = (written[key] if key in written else before(key) for written in (expected, got))
        if one is not None and not agree([one], [other]):
            return f"the buffer {key}" if isinstance(key, str) else f"input {key}"
    return ""


def is_lost(before: Any, now: torch.Tensor | None) -> bool:
    """Whether a buffer was given a tensor that it cannot hold, of other sizes or of another dtype, which a file does
    not return: each call of it begins with the one before it."""
    if not isinstance(before, torch.Tensor) or now is None:
        return False
    return (before.dtype, before.shape) != (now.dtype, now.shape)


def _version(tensor: torch.Tensor) -> int | None:
    return tensor._version if has_memory(tensor) and not tensor.is_inference() else None
