"""What the code of some functions may change besides their own variables: found in the code, before it runs.

From a function lead: the variables that it shares, the globals that its code names and what they hold, the functions
and classes among them, and, for each object on the way, the methods of its class whose names occur in the code. That is
more than what is called in fact, and all of it: what a function changes it either is given, or finds by a name.
What cannot be seen is state in modules written in C, and what `setattr` or `globals()` are told by computed names.
"""

from __future__ import annotations

import dis
import functools
import random
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from exportguard.model_code import is_users, is_users_class, is_users_module
from exportguard.rewrites.contents import METHODS_IN_C, GlobalNames, content_of_cell, is_opaque

_STORES = ("STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF")


_OF_PYTHON: Any = random.random
_OF_NUMPY: Any = np.random.random

#: The generator behind `random.random()` and its kin, by the module that a code names.
_GENERATORS: dict[types.ModuleType, Any] = {
    random: _OF_PYTHON.__self__,
    np: _OF_NUMPY.__self__,
    np.random: _OF_NUMPY.__self__,
}


@dataclass(frozen=True)
class _Names:
    """What a code object, with those in it, names."""

    globals: tuple[str, ...]  # read
    attributes: frozenset[str]
    stored_globals: tuple[str, ...]
    stored_cells: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> _Names:
    instructions = [*_instructions(code)]
    read = dict.fromkeys(i.argval for i in instructions if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    stored = dict.fromkeys(i.argval for i in instructions if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"))
    cells = dict.fromkeys(i.argval for i in instructions if i.opname in _STORES)
    return _Names(tuple(read), all_names(code), tuple(stored), tuple(cells))


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)


@functools.lru_cache(maxsize=4096)
def all_names(code: types.CodeType) -> frozenset[str]:
    """The names of globals and attributes in a code, and in the functions inside of it."""
    inner = (all_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(code.co_names).union(*inner)


@functools.lru_cache(maxsize=4096)
def _methods_of(kind: type) -> dict[str, types.FunctionType]:
    """The functions of a class of the user's, without those of its bases, by name."""
    found = {name: _function_in(value) for name, value in vars(kind).items()}
    return {name: function for name, function in found.items() if function is not None}


def _function_in(value: object) -> types.FunctionType | None:
    if isinstance(value, staticmethod | classmethod | types.MethodType):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    return value if isinstance(value, types.FunctionType) else None


class Reach:
    """Functions and classes on the way from some functions; `found` are the objects that they lead to."""

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        self.found: list[Any] = []
        self.numbers: list[torch.SymInt] = []
        self._names: set[str] = {"forward"}
        self._done: set[int] = set()
        self._classes: dict[type, None] = {}
        for function in functions:
            self.function(function)

    def function(self, function: Any) -> None:
        """Takes in a function: what it shares, assigns and names."""
        code = getattr(function, "__code__", None)
        if code is None or id(function) in self._done:
            return
        self._done.add(id(function))
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        for cell in cells.values():
            self.value(next(iter(content_of_cell(cell).values.values()), None))
        named = _names_in(code)
        self.found += [cells[name] for name in named.stored_cells if name in cells]
        if not is_users(code.co_filename):
            return
        if named.stored_globals:
            self.found.append(GlobalNames(function.__globals__, named.stored_globals))
        self._names |= named.attributes
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(default)
        for name in named.globals:
            self._global(function.__globals__.get(name), named.attributes)

    def _global(self, value: object, attributes: frozenset[str]) -> None:
        if not isinstance(value, types.ModuleType):
            self.value(value)
            return
        if value in _GENERATORS:
            self.found.append(_GENERATORS[value])
        if is_users_module(value):
            for name in attributes & vars(value).keys():
                self.value(vars(value)[name])

    def value(self, value: object) -> None:
        """Takes in a value that code leads to."""
        if isinstance(value, torch.SymInt):
            self.numbers.append(value)
        elif isinstance(value, types.FunctionType):
            if is_users(value.__code__.co_filename):
                self.found.append(value)
            self.function(value)
        elif isinstance(value, types.MethodType):
            self.value(value.__self__)
            self.value(value.__func__)
        elif isinstance(value, METHODS_IN_C):
            self.value(value.__self__)
        elif isinstance(value, type) and is_users_class(value):
            self.found.append(value)
            self.kind(value)
        elif not is_opaque(value) and value is not None:
            self.found.append(value)

    def kind(self, kind: type) -> None:
        """Takes in a class of an object on the way."""
        for base in kind.__mro__:
            if base not in self._classes and is_users_class(base):
                self._classes[base] = None
                self.found.append(base)

    def more(self) -> list[Any]:
        """What was found since the last call, by the methods of the classes whose names the code holds as well."""
        for kind in [*self._classes]:
            methods = _methods_of(kind)
            for name in methods:
                if name in self._names or name.startswith("__"):
                    self.function(methods[name])
        found, self.found = self.found, []
        return found
