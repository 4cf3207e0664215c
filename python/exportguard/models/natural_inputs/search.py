"""The one search for what a model takes: the first of several candidates that it runs on, found once for each model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.utils import _pytree as pytree

from ...devices import same_random_numbers
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


def repeats_itself(model: Any, calls: Calls) -> bool:
    """Whether a model returns the same for the same call, whatever random numbers it draws; a refusal is none."""
    return _is_same_with((0, 1), model, calls)


def tells_apart(model: Any, calls: Calls) -> bool:
    """Whether a model takes all calls and does not return the same for them."""
    try:
        first, *others = (_drawn_with(0, model, arguments) for arguments in calls)
    except REFUSALS:
        return False
    return not all(_same(first, other) for other in others)


def draws_numbers(model: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether what a model returns for a call depends on random numbers, and on nothing else that changes."""
    return _is_same_with((0, 0), model, [arguments]) and not repeats_itself(model, [arguments])


def _is_same_with(seeds: tuple[int, int], model: Any, calls: Calls) -> bool:
    try:
        return all(_same(*(_drawn_with(seed, model, arguments) for seed in seeds)) for arguments in calls)
    except REFUSALS:
        return False


def _drawn_with(seed: int, model: Any, arguments: Mapping[str, Any]) -> list[Any]:
    with same_random_numbers(seed), torch.no_grad():
        return pytree.tree_leaves(model(**copy.deepcopy(dict(arguments))))


def _same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """What is no tensor, as a cache that nobody knows how to take apart, tells nothing."""
    tensors = [[leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] for leaves in (first, second)]
    pairs = zip(*tensors, strict=False)
    return all(one.shape == other.shape and torch.allclose(one, other, equal_nan=True) for one, other in pairs)


class Search(Generic[_Candidate]):
    """Knows of each model the candidate that was found; a model that takes none has None."""

    def __init__(self, takes: Callable[[Any, Calls], bool] = runs) -> None:
        """`takes` tells of a model and calls whether they are what is looked for."""
        self._takes = takes
        self._found: WeakKeyDictionary[Any, _Candidate | None] = WeakKeyDictionary()

    def __call__(self, model: Any, candidates: Callable[[], Iterable[tuple[_Candidate, Calls]]]) -> _Candidate | None:
        """The first candidate whose calls the model takes; `candidates` are asked for when it is first looked for."""
        if model not in self._found:
            self._found[model] = next((one for one, calls in candidates() if self._takes(model, calls)), None)
        return self._found[model]
