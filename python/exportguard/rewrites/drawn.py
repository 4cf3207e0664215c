"""Iterators of Python's that a loop goes through behind the step in which tensor data may have left it.

A loop whose length Python knows is unrolled: all elements are taken while the program is traced, also those that the
run never comes to. Python would not take them, so that an iterator would be where the run left it, and what makes its
elements would have done nothing more. What makes them must therefore change nothing that others see, and nobody may go
through such an iterator again.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from exportguard.rewrites.collected import Collected, Maybe
from exportguard.rewrites.places import line_now
from exportguard.rewrites.state import Snapshot
from exportguard.source.errors import RewriteError


class DrawnError(RewriteError):
    """More of an iterator is gone through than by Python; to rewrite less of a program changes nothing about that."""


_LEFT: dict[int, Any] = {}  # iterators that the run may have left, by id
_MADE_OF_OTHERS = (zip, enumerate, map, filter)


def drawn(iterable: Iterable[Any], may_be_left: Callable[[], bool]) -> Iterator[Any]:
    """The elements of what Python can go through.

    :param may_be_left: whether tensor data may have ended what goes through them
    :raises RewriteError: Python would not take an element, and to take it does something
    """
    require_not_left(iterable)
    iterator = iter(iterable)
    while True:
        makers = [_Maker(generator) for generator in _generators(iterator)] if may_be_left() else []
        if may_be_left() and iterator is iterable:
            _LEFT[id(iterator)] = iterator
        try:
            item = next(iterator)
        except StopIteration:
            return
        finally:
            for maker in makers:
                maker.require_unchanged()
        if isinstance(item, Maybe | Collected):
            raise RewriteError(
                f"{line_now()}: a list grows while a loop goes through it, and tensor data says whether it does; go "
                "through the numbers of its elements with `while`, or fill another list"
            )
        yield item


def require_not_left(iterable: object) -> None:
    """Refuses an iterator of which only the run knows how far it came."""
    if _LEFT.get(id(iterable)) is iterable and iterable is not None:
        raise DrawnError(
            f"{line_now()}: a {type(iterable).__name__} is gone through again, behind a loop over it that tensor data "
            "may have left before its end; make a list, and use indices"
        )


def forget_left() -> None:
    """Forgets the iterators of a trace."""
    _LEFT.clear()


def next_element(iterator: Any, *default: Any) -> Any:
    """`next(iterator)`, with a default or without."""
    require_not_left(iterator)
    return next(iterator, *default)


def _generators(iterator: Any) -> Iterator[types.GeneratorType[Any, Any, Any]]:
    """The generators that make the elements of an iterator."""
    if isinstance(iterator, types.GeneratorType):
        yield iterator
        yield from _generators(iterator.gi_yieldfrom)
    elif type(iterator) in _MADE_OF_OTHERS:
        for part in iterator.__reduce__()[1]:
            yield from _generators(part)


class _Maker:
    """A generator, with what its variables lead to before it goes on."""

    def __init__(self, generator: types.GeneratorType[Any, Any, Any]) -> None:
        self._generator = generator
        held = self._variables()
        self._shared = {name: held.get(name) for name in generator.gi_code.co_freevars}
        self._snapshot = Snapshot([*held.values()])
        self._versions = [tensor._version for tensor in self._snapshot.tensors]
        for value in held.values():
            if isinstance(value, Iterator) and not isinstance(value, torch.nn.Module):
                _LEFT[id(value)] = value

    def _variables(self) -> dict[str, Any]:
        frame = self._generator.gi_frame
        return {} if frame is None else dict(frame.f_locals)

    def require_unchanged(self) -> None:
        """Refuses a generator that did more than to make an element."""
        now = self._variables()
        rebinds = any(now.get(name) is not value for name, value in self._shared.items()) and bool(now)
        writes = self._versions != [tensor._version for tensor in self._snapshot.tensors]
        if rebinds or writes or self._snapshot.changes() or _stores_globals(self._generator.gi_code):
            raise DrawnError(
                f"{line_now()}: the generator {self._generator.__name__} changes what others see, and is gone through "
                "behind a step in which tensor data may have left the loop, where Python would stop it: let it only "
                "make its elements, or write its steps into the loop"
            )


def _stores_globals(code: types.CodeType) -> bool:
    return any(instruction.opname == "STORE_GLOBAL" for instruction in dis.get_instructions(code))
