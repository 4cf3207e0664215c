"""What Python says of the type and the identity of a number, where a tensor or a symbol stands for it.

`isinstance(n, int)`, `type(n)`, `flag is True` and the patterns of `match` ask for the object itself. The answer is
that of the Python number which is there in eager mode; where its kind depends on the path that it came by, it is
refused.
"""

from __future__ import annotations

import builtins
import collections.abc
import types
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.choices import Choice
from exportguard.rewrites.collected import Grown
from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.numbers import alternatives_of, as_number, is_number, kinds_of, require_one_kind
from exportguard.rewrites.places import line_now
from exportguard.rewrites.texts import TextOfData
from exportguard.rewrites.watch import are_two
from exportguard.source.errors import RewriteError

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_STANDING_IN = frozenset((*_SYMBOLS, Choice, Grown, TextOfData))
_MATCH_THEMSELVES = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
_NO_SEQUENCES = (str, bytes, bytearray)


def is_instance(item: Any, classes: Any) -> bool:
    """`isinstance(item, classes)`.

    Raises:
        RewriteError: the answer depends on the path that the object came by.
    """
    if not _may_stand_in(item):
        return isinstance(item, classes)
    answers = {isinstance(stand_in, classes) for stand_in in _in_python(item)}
    if isinstance(item, _SYMBOLS) and isinstance(item, classes):  # who asks for a symbol means one
        return True
    if len(answers) > 1:
        _refuse("is asked for its type", item)
    return answers.pop()


def type_(*arguments: Any) -> Any:
    """`type(item)`, or a new class."""
    if len(arguments) != 1:
        return type(*arguments)
    if not _may_stand_in(arguments[0]):
        return type(arguments[0])
    answers = {_type_in_python(stand_in) for stand_in in _in_python(arguments[0])}
    if len(answers) > 1:
        _refuse("is asked for its type", arguments[0])
    return answers.pop()


def _type_in_python(item: Any) -> type:
    """The type of an object, of a tensor without data that of the tensor in eager mode."""
    if not isinstance(item, FakeTensor):
        return type(item)
    return torch.nn.Parameter if isinstance(item, torch.nn.Parameter) else torch.Tensor


class _AnsweringOfPython(type):
    """Lets a class be called as `type` is, and stand for it in `isinstance` and `issubclass`."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        return type(*arguments, **options) if options else type_(*arguments)

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, type)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, type)


class TypeOfPython(type, metaclass=_AnsweringOfPython):
    """`type` as modules of a model have it while they are traced."""

    def __class_getitem__(cls, kind: Any) -> Any:
        return types.GenericAlias(type, kind)


def class_of(item: Any) -> Any:
    """`item.__class__`."""
    return type_(item) if _may_stand_in(item) else item.__class__


def is_(item: Any, truth: bool) -> Any:
    """`item is truth`, of True and False."""
    if not isinstance(item, torch.SymBool) and not (isinstance(item, torch.Tensor) and kinds_of(item)):
        return item is truth
    answers = {type(stand_in) is bool for stand_in in _in_python(item)}
    if len(answers) > 1:
        _refuse("is asked whether it is True or False itself", item)
    if not answers.pop():
        return False
    if isinstance(item, torch.SymBool):
        return item if truth else torch.sym_not(item)  # type: ignore[no-untyped-call]
    return item if truth else as_number(torch.logical_not(item))


def is_not(item: Any, truth: bool) -> Any:
    """`item is not truth`, of True and False."""
    answer = is_(item, truth)
    if isinstance(answer, torch.SymBool):
        return torch.sym_not(answer)  # type: ignore[no-untyped-call]
    return as_number(torch.logical_not(answer)) if isinstance(answer, torch.Tensor) else not answer


def is_one(item: Any, other: Any) -> bool:
    """`item is other`.

    Raises:
        RewriteError: a branch or a loop made one of them anew, and the answer depends on the path.
    """
    if item is other:
        return True
    are_tensors = isinstance(item, torch.Tensor) and isinstance(other, torch.Tensor)
    if (are_tensors and aliases_now().may_be_one(item, other)) or are_two(item, other):
        raise RewriteError(
            f"{line_now()}: whether two names are one object (`is`) depends on the path through a test on tensor data "
            "or a loop, and no graph can tell: keep what was chosen in a variable, and test that"
        )
    return False


def is_other(item: Any, truth: bool) -> Any:
    """`item is truth` of what is not the other one of True and False: a truth value is this one then."""
    if isinstance(item, torch.SymBool) or (is_number(item) and {type(one) for one in _in_python(item)} == {bool}):
        return True
    return is_(item, truth)


def _may_stand_in(item: Any) -> bool:
    """Whether an object is of a class of which one may stand for something else; nearly none is."""
    return isinstance(item, torch.Tensor) or type(item) in _STANDING_IN


def _in_python(item: Any) -> Sequence[Any]:
    """Objects of which one is of the type that eager mode has there."""
    if isinstance(item, torch.SymBool):
        return (True,)
    if isinstance(item, torch.SymInt | torch.SymFloat):
        return alternatives_of(item)
    if isinstance(item, torch.Tensor) and kinds_of(item):
        return alternatives_of(item)
    if isinstance(item, Choice):
        return item.elements
    if type(item) is Grown:
        return ([],)
    return ("",) if type(item) is TextOfData else (item,)


def _refuse(what: str, item: Any) -> NoReturn:
    if is_number(item) or isinstance(item, torch.SymFloat):
        require_one_kind(item, "be asked for its type")
    raise RewriteError(
        f"{line_now()}: an object that is of one type on one path and of another on another one {what}, and no graph "
        "can tell which it is: make it of one type on every path"
    )


# ---------------------------------------------------------------------------------------------------- patterns


def is_sequence(item: Any, count: int, or_more: bool) -> bool:
    """Whether a pattern of `count` elements fits what is matched by its type and length."""
    if not is_instance(item, collections.abc.Sequence) or isinstance(item, _NO_SEQUENCES):
        return False
    return len(item) >= count if or_more else len(item) == count


def elements_between(item: Any, first: int, behind: int) -> list[Any]:
    """What `*rest` of a pattern binds: all elements but some first and last ones."""
    return [*item][first : len(item) - behind]


def has_keys(item: Any, keys: Sequence[Any]) -> bool:
    """Whether a pattern of a mapping fits what is matched by its type and keys."""
    return is_instance(item, collections.abc.Mapping) and builtins.all(key in item for key in keys)


def without_keys(item: Any, keys: Sequence[Any]) -> dict[Any, Any]:
    """What `**rest` of a pattern binds."""
    return {key: value for key, value in item.items() if key not in keys}


def has_attributes(item: Any, cls: Any, count: int, names: Sequence[str]) -> bool:
    """Whether what is matched is of a class and has what the pattern asks of it.

    Raises:
        TypeError: the class takes fewer patterns by position, as in Python.
    """
    if not is_instance(item, cls):
        return False
    if _matches_itself(cls):
        return builtins.all(hasattr(item, name) for name in names)
    positional = getattr(cls, "__match_args__", ())
    if count > len(positional):
        raise TypeError(f"{cls.__name__}() accepts {len(positional)} positional sub-patterns ({count} given)")
    return builtins.all(hasattr(item, name) for name in (*positional[:count], *names))


def _matches_itself(cls: type) -> bool:
    """Whether `cls(part)` is about the object itself: a class of these that names no attributes."""
    return not hasattr(cls, "__match_args__") and issubclass(cls, _MATCH_THEMSELVES)


def attribute_at(item: Any, cls: Any, place: int) -> Any:
    """What the pattern of a class matches by position."""
    return item if _matches_itself(cls) else getattr(item, cls.__match_args__[place])


def of_python(subject: Any, asks_types: bool = True) -> Any:
    """What a `match` that stays one of Python is about, with patterns of classes or truth values or without.

    Raises:
        RewriteError: it holds tensor data.
    """
    refused = (Choice, *_SYMBOLS) if asks_types else (Choice,)
    if any(depends_on_data(leaf) or isinstance(leaf, refused) for leaf in pytree.tree_leaves(subject)):
        raise RewriteError(
            f"{line_now()}: a `match` on tensor data or sizes binds names that are read behind it although its guard "
            "failed; write it as `if` and `elif`"
        )
    return subject
