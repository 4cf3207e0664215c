"""`itertools.count`, `cycle` and `repeat`, which have no end, and `iter(x)` of a tensor whose length is symbolic.

An element of an endless iterator is a function of its number. Beside something that ends, in `zip`, it is made of the
number of the step; a loop over it alone ends where the model leaves it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

from exportguard.rewrites.data import is_tracing
from exportguard.rewrites.iteration import Rows, rows_of
from exportguard.rewrites.places import line_now
from exportguard.rewrites.recording import bodies_now
from exportguard.rewrites.runtime_loops import for_, while_
from exportguard.rewrites.runtime_stores import get_item
from exportguard.rewrites.streams import Plain, Step, Stream, gathered
from exportguard.source.errors import RewriteError


class Endless(Stream):
    """Elements that their numbers tell.

    :param at: the element of a number, which may be a tensor
    :param has_effects: whether to make an element may do more than that, as a function of the model's may
    """

    def __init__(self, at: Callable[[Any], Any], plain: Plain, *, has_effects: bool = False) -> None:
        super().__init__(self._forever, plain)
        self._at = at
        self.has_effects = has_effects

    def _forever(self, step: Step) -> None:
        def one(position: Any) -> tuple[Any, tuple[Any]]:
            return step(self._at(position)), (position + 1,)

        while_(_always, one, ("the number of an element",), (0,), breaks=True)

    def taken(self) -> Callable[[Any], Any]:
        """The element of a number, for what goes through it beside something else: nobody else may."""
        self._take()
        return self._at


def _always(*_: object) -> bool:
    return True


def is_endless(iterable: object) -> bool:
    """Whether it is an endless iterator that Python has taken nothing of."""
    return isinstance(iterable, Endless) and not iterable.is_pythons


def count_(start: Any = 0, step: Any = 1) -> Any:
    """`itertools.count(…)`."""
    if not is_tracing():
        return itertools.count(start, step)
    is_plain = type(start) is int and type(step) is int and (start, step) == (0, 1)
    return Endless(
        (lambda position: position) if is_plain else (lambda position: start + position * step),
        lambda: itertools.count(start, step),
    )


def cycle_(iterable: Any) -> Any:
    """`itertools.cycle(…)`."""
    if not is_tracing():
        return itertools.cycle(iterable)
    source = gathered(iterable)
    rows = rows_of(source)
    if rows is not None:
        return _rows_again_and_again(rows)
    elements = list(source)

    def at(position: Any) -> Any:
        _require_same(source, elements)
        return get_item(elements, position % len(elements))

    return Endless(at, lambda: itertools.cycle(elements)) if elements else iter(())


def _rows_again_and_again(rows: Rows) -> Any:
    if has_free_unbacked_symbols(rows.length):
        raise RewriteError(f"{line_now()}: itertools.cycle of a list that tensor data may leave empty; use an index")
    if not bool(rows.length > 0):
        return iter(())
    return Endless(lambda position: rows.at(_as_tensor(position) % rows.length), lambda: _refused("cycle"))


def _as_tensor(position: Any) -> torch.Tensor:
    return position if isinstance(position, torch.Tensor) else torch.scalar_tensor(position, dtype=torch.int64)


def _require_same(source: Any, elements: Sequence[Any]) -> None:
    """Python's cycle reads a list while it goes through it for the first time."""
    if isinstance(source, list):
        now = list.__iter__(source)
        if len(elements) != list.__len__(source) or any(a is not b for a, b in zip(now, elements, strict=True)):
            raise RewriteError(f"{line_now()}: a list is changed while itertools.cycle goes through it; change a copy")


def repeat_(element: Any, *times: Any) -> Any:
    """`itertools.repeat(element)`; with a number of times it ends, and is a loop over a range."""
    if not is_tracing() or times:
        return itertools.repeat(element, *times)
    return Endless(lambda position: element, lambda: itertools.repeat(element))


def _refused(what: str) -> Iterator[Any]:
    raise RewriteError(
        f"{line_now()}: next(…) of itertools.{what} over a symbolic length, or something else than a loop or a zip "
        "that goes through it"
    )


class RowIterator(Stream):
    """`iter(x)` of a tensor: `next` takes the first row, a loop goes through those that are left."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(self._through_the_rest)
        self._rows = rows

    def _through_the_rest(self, step: Step) -> Any:
        return for_(self._rows, lambda item: (step(item), ()), (), ())

    def _pythons(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if bodies_now() != self._made_in or self._is_taken:
            raise RewriteError(
                f"{line_now()}: next(…) of an iterator over a symbolic length in a branch or a loop that it was not "
                "made in, or behind a loop that went through it: go through range(len(x)) and use the index"
            )
        if has_free_unbacked_symbols(self._rows.length):
            raise RewriteError(f"{line_now()}: next(…) of rows that tensor data may leave out; use an index")
        if not bool(self._rows.length > 0):
            raise StopIteration
        item, self._rows = self._rows.at(0), self._rows.behind_the_first()
        return item
