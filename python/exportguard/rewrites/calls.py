"""Which functions a call of a model may lead to: by the names in the code of its `forward`, and in theirs."""

from __future__ import annotations

import inspect
import itertools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping

import torch

from exportguard.model_code import is_users, is_users_class, is_users_module
from exportguard.rewrites.reach import all_names

_CALLED_BY_PYTHON = ("__init__", "__post_init__", "__call__", "__getattr__", "__getitem__", "__len__", "__iter__")
_PLAIN = frozenset({bool, float, int, str, type(None)})  # most of what a module has beside dictionaries of hooks
_LOOKED_AT = 64  # elements of a container, which are mostly alike


#: The functions that a call may lead to, by the code that they run.
Called = Mapping[types.CodeType, list[types.FunctionType]]


def functions_called(model: object) -> Called:
    """The user's functions, and those of packages, that a call of a model may lead to, by the code that they run.

    That is more than what is called: a method is one that it calls if its name occurs in the code of another.
    """
    return _Calls(model.modules()).found() if isinstance(model, torch.nn.Module) else {}


class _Calls:
    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._names = {"forward"}
        self._functions: dict[types.CodeType, list[types.FunctionType]] = {}
        self._seen: set[int] = set()
        self._classes: dict[type, None] = {}
        for module in modules:
            self._take(type(module))
            for held in vars(module).values():
                if type(held) not in _PLAIN:
                    self._take_held(held)

    def found(self) -> dict[types.CodeType, list[types.FunctionType]]:
        count = -1
        while count < len(self._seen) + len(self._classes):
            count = len(self._seen) + len(self._classes)
            for kind in [*self._classes]:
                for name, member in [*vars(kind).items()]:
                    if name in self._names or name in _CALLED_BY_PYTHON:
                        self._take_member(member)
        return self._functions

    def _take_member(self, member: object) -> None:
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        for function in (member.fget, member.fset) if isinstance(member, property) else (inner,):
            if isinstance(function, types.FunctionType):
                self._take(function)

    def _take_held(self, value: object) -> None:
        """Takes in what a module has as an attribute: a function, an object of a class of the user's, some of them."""
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
        for item in itertools.islice(values, _LOOKED_AT):
            if isinstance(item, types.FunctionType | types.MethodType | type):
                self._take(item)
            elif not isinstance(item, torch.Tensor | torch.nn.Module) and is_users_class(type(item)):
                self._take(type(item))

    def _take(self, value: object) -> None:
        """Takes in a function or a class, with what their code names."""
        if isinstance(value, types.MethodType):
            value = value.__func__
        if isinstance(value, type):
            for kind in value.__mro__:
                if kind not in self._classes and is_users_class(kind):
                    self._classes[kind] = None
        elif isinstance(value, types.FunctionType) and id(value) not in self._seen:
            self._seen.add(id(value))
            if is_users(value.__code__.co_filename):
                self._functions.setdefault(value.__code__, []).append(value)
                self._names |= all_names(value.__code__) | _words_in(value.__code__)
                for named in _named_by(value):
                    self._take(named)
            for inner in _inside(value):
                self._take(inner)


def _words_in(code: types.CodeType) -> set[str]:
    """Texts in a code that may be names, for `getattr`."""
    return {constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier()}


def _inside(function: types.FunctionType) -> Iterator[object]:
    """What a decorator's function calls: the one that it wraps, and functions in its cells."""
    inner = inspect.unwrap(function)
    if inner is not function:
        yield inner
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a cell that has no value yet
            continue


def _named_by(function: types.FunctionType) -> Iterator[object]:
    """What the names in a function's code stand for: globals, and what it takes from modules, imported by it or not."""
    names = all_names(function.__code__)
    package = function.__globals__.get("__package__") or ""
    for name in names:
        value = function.__globals__.get(name)
        if value is None:
            value = sys.modules.get(name) or sys.modules.get(f"{package}.{name}")
        yield value
        if isinstance(value, types.ModuleType) and is_users_module(value):
            yield from (vars(value)[inner] for inner in names & vars(value).keys())


__all__ = ["Called", "functions_called"]
