"""Inputs and outputs in float32 of a model that computes in half precision within.

What feeds a model has pictures and sounds in float32, and what reads its logits wants them so: with these the model
takes and returns float32, and rounds at its own ends.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from . import _core
from .errors import InvalidArgumentError
from .onnx_model import OnnxModel

_HALVES = ("f16", "bf16")

#: What one call returns and the next one takes, under the name that it is taken by: both have one dtype.
_HANDED_ON = {"present.": "past_key_values.", "last_hidden_state": "encoder_hidden_states"}


class WideEnds:
    """Which inputs and outputs of the files of a model are to be float32, by patterns of their names.

    `widened` has the names of those that are."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """`*` in a pattern stands for anything; none change nothing."""
        self.widened: list[str] = []
        self._patterns = tuple(patterns)
        self._used: set[str] = set()
        self._halves: list[str] = []

    def apply(self, model: OnnxModel) -> None:
        """Changes the ends of one of the files; its weights and what lies between stay as they are."""
        halves = [value.name for value in (*model.inputs, *model.outputs) if value.dtype in _HALVES]
        self._halves += halves
        asked = [name for name in halves if self._is_asked(name)]
        _core.widen_ends(model._core, set(asked))
        self.widened += asked

    def require_used(self) -> None:
        """To be called when all files of a model are there.

        Raises:
            InvalidArgumentError: a pattern fits no input and no output of half precision, with the names that do.
        """
        unused = [pattern for pattern in self._patterns if pattern not in self._used]
        if unused:
            near = difflib.get_close_matches(unused[0], self._halves, n=3, cutoff=0.3) or self._halves[:3]
            there = f"there are {', '.join(near)} ({len(self._halves)} in all)" if near else "there are none"
            raise InvalidArgumentError(
                f"float32_io: no input or output of half precision is called {unused[0]!r}; {there}"
            )

    def _is_asked(self, name: str) -> bool:
        """By its own name, or by that of the other end of what goes from call to call."""
        names = {name, *_other_ends(name)}
        fitting = {pattern for pattern in self._patterns if any(fnmatchcase(one, pattern) for one in names)}
        self._used |= fitting
        return bool(fitting)


def _other_ends(name: str) -> list[str]:
    """What a value is called where it is taken, or where it is returned.

    >>> _other_ends("present.0.key"), _other_ends("past_key_values.0.key"), _other_ends("logits")
    (['past_key_values.0.key'], ['present.0.key'], [])
    """
    pairs = [*_HANDED_ON.items(), *((taken, returned) for returned, taken in _HANDED_ON.items())]
    return [other + name.removeprefix(one) for one, other in pairs if name.startswith(one)]
