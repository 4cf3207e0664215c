"""Text made of tensor data and dynamic sizes: it may be told, but what depends on its characters is refused.

While a program is traced `f"{x.sum()}"` says what stands for the tensor, not its number. In a message nothing is lost
by that; where the model compares the text, looks something up by it or takes it apart, another branch would be traced.
What is looked up under a name with one whole number in it is looked up under the number.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from exportguard.model_code import is_users
from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.numbers import is_number, kinds_of
from exportguard.rewrites.places import line_now
from exportguard.source.errors import RewriteError

_WHOLE = kinds_of(1)
_REWRITES = os.path.join(os.path.dirname(__file__), "")
_ASKING = (
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__len__", "__getitem__", "__iter__"),
    *("count", "endswith", "find", "index", "isalpha", "isdigit", "isnumeric", "partition", "removeprefix"),
    *("removesuffix", "rfind", "rindex", "rpartition", "rsplit", "split", "splitlines", "startswith"),
)
_MAKING = ("__mod__", "__mul__", "__rmul__", "capitalize", "casefold", "center", "format", "join", "ljust")
_MAKING_TOO = ("lower", "lstrip", "replace", "rjust", "rstrip", "strip", "title", "upper", "zfill")


def _refuse() -> NoReturn:
    raise RewriteError(
        f"{line_now()}: a text with a number of tensor data, or a dynamic size, in it is compared, looked up or taken "
        "apart, and while a program is traced it says something else: test the number itself"
    )


def require_no_text_of_data(key: object) -> None:
    """Refuses a key that no look-up may rest on, and what no text may be searched for."""
    if isinstance(key, TextOfData):
        _refuse()


def sought_(text: Any) -> Any:
    """What a text is searched for."""
    require_no_text_of_data(text)
    return text


def _is_asked_by_the_model(frame: types.FrameType | None) -> bool:
    """Whether a model asks, be it by what its rewritten code calls."""
    while frame is not None and frame.f_code.co_filename.startswith(_REWRITES):
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code.co_filename)


class TextOfData(str):
    """A text that no decision may rest on, but for a look-up where it is one whole number with a text on either side.

    `number` is that number, or None.
    """

    before = behind = ""
    number: Any = None

    def __hash__(self) -> int:
        if _is_asked_by_the_model(sys._getframe(1)):  # and not by a registry of warnings
            _refuse()
        return str.__hash__(self)

    def __add__(self, other: str) -> TextOfData:
        return joined_([self, other])  # type: ignore[return-value]

    def __radd__(self, other: str) -> TextOfData:
        return joined_([other, self])  # type: ignore[return-value]


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
    return _of_a_number(text_(str(value), value), value)


def _of_a_number(made: str, value: object) -> str:
    """A text that is one whole number, which it remembers."""
    is_whole = isinstance(value, torch.SymInt) or (is_number(value) and kinds_of(value) == _WHOLE)
    if is_whole and isinstance(made, TextOfData):
        made.number = value
    return made


def by_number(container: Mapping[str, Any], key: TextOfData) -> tuple[dict[int, Any], Any]:
    """A mapping by names as one by the numbers in them, and the number that is looked up: `blocks[f"h{k}"]`.

    :raises RewriteError: the name is made of something else than one whole number and what stands on either side of it
    """
    if key.number is None:
        _refuse()
    found = {name: str.removesuffix(name.removeprefix(key.before), key.behind) for name in container}
    numbered = {int(part): name for name, part in found.items() if _is_number_of(part, name, key)}
    return {number: container[name] for number, name in numbered.items()}, key.number


def _is_number_of(part: str, name: str, key: TextOfData) -> bool:
    """Whether a name is what the text gives for the number in it."""
    is_whole = part.removeprefix("-").isdecimal() and str(int(part)) == part
    return is_whole and f"{key.before}{part}{key.behind}" == name


def repr_(value: object) -> str:
    """`repr(value)`."""
    return text_(repr(value), value)


def format_(value: object, how: str = "") -> str:
    """`format(value, how)`: what is traced has no digits to be counted."""
    if _is_of_data(value):
        made = TextOfData(format(str(value), "") if isinstance(value, torch.Tensor) else str(value))
        return _of_a_number(made, value) if how in ("", "d") else made
    return format(value, how)


def joined_(parts: Iterable[str]) -> str:
    """The parts of an f-string."""
    parts = list(parts)
    made = text_("".join(map(str.__str__, parts)), *parts)
    of_data = [place for place, part in enumerate(parts) if isinstance(part, TextOfData)]
    if isinstance(made, TextOfData) and len(of_data) == 1:
        (place,) = of_data
        part: Any = parts[place]
        made.number = part.number
        made.before = "".join(parts[:place]) + part.before
        made.behind = part.behind + "".join(parts[place + 1 :])
    return made


def filled_(template: str, *values: Any) -> str:
    """`template.format(*values)`."""
    return TextOfData(f"{template} {values}") if any(map(_is_of_data, values)) else template.format(*values)


def percent_(template: str, values: object) -> str:
    """`template % values`."""
    if not _is_of_data(values):
        return str(template % values)
    return TextOfData(f"{template} % {values}")
