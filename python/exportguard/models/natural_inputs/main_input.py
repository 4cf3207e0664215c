"""Whatever a model takes: its main input, what it requires besides, and what it turns out not to run without."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...errors import REFUSALS, InvalidArgumentError
from .parts import Part, drawn_arguments, optional_arguments, parts_of, required_arguments
from .tensors import Sizes

_TRIED_WITH: Sequence[Sizes] = ({"batch": 2, "seq": 6}, {"batch": 3, "seq": 8})

_chosen: weakref.WeakKeyDictionary[torch.nn.Module, Sequence[Part]] = weakref.WeakKeyDictionary()


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """The first inputs in the order of `_candidates` that the model runs on, whatever their sizes.

    Raises:
        InvalidArgumentError: nothing is known to make a required argument from.
    """
    if model not in _chosen:
        candidates = list(_candidates(model))
        _chosen[model] = next((parts for parts in candidates if _runs(model, parts)), candidates[0])
    return _inputs(model, _chosen[model], sizes)


def _inputs(model: object, parts: Sequence[Part], sizes: Sizes) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part(model, sizes).items()}


def _runs(model: Any, parts: Sequence[Part]) -> bool:
    try:
        with torch.no_grad():
            for sizes in _TRIED_WITH:
                model(**_inputs(model, parts, sizes))
    except REFUSALS:
        return False
    return True


def _candidates(model: Any) -> Iterator[Sequence[Part]]:
    """Every form of what is required; then with one more argument, and with two."""
    required = required_arguments(model)
    main = model.main_input_name
    if not required:
        required = [main]
    elif isinstance(main, str) and main in optional_arguments(model):
        required = [main, *required]
    required = [*required, *drawn_arguments(model)]
    known = [parts_of(name, model) for name in required]
    if not all(known):
        raise InvalidArgumentError(
            f"no natural inputs are known for {type(model).__name__}, which takes {', '.join(map(str, required))}; "
            "pass another task"
        )
    more = [name for name in optional_arguments(model) if name not in required]
    for count in range(3):
        for names in itertools.combinations(more, count):
            yield from itertools.product(*known, *(parts_of(name, model) for name in names))
