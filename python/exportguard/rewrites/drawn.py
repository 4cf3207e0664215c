"""Iterators of Python's that a loop goes through behind the step in which tensor data may have left it.

A loop whose length Python knows is unrolled: all elements are taken while the program is traced, also those that the
run never comes to. Python would not take them, so that an iterator would be where the run left it, and what makes its
elements would have done nothing more. What makes them must therefore change nothing that others see, and nobody may use
such an iterator again, in rewritten code or in any other.
"""

from __future__ import annotations

import collections
import gc
import itertools
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from exportguard.model_code import is_users_class
from exportguard.rewrites.collected import Collected, Maybe
from exportguard.rewrites.later_uses import later_use
from exportguard.rewrites.places import line_now
from exportguard.rewrites.state import Slot, Snapshot
from exportguard.source.errors import RewriteError


class DrawnError(RewriteError):
    """More of an iterator is gone through than by Python; to rewrite less of a program changes nothing about that."""


#: What is gone through without any change: each `for` over it has an iterator of its own.
_CONTAINERS = (list, tuple, dict, set, frozenset, range, str, bytes, collections.deque, torch.Tensor)

#: Iterators that run no code of the model's.
_MADE: tuple[Any, ...] = ([], (), {}, set(), "", b"", range(0), collections.deque(), {}.values(), {}.items())
_ONLY_MOVING = frozenset(
    (
        *(type(iter(made)) for made in _MADE),
        *(type(reversed([])), zip, enumerate, itertools.chain, itertools.islice, itertools.count, itertools.cycle),
        *(itertools.repeat, itertools.pairwise, itertools.zip_longest, itertools.product, itertools.combinations),
        *(itertools.permutations, itertools.compress, type(itertools.tee(())[0])),
    )
)


def drawn(iterable: Iterable[Any], may_be_left: Callable[[], bool]) -> Iterator[Any]:
    """The elements of what Python can go through.

    :param may_be_left: whether tensor data may have ended what goes through them
    :raises DrawnError: Python would not take an element, and to take it does something, or the iterator is used again
    """
    iterator = iter(iterable)
    is_shared = type(iterable) not in _CONTAINERS
    known: dict[int, Any] = {}  # iterators that nobody uses again
    while True:
        makers = None
        if is_shared and may_be_left():
            makers = _Makers(iterable, iterator)
            makers.require_no_later_use(known)
        try:
            item = next(iterator)
        except StopIteration:
            return
        finally:
            if makers is not None:
                makers.require_unchanged()
        if isinstance(item, Maybe | Collected):
            raise RewriteError(
                f"{line_now()}: a list grows while a loop goes through it, and tensor data says whether it does; go "
                "through the numbers of its elements with `while`, or fill another list"
            )
        yield item


#: Iterators of which Python does not know if they end, and those of `itertools` that do not, or only with another one.
_OPEN_ENDED = (types.GeneratorType, type(iter(int, 1)))
_ENDLESS = (itertools.count, itertools.cycle)
_BESIDE_OTHERS = (zip, map, itertools.compress)
_ENDING = (itertools.islice, itertools.takewhile)


def may_have_no_end(iterable: object) -> bool:
    """Whether nothing tells that Python comes to the end of something."""
    return isinstance(iterable, _OPEN_ENDED) or _has_no_end(iterable)


def _has_no_end(iterable: object) -> bool:
    if isinstance(iterable, itertools.repeat):
        return operator.length_hint(iterable, -1) < 0
    if isinstance(iterable, _ENDLESS):
        return True
    if type(iterable).__module__ not in ("builtins", "itertools") or isinstance(iterable, _ENDING):
        return False
    held = gc.get_referents(iterable)
    within = [part for one in held for part in (one if isinstance(one, tuple) else [one]) if isinstance(part, Iterator)]
    told = [*map(_has_no_end, within)]
    return any(told) and (all(told) or not isinstance(iterable, _BESIDE_OTHERS))


class _Makers:
    """What makes the elements of an iterator: further iterators and functions, with what those lead to.

    :param iterable: what the iterator is of, often itself
    """

    def __init__(self, iterable: Any, iterator: Any) -> None:
        self._iterable = iterable
        self._chain = {id(iterator): iterator}
        self._between: list[Any] = [self._chain]  # tuples in which iterators of Python's hold others
        roots, functions = self._taken_apart(iterator)
        is_only_moving = all(type(one) in _ONLY_MOVING for one in self._chain.values())
        self._snapshot = Snapshot() if is_only_moving else Snapshot(roots, [iterator.__next__, *functions])
        self._versions = [tensor._version for tensor in self._snapshot.tensors]

    def _taken_apart(self, iterator: object) -> tuple[list[Any], list[Callable[..., Any]]]:
        """What the iterators behind one hold beside iterators, and the functions of those that are written in
        Python. torch 2.11 to 2.13 know nothing of either: CPython's collector does."""
        roots: list[Any] = []
        functions: list[Callable[..., Any]] = []
        pending = [iterator]
        while pending:
            current = pending.pop()
            if is_users_class(type(current)) and not isinstance(current, types.GeneratorType):
                roots.append(current)
                continue
            for held in gc.get_referents(current):
                if isinstance(held, types.FunctionType):
                    functions.append(held)
                elif isinstance(held, tuple) and not isinstance(current, tuple):
                    self._between.append(held)
                    pending.append(held)
                elif not _is_moved(held):
                    roots.append(held)
                elif id(held) not in self._chain:
                    self._chain[id(held)] = held
                    pending.append(held)
        return roots, functions

    def require_no_later_use(self, known: dict[int, Any]) -> None:
        """Refuses iterators of which only the run knows how far they came, where somebody may go on with them.

        :param known: those that were asked for before; the others are added
        """
        iterators = [one for one in self._chain.values() if id(one) not in known]
        known |= self._chain
        user = later_use(iterators, [iterators, known, *self._between, self._snapshot])
        if user is not None:
            raise DrawnError(
                f"{line_now()}: tensor data may leave a loop over a {type(self._iterable).__name__} before its end, "
                f"and {user} may use that again, from where only the run knows how far it came; go through a list, and "
                "keep the number of the element: `for k, v in enumerate(list): …`, and behind the loop `list[k + 1:]`, "
                "or a loop that tests `if i > k`"
            )

    def require_unchanged(self) -> None:
        """Refuses an iterator that did more than to make an element."""
        try:
            changes = [slot for slot, _ in self._snapshot.changes(self._chain) if not self._is_private(slot)]
        except RewriteError as error:  # one that others hold
            raise DrawnError(str(error)) from error
        if changes or self._versions != [tensor._version for tensor in self._snapshot.tensors]:
            what = f" ({changes[0].describe()})" if changes else ""
            raise DrawnError(
                f"{line_now()}: what makes the elements of a {type(self._iterable).__name__} changes what others "
                f"see{what}, and it is gone through behind a step in which tensor data may have left the loop, where "
                "Python would stop it: let it only make its elements, or write its steps into the loop"
            )

    def _is_private(self, slot: Slot) -> bool:
        """Whether an iterator of a class of the model's changed, which nobody uses again."""
        return id(slot.owner) in self._chain


def _is_moved(held: object) -> bool:
    """Whether it goes on with an iterator that holds it."""
    is_iterator = isinstance(held, Iterator) and not isinstance(held, torch.nn.Module)
    return is_iterator or type(held).__module__ == "itertools"  # what the iterators of `tee` have in common
