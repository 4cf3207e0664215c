"""The numbers that code of a model may compare one of its own with, where it makes that one of a size.

Of `int(n / 16)` torch is told that it is 3, and not that the model asks next whether it is 30. What it may be compared
with is written in the code that runs, or lies in its variables and in the attributes of these.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from exportguard.model_code import is_users

_LARGEST = 2**20  # number; what is larger is no number of rows
_MOST = 64  # numbers, those of the innermost functions first


def numbers_at_hand(frames: Iterable[types.FrameType]) -> tuple[int, ...]:
    """Integers from 2 up in functions of the user, the innermost first, without signs: constants, variables, and their
    attributes.
    """
    found: dict[int, None] = {}
    for frame in frames:
        if len(found) < _MOST and is_users(frame.f_code.co_filename):
            found.update(dict.fromkeys(_integers_in(_values_of(frame))))
    return tuple(found)[:_MOST]


def _values_of(frame: types.FrameType) -> Iterator[object]:
    for code in _with_inner(frame.f_code):
        yield from code.co_consts
        yield from (frame.f_globals[name] for name in code.co_names if name in frame.f_globals)
    for value in (*frame.f_locals.values(),):
        yield value
        for attribute in _attributes_of(value):
            yield attribute
            yield from _attributes_of(attribute)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def _attributes_of(value: object) -> list[Any]:
    """Those of a module, or of an object of data, as a configuration is."""
    if isinstance(value, torch.nn.Module):
        return [*vars(value).values(), *value.children()]
    is_data = not isinstance(value, (torch.Tensor, type, types.ModuleType, types.FunctionType))
    return [*getattr(value, "__dict__", {}).values()] if is_data else []


def _integers_in(values: Iterable[object]) -> Iterator[int]:
    """Those that are values, or stand in lists, sets and dicts that are."""
    for value in values:
        if type(value) in (tuple, list, set, frozenset):
            entries: Iterable[object] = [*value]  # type: ignore[misc]
        else:
            entries = [*value] if type(value) is dict else (value,)
        yield from (abs(entry) for entry in entries if type(entry) is int and 2 <= abs(entry) <= _LARGEST)
