"""The one search for what a model takes: the first of several candidates that it runs on, found once for each model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch

from ...errors import REFUSALS

_Candidate = TypeVar("_Candidate")

#: The arguments of calls by name. What raises while they are made is a refusal as well.
Calls = Iterable[Mapping[str, Any]]


def runs(model: Any, calls: Calls) -> bool:
    """Whether a model, or another function, takes every one of the calls."""
    try:
        with torch.no_grad():
            for arguments in calls:
                model(**arguments)
    except REFUSALS:
        return False
    return True


class Search(Generic[_Candidate]):
    """Knows of each model the candidate that was found; a model that takes none has None."""

    def __init__(self) -> None:
        self._found: WeakKeyDictionary[Any, _Candidate | None] = WeakKeyDictionary()

    def __call__(self, model: Any, candidates: Callable[[], Iterable[tuple[_Candidate, Calls]]]) -> _Candidate | None:
        """The first candidate whose calls the model takes; `candidates` are asked for when it is first looked for."""
        if model not in self._found:
            self._found[model] = next((one for one, calls in candidates() if runs(model, calls)), None)
        return self._found[model]
