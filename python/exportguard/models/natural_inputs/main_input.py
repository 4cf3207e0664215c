"""Whatever a model takes: its main input, what it requires besides, and what it turns out not to run without."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import InvalidArgumentError
from .parts import Part, drawn_arguments, optional_arguments, parts_of, required_arguments
from .search import Calls, Search, repeats_itself
from .tensors import Sizes

_TRIED_WITH: Sequence[Sizes] = ({"batch": 2, "seq": 6}, {"batch": 3, "seq": 8})

_chosen: Search[Sequence[Part]] = Search()
_drawn: Search[Sequence[Part]] = Search(repeats_itself)


def make_inputs(model: Any, sizes: Sizes) -> dict[str, Any]:
    """The first inputs in the order of `_candidates` that the model runs on, whatever their sizes.

    Raises:
        InvalidArgumentError: nothing is known to make a required argument from.
    """

    def candidates() -> Iterator[tuple[Sequence[Part], Calls]]:
        return ((parts, (_inputs(model, parts, tried) for tried in _TRIED_WITH)) for parts in _candidates(model))

    parts = _chosen(model, candidates) or next(_candidates(model))
    return _inputs(model, [*parts, *_what_it_draws(model, parts)], sizes)


def _what_it_draws(model: Any, parts: Sequence[Part]) -> Sequence[Part]:
    """An argument that a model draws for itself where it is not given, as the text that a diffusion begins with.

    Two calls of such a model return different numbers, and so no file can be compared with it.
    """

    def candidates() -> Iterator[tuple[Sequence[Part], Calls]]:
        given = _inputs(model, parts, _TRIED_WITH[0])
        more = (name for name in optional_arguments(model) if name not in given)
        for drawn in [(), *((part,) for name in more for part in parts_of(name, model))]:
            yield drawn, [_inputs(model, [*parts, *drawn], _TRIED_WITH[0])]

    return _drawn(model, candidates) or ()


def _inputs(model: object, parts: Sequence[Part], sizes: Sizes) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part(model, sizes).items()}


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
