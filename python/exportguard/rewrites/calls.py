"""What a call of a model may lead to: by the names in the code of its `forward`, and in theirs."""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import torch

from exportguard import _core
from exportguard.containers import elements_of, file_of_module, names_of_module
from exportguard.model_code import is_installed, is_users, is_users_class, is_users_module
from exportguard.module_tree import named_modules
from exportguard.rewrites.reach import all_names

_CALLED_BY_PYTHON = ("__call__", "__getattr__", "__getitem__", "__len__", "__iter__")
_CALLED_TO_MAKE = ("__init__", "__new__", "__post_init__")  # an object of a class that a code names
_PLAIN = frozenset({bool, float, int, str, type(None)})
#: Without an element they lead to nothing: most of what a module has are dictionaries of hooks that it has not.
_CONTAINERS = frozenset({dict, collections.OrderedDict, list, tuple, set})
#: What may lead to more, beside classes.
_LEADING = frozenset({types.FunctionType, types.MethodType, staticmethod, classmethod, property})
_LOOKED_AT = 64  # elements of a container, which are mostly alike


@dataclass(frozen=True)
class Called:
    """What a call of a model may lead to, none of it torch's.

    `functions` are the user's and those of packages, by the code that they run; `modules` are those of these functions
    and of the model's classes, and those whose functions and classes they name. That is more than what is called: a
    method is one that may be if its name occurs in the code of another, or its class lies in no installed package.
    """

    functions: Mapping[types.CodeType, list[types.FunctionType]] = field(default_factory=dict)
    _met: Sequence[str] = ()  # the names of the modules of what was met

    @functools.cached_property
    def modules(self) -> Sequence[types.ModuleType]:
        return _modules([*self._met])

    @classmethod
    def by(cls, model: object) -> Called:
        """What a call of a model may lead to: nothing, if it is no module."""
        if not isinstance(model, torch.nn.Module):
            return cls()
        calls = _Calls(module for _, module in named_modules(model))
        return cls(calls.functions, [*calls.modules()])


def _modules(pending: list[str]) -> list[types.ModuleType]:
    """The user's modules of these names, and those whose functions and classes they name."""
    found: dict[str, types.ModuleType] = {}
    while pending:
        name = pending.pop()
        module = sys.modules.get(name)
        if module is None or name in found or not is_users_module(module):
            continue
        found[name] = module
        pending += _core.modules_named_in(names_of_module(module)) - found.keys()
    return list(found.values())


class _Calls:
    """Goes from what modules are to what that leads to: what has a name waits until a code that was met has it, too."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self.functions: dict[types.CodeType, list[types.FunctionType]] = {}
        self._names = {"forward", *_CALLED_BY_PYTHON}
        self._waiting: dict[str, list[object]] = {}  # members and attributes, by their names
        self._making: dict[type, list[object]] = {}  # what is called where an object of a class is made
        self._made: set[type] = set()
        self._met: set[int] = set()  # the functions
        self._classes: dict[type, None] = {}
        self._pending: list[object] = []
        for module in modules:
            self._take_class(type(module))
            own = _is_own(type(module))
            for name, held in vars(module).items():
                if type(held) not in _PLAIN and (type(held) not in _CONTAINERS or held):
                    self._await(name, _Held(held), is_named=own)
        while self._pending:
            self._take(self._pending.pop())

    def modules(self) -> Iterator[str]:
        """The names of the modules of what was met."""
        yield from (kind.__module__ for kind in self._classes)
        yield from (alike[0].__module__ for alike in self.functions.values())

    def _await(self, name: str, value: object, *, is_named: bool = False) -> None:
        (self._pending if is_named or name in self._names else self._waiting.setdefault(name, [])).append(value)

    def _meet(self, names: Set[str]) -> None:
        for name in (names - self._names) & self._waiting.keys():
            self._pending += self._waiting.pop(name)
        self._names |= names

    def _take(self, value: object) -> None:
        """Takes in what a name stands for: a function, a class, a member of one, or what a module holds."""
        if isinstance(value, types.FunctionType):
            self._take_function(value)
        elif isinstance(value, type):
            for kind in value.__mro__:
                self._made.add(kind)
                self._pending += self._making.pop(kind, [])
            self._take_class(value)
        elif isinstance(value, types.MethodType | staticmethod | classmethod):
            self._pending.append(value.__func__)
        elif isinstance(value, property):
            self._pending += [value.fget, value.fset]
        elif isinstance(value, _Held):
            self._take_held(value.value)

    def _take_function(self, function: types.FunctionType) -> None:
        if id(function) in self._met:
            return
        self._met.add(id(function))
        if is_users(function.__code__.co_filename):
            self.functions.setdefault(function.__code__, []).append(function)
            self._meet(all_names(function.__code__) | _words_in(function.__code__))
            self._pending += _named_by(function)
        self._pending += _inside(function)

    def _take_class(self, value: type) -> None:
        for kind in value.__mro__:
            if kind in self._classes or not is_users_class(kind):
                continue
            self._classes[kind] = None
            own = _is_own(kind)
            for name, member in [*vars(kind).items()]:
                if own or name not in _CALLED_TO_MAKE:
                    self._await(name, member, is_named=own)
                elif kind in self._made:
                    self._pending.append(member)
                else:
                    self._making.setdefault(kind, []).append(member)

    def _take_held(self, value: object) -> None:
        """Takes in what a module has as an attribute: a function, an object of a class of the user's, some of them."""
        values = elements_of(value) if isinstance(value, dict | list | tuple) else None
        for item in itertools.islice((value,) if values is None else values, _LOOKED_AT):
            if isinstance(item, types.FunctionType | types.MethodType | type):
                self._pending.append(item)
            elif not isinstance(item, torch.Tensor | torch.nn.Module) and is_users_class(type(item)):
                self._take_class(type(item))


@dataclass(frozen=True)
class _Held:
    """What a module has as an attribute."""

    value: object


def _is_own(kind: type) -> bool:
    """Whether a class lies in no installed package: there a method may have a name that is put together."""
    return not is_installed(file_of_module(sys.modules.get(kind.__module__)) or "")


def _words_in(code: types.CodeType) -> set[str]:
    """Texts in a code that may be names, for `getattr`."""
    return {constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier()}


def _inside(function: types.FunctionType) -> Iterator[object]:
    """What a decorator's function calls: the one that it wraps, and functions in its cells."""
    if "__wrapped__" in vars(function):
        yield inspect.unwrap(function)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a cell that has no value yet
            continue


def _named_by(function: types.FunctionType) -> Iterator[object]:
    """What the names in a function's code stand for: globals, and what it takes from modules, imported by it or not."""
    names, held = all_names(function.__code__), function.__globals__
    package = held.get("__package__") or ""
    own = {name for name in names & held.keys() if held[name] is not None}
    of_modules = (sys.modules.get(name) or sys.modules.get(f"{package}.{name}") for name in names - own)
    for value in (*map(held.__getitem__, own), *of_modules):
        kind = type(value)
        if kind in _LEADING or issubclass(kind, type):
            yield value
        elif issubclass(kind, types.ModuleType) and is_users_module(value):
            inner = names_of_module(value)
            yield from map(inner.__getitem__, names & inner.keys())


__all__ = ["Called"]
