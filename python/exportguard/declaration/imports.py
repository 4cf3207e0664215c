"""Tells when a module is imported, so that a patch of one that is not loaded yet costs nothing until then."""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder

Listener = Callable[[types.ModuleType], None]
IsAwaited = Callable[[str], bool]


class _TellingLoader(Loader):
    """Stands in for a module's loader until the module has run."""

    def __init__(self, loader: Loader, tell: Listener) -> None:
        self._loader, self._tell = loader, tell

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._tell(module)


class _ImportWatch(MetaPathFinder):
    """Finds modules as the other finders do; on `sys.meta_path` only while somebody waits for a module."""

    def __init__(self) -> None:
        self._awaited: list[tuple[IsAwaited, Listener]] = []

    def add(self, is_awaited: IsAwaited, listener: Listener) -> tuple[IsAwaited, Listener]:
        entry = (is_awaited, listener)
        self._awaited.append(entry)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        return entry

    def remove(self, entry: tuple[IsAwaited, Listener]) -> None:
        self._awaited.remove(entry)
        if not self._awaited:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(is_awaited(name) for is_awaited, _ in self._awaited):
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _TellingLoader(spec.loader, self._tell)
        return spec

    def _tell(self, module: types.ModuleType) -> None:
        for is_awaited, listener in list(self._awaited):
            if is_awaited(module.__name__):
                listener(module)


_watch = _ImportWatch()


class Waiting:
    """`listener(module)` for every module that is imported between `start` and `stop` and has an awaited name."""

    def __init__(self, is_awaited: IsAwaited, listener: Listener) -> None:
        self._is_awaited, self._listener = is_awaited, listener
        self._entry: tuple[IsAwaited, Listener] | None = None

    def start(self) -> None:
        self._entry = _watch.add(self._is_awaited, self._listener)

    def stop(self) -> None:
        if self._entry is not None:
            _watch.remove(self._entry)
            self._entry = None


def module_of(path: str) -> str:
    """The module part of the dotted path of an attribute: what comes before the first class, or before the last name.

    >>> module_of("torch.nn.Linear.forward"), module_of("torch.nn.functional.silu")
    ('torch.nn', 'torch.nn.functional')
    """
    parts = path.split(".")[:-1]
    classes = (i for i, part in enumerate(parts) if part != part.lower())
    return ".".join(parts[: next(classes, len(parts))])


@functools.cache
def module_exists(name: str) -> bool:
    """Whether the module is installed, found out without importing it or its parents."""
    if name in sys.modules:
        return sys.modules[name] is not None  # None forbids its import
    parent, _, _ = name.rpartition(".")
    if not parent:
        return importlib.util.find_spec(name) is not None
    return _found_in(_folders_of(parent), name) is not None


def _folders_of(package: str) -> Sequence[str] | None:
    """Where the modules of a package lie; None for what is no package, or not installed."""
    if package in sys.modules:
        folders: Sequence[str] | None = getattr(sys.modules[package], "__path__", None)
        return list(folders) if folders is not None else None
    parent, _, _ = package.rpartition(".")
    spec = _found_in(_folders_of(parent), package) if parent else importlib.util.find_spec(package)
    found = spec.submodule_search_locations if spec is not None else None
    return list(found) if found is not None else None


def _found_in(folders: Sequence[str] | None, name: str) -> ModuleSpec | None:
    """A module in the folders of its package.

    It is looked for by its last name: the path of a folder without `__init__.py` asks `sys.modules` for the package by
    its whole name, and raises KeyError as long as that is not imported. And without folders `PathFinder` would look
    for it on `sys.path`, where a folder `models` is not `transformers.models`.
    """
    return PathFinder.find_spec(name.rpartition(".")[2], folders) if folders is not None else None
