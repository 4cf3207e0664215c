"""What a trace leaves in the modules that a model is written in: tables that are made once and kept in a dict, a list,
or a variable of a module or a class. They hold what only the trace knows, and a later call would find it."""

from __future__ import annotations

import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from exportguard import _core
from exportguard.containers import file_of_module
from exportguard.model_code import is_installed

#: Of these types and no others: what is read lazily is not to be read here.
_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
#: Packages that keep nothing of a trace, or put it away themselves.
_KNOWN = ("torch", "numpy", "sympy", "exportguard", "builtins")
_NESTING = (tuple, list)
_DEEP = 3  # containers in containers, and what holds them
#: Of cached functions, which count from 0 again when they are cleared: another trace may have begun before that.
_misses_cleared: weakref.WeakKeyDictionary[functools._lru_cache_wrapper[Any], int] = weakref.WeakKeyDictionary()


class KeptTables:
    """What modules, their classes and functions hold before a trace."""

    def __init__(self, modules: Iterable[types.ModuleType]) -> None:
        every = [*modules]
        modules = [module for module in every if _has_models(module)]
        self._names = {module.__name__ for module in modules}
        self._spaces = [(module, dict(vars(module))) for module in modules]
        kinds = {id(kind): kind for _, space in self._spaces for kind in space.values() if self._is_own_kind(kind)}
        self._spaces += [(kind, dict(vars(kind))) for kind in kinds.values()]
        self._containers: dict[int, tuple[Any, Any]] = {}
        self._caches: dict[int, tuple[functools._lru_cache_wrapper[Any], int]] = {}
        for _, space in self._spaces:
            for value in space.values():
                self._note(value, _DEEP)
        for cache in _core.values_of_type([*map(vars, every)], functools._lru_cache_wrapper):
            self._note(cache, 0)

    def restore(self) -> None:
        """Puts back what was there, wherever a tensor or a size of the trace is now."""
        for owner, before in self._spaces:
            if not _has_trace(vars(owner).values()):
                continue
            for name, value in [*vars(owner).items()]:
                if type(value) in _of_trace() and before.get(name) is not value:
                    setattr(owner, name, before[name]) if name in before else delattr(owner, name)
        for container, before in self._containers.values():
            if _has_trace(_elements(container)):
                container.clear()
                _filler(container)(before)
        for cache, misses in self._caches.values():
            if _misses_ever(cache) != misses:  # it holds what only the trace knows
                _misses_cleared[cache] = _misses_ever(cache)
                cache.cache_clear()

    def _note(self, value: Any, depth: int) -> None:
        """Looks for containers in what is defined in the modules, which it copies, and for cached functions."""
        if type(value) is functools._lru_cache_wrapper:
            self._caches[id(value)] = (value, _misses_ever(value))
            return
        if type(value) in _CONTAINERS:
            if id(value) in self._containers:
                return
            self._containers[id(value)] = (value, dict(value) if isinstance(value, dict) else [*value])
            inner: Iterable[Any] = _elements(value)
        elif depth == 0:
            return
        else:
            inner = self._held_by(value)
        for each in inner if depth else ():
            self._note(each, depth - 1)

    def _held_by(self, value: Any) -> Iterator[Any]:
        """What a function was defined with, or an object of one of the classes has."""
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(function, types.FunctionType):
            if function.__module__ in self._names:
                yield from (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
                yield from (cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell))
                yield from vars(function).values()
        elif type(value).__module__ in self._names and not isinstance(value, torch.nn.Module | type):
            yield from getattr(value, "__dict__", {}).values()

    def _is_own_kind(self, value: Any) -> bool:
        return isinstance(value, type) and value.__module__ in self._names


def _misses_ever(cache: functools._lru_cache_wrapper[Any]) -> int:
    return _misses_cleared.get(cache, 0) + cache.cache_info().misses


def _has_models(module: types.ModuleType) -> bool:
    """Whether a module is the user's own, or one of a package that defines parts of models."""
    if module.__name__.partition(".")[0] in _KNOWN:
        return False
    is_own = not is_installed(file_of_module(module) or "")
    return is_own or _core.defines_kind_of(vars(module), module.__name__, torch.nn.Module)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - which raises
    except ValueError:
        return False
    return True


def _elements(container: Any) -> Iterable[Any]:
    return [*container.keys(), *container.values()] if isinstance(container, dict) else [*container]


def _filler(container: Any) -> Callable[[Any], object]:
    filler: Callable[[Any], object] = container.update if isinstance(container, dict | set) else container.extend
    return filler


def _has_trace(values: Iterable[Any]) -> bool:
    """Whether one of some values is of the trace, or a tuple or list with one."""
    values = [*values]
    kinds = {*map(type, values)}
    if kinds.isdisjoint(_NESTING):
        return not kinds.isdisjoint(_of_trace())
    inner = [each for value in values if type(value) in _NESTING for each in value]
    return not {*kinds, *map(type, inner)}.isdisjoint(_of_trace())


@functools.cache
def _of_trace() -> tuple[type, ...]:
    # Not at the top: it takes long to import, and whoever exports has it by now.
    from torch._subclasses.fake_tensor import FakeTensor

    return (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
