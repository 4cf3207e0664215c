"""Text made of tensor data and dynamic sizes: it may be told, but what depends on its characters is refused.

While a program is traced `f"{x.sum()}"` says what stands for the tensor, not its number. In a message nothing is lost
by that; where the model compares the text, looks something up by it or takes it apart, another branch would be traced.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from exportguard.model_code import is_users
from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.places import line_now
from exportguard.source.errors import RewriteError

_REWRITES = os.path.join(os.path.dirname(__file__), "")
_ASKING = (
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__len__", "__getitem__", "__iter__"),
    *("count", "endswith", "find", "index", "isalpha", "isdigit", "isnumeric", "partition", "removeprefix"),
    *("removesuffix", "rfind", "rindex", "rpartition", "rsplit", "split", "splitlines", "startswith"),
)
_MAKING = ("__add__", "__mod__", "__mul__", "__rmul__", "capitalize", "casefold", "center", "format", "join", "ljust")
_MAKING_TOO = ("lower", "lstrip", "replace", "rjust", "rstrip", "strip", "title", "upper", "zfill")


def _refuse() -> NoReturn:
    raise RewriteError(
        f"{line_now()}: a text with a number of tensor data, or a dynamic size, in it is compared, looked up or taken "
        "apart, and while a program is traced it says something else: test the number itself"
    )


def require_no_text_of_data(key: object) -> None:
    """Refuses a key that no look-up may rest on."""
    if isinstance(key, TextOfData):
        _refuse()


def _is_asked_by_the_model(frame: types.FrameType | None) -> bool:
    """Whether a model asks, be it by what its rewritten code calls."""
    while frame is not None and frame.f_code.co_filename.startswith(_REWRITES):
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code.co_filename)


class TextOfData(str):
    """A text that no decision may rest on."""

    def __hash__(self) -> int:
        if _is_asked_by_the_model(sys._getframe(1)):  # and not by a registry of warnings
            _refuse()
        return str.__hash__(self)

    def __radd__(self, other: str) -> TextOfData:
        return TextOfData(str(other) + str.__str__(self))


def _asking(name: str) -> Callable[..., Any]:
    own = getattr(str, name)

    def method(self: str, *args: Any) -> Any:
        if _is_asked_by_the_model(sys._getframe(1)):
            _refuse()
        return own(self, *args)

    return method


def _making(name: str) -> Callable[..., Any]:
    own = getattr(str, name)

    def method(self: str, *args: Any, **kwargs: Any) -> Any:
        return TextOfData(own(self, *args, **kwargs))

    return method


for _name in _ASKING:
    setattr(TextOfData, _name, _asking(_name))
for _name in (*_MAKING, *_MAKING_TOO):
    setattr(TextOfData, _name, _making(_name))


def text_(made: str, *values: Any) -> str:
    """A text that was made of some values."""
    return TextOfData(made) if any(_is_of_data(value) for value in values) else made


def _is_of_data(value: object) -> bool:
    leaves = [*value] if isinstance(value, torch.Size) else pytree.tree_leaves(value)
    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return any(isinstance(leaf, (TextOfData, *symbolic)) or depends_on_data(leaf) for leaf in leaves)


def str_(value: object = "") -> str:
    """`str(value)`."""
    return text_(str(value), value)


def repr_(value: object) -> str:
    """`repr(value)`."""
    return text_(repr(value), value)


def format_(value: object, how: str = "") -> str:
    """`format(value, how)`: what is traced has no digits to be counted."""
    if _is_of_data(value):
        return TextOfData(format(str(value), "") if isinstance(value, torch.Tensor) else str(value))
    return format(value, how)


def joined_(parts: Iterable[str]) -> str:
    """The parts of an f-string."""
    parts = list(parts)
    return text_("".join(parts), *parts)


def filled_(template: str, *values: Any) -> str:
    """`template.format(*values)`."""
    return TextOfData(f"{template} {values}") if any(map(_is_of_data, values)) else template.format(*values)


def percent_(template: str, values: object) -> str:
    """`template % values`."""
    if not _is_of_data(values):
        return str(template % values)
    return TextOfData(f"{template} % {values}")
