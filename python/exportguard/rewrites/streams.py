"""What Python computes element by element while a loop goes through it: generators, `map`, `filter`, `itertools`.

What makes an element and what is done with it may change what the other one reads. So the steps of both are one loop,
in which they follow each other as Python has them do: a stream is a function that calls another one for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from exportguard.rewrites.collected import Grown, Unlisted
from exportguard.rewrites.data import is_tracing
from exportguard.rewrites.places import line_now
from exportguard.rewrites.recording import bodies_now
from exportguard.source.errors import RewriteError

Step = Callable[[Any], Any]  # it says whether the stream goes on
Run = Callable[[Step], Any]  # it calls a step for each element, and ends where that says so
Plain = Callable[[], Iterator[Any]]  # it makes an iterator of Python's that has the same elements


class Stream(Unlisted):
    """Elements that are gone through once.

    :param plain: None if Python cannot go through them
    """

    def __init__(self, run: Run, plain: Plain | None = None) -> None:
        self._run = run
        self._plain = plain
        self._own: Iterator[Any] | None = None
        self._made_in = bodies_now()
        self._is_taken = False

    @property
    def is_pythons(self) -> bool:
        """Whether Python goes through it: nothing is traced, or it took elements already."""
        return self._own is not None or not is_tracing()

    @property
    def plain(self) -> Plain:
        """What makes an iterator of Python's that has the same elements."""
        assert self._plain is not None
        return self._plain

    def owned(self) -> tuple[Run, Plain | None]:
        """What goes through it, for another stream that is made of it: nobody else may."""
        self._take()
        return self._run, self._plain

    def steps(self, step: Step) -> None:
        """Calls a function for each element, and ends where that says so."""
        self._take()
        self._run(step)

    def through(self, body: Callable[..., Any], names: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
        """The variables behind a loop over it, as `for_` has them."""
        held = dict(zip(names, values, strict=True))

        def step(item: Any) -> Any:
            goes_on, after = body(item, *(held[name] for name in names))
            for name, value in zip(names, after, strict=True):
                held[name] = value
            return goes_on

        self.steps(step)
        return tuple(held[name] for name in names)

    def listed(self) -> Any:
        """Its elements as a list."""
        if self.is_pythons:
            return list(self)
        made = Grown()

        def step(item: object) -> bool:
            made.append(item)
            return True

        self.steps(step)
        return made if made.is_open else made.parts

    def _take(self) -> None:
        """Refuses to go through it again, or in a body that may run more than once for one stream."""
        if bodies_now() != self._made_in:
            raise RewriteError(
                f"{line_now()}: an iterator that was made outside of this branch or loop is gone through; make a list "
                "of it where it is made"
            )
        if self._is_taken:
            raise RewriteError(f"{line_now()}: an iterator is gone through again; make a list of it where it is made")
        self._is_taken = True

    def __iter__(self) -> Iterator[Any]:
        if self._own is None:
            self._own = self._pythons()
        return self._own

    def _pythons(self) -> Iterator[Any]:
        if self._plain is None:
            raise RewriteError(
                f"{line_now()}: next(…) of an iterator over a symbolic length, or something else than a loop that goes "
                "through it; make a list of it"
            )
        self._take()
        return self._plain()

    def __next__(self) -> Any:
        return next(iter(self))

    def __getattr__(self, name: str) -> Any:
        """`send`, `throw` and `close` of Python's own."""
        if name not in ("send", "throw", "close"):
            raise AttributeError(name)
        return getattr(iter(self), name)


class Mapped(Stream):
    """What a function makes of each element of something that a loop goes through, as rows or a list."""

    def __init__(self, source: Any, function: Callable[[Any], Any], run: Run, plain: Plain | None) -> None:
        super().__init__(run, plain)
        self._source = source
        self._function = function

    def parts(self) -> tuple[Any, Callable[[Any], Any]]:
        """What the loop goes through and the function, for what goes through them instead."""
        self._take()
        return self._source, self._function

    @property
    def source(self) -> Any:
        """What the loop goes through."""
        return self._source


def is_stream(iterable: object) -> bool:
    """Whether it is a stream whose steps are to be those of the loop that goes through it."""
    return isinstance(iterable, Stream) and not iterable.is_pythons


def gathered(items: Any) -> Any:
    """What a call goes through at once: a stream as a list."""
    return items.listed() if is_stream(items) else items


def generated(run: Callable[[Step], Any], plain: Callable[[], Iterator[Any]]) -> Stream:
    """What the call of a function with `yield` gives."""
    return Stream(run, plain)
