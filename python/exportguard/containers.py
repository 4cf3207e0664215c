"""What Python's own containers and modules hold, read by their own methods: a subclass may say anything of itself."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any

_ELEMENTS: tuple[tuple[type, Callable[[Any], Iterable[Any]]], ...] = (
    (dict, lambda held: [value for _, value in items_of(held)]),
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
    (collections.deque, collections.deque.__iter__),
)


def elements_of(held: object) -> Iterable[Any] | None:
    """The elements of a container, of a dict its values; None if it is none.

    >>> class Irrep(tuple):
    ...     def __len__(self):
    ...         raise NotImplementedError
    >>> list(elements_of(Irrep((1, 2))))
    [1, 2]
    """
    read = next((read for kind, read in _ELEMENTS if isinstance(held, kind)), None)
    return None if read is None else read(held)


def items_of(held: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """The entries of a dict in its order, which an ordered one has beside that in which they were put in."""
    kind = collections.OrderedDict if isinstance(held, collections.OrderedDict) else dict
    return kind.items(held)


def names_of_module(module: object) -> dict[str, Any]:
    """What a module names by now; to ask a lazy one for more imports what it stands for, or raises."""
    try:
        held = object.__getattribute__(module, "__dict__")
    except AttributeError:  # what stands in sys.modules need not be a module
        return {}
    return held if isinstance(held, dict) else {}


def attribute_of_module(module: object, name: str) -> Any:
    """What a module names, imported by a lazy one if need be; None where it names nothing so, or cannot import it."""
    try:
        return getattr(module, name, None)
    except (ImportError, RuntimeError):  # RuntimeError: the lazy modules of transformers 4
        return None


def file_of_module(module: object) -> str | None:
    """The file that a module was read from; None without one."""
    file = names_of_module(module).get("__file__")
    return file if isinstance(file, str) else None
