"""Patches of a construct rather than of a function: wherever the models of transformers that are imported have it."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from exportguard.declaration.modules import Action, for_later_modules
from exportguard.declaration.patch import Patch
from exportguard.source.errors import RewriteError

if TYPE_CHECKING:
    from exportguard._core import Changes

#: What a construct becomes: installs the changed function in place of `owner.name`.
Install = Callable[["Changes", Any, str], None]

_MODELS = "transformers.models"


def where_it_fits(replace: Callable[[Any], Any], named: Callable[[str], bool] = lambda name: True) -> Install:
    """Installs what `replace` makes of each function of such a name.

    A line that looks like the construct may be another one, or a function have it in a form that the rule leaves alone:
    then the function stays.
    """

    def install(changes: Changes, owner: Any, name: str) -> None:
        if not named(name):
            return
        try:
            changes.set_attribute(owner, name, replace(vars(owner)[name]))
        except RewriteError:
            return

    return install


def construct_patch(
    *, name: str, marker: str, mentions: tuple[str, ...], install: Install, reason: str, upstream: str
) -> Patch:
    """The patch of every function of a modeling module, imported now or later, with a line that matches `marker`.

    Every such line has one of the `mentions` in it; most modules have none, which is found out sooner.
    """
    pattern = re.compile(marker)

    def act(changes: Changes, module: types.ModuleType) -> None:
        for owner, attribute in functions_with(module, pattern, mentions):
            install(changes, owner, attribute)

    return models_patch(name=name, act=act, reason=reason, upstream=upstream)


def models_patch(*, name: str, act: Action, reason: str, upstream: str) -> Patch:
    """The patch that acts on every modeling module, imported now or later."""

    def act_on_models(changes: Changes, module: types.ModuleType) -> None:
        if _has_models(module.__name__):
            act(changes, module)

    def apply(changes: Changes) -> None:
        for key in _imported_models(len(sys.modules), next(reversed(sys.modules))):
            act_on_models(changes, sys.modules[key])
        for_later_modules(changes, _MODELS, act_on_models)

    return Patch(
        name=name,
        kind="transformers",
        target=f"{_MODELS}, {name}",
        reason=reason,
        upstream=upstream,
        apply=apply,
    )


@functools.lru_cache(maxsize=1)
def _imported_models(count: int, last: str) -> list[str]:
    """The names of the modules, sorted; read anew whenever there are more of them, or others."""
    return sorted(key for key in sys.modules if key.startswith(f"{_MODELS}.") and _has_models(key))


def _has_models(name: str) -> bool:
    return name.startswith(f"{_MODELS}.") and name.rpartition(".")[2].startswith("modeling_")


@functools.cache
def functions_with(
    module: types.ModuleType, pattern: re.Pattern[str], mentions: tuple[str, ...]
) -> tuple[tuple[Any, str], ...]:
    """The functions and methods that the module defines and that have such a line, each as (owner, name)."""
    lines = _matching_lines(module, pattern, mentions)
    if not lines:
        return ()
    return tuple(place for *place, function in _functions_of(module) if lines & _lines_of(function.__code__))  # type: ignore[misc]


def _matching_lines(module: types.ModuleType, pattern: re.Pattern[str], mentions: tuple[str, ...]) -> frozenset[int]:
    source = _source_of(module)
    found = [mention for mention in mentions if mention in source]
    if not found:
        return frozenset()
    lines = enumerate(source.splitlines(), 1)
    return frozenset(
        number for number, line in lines if any(mention in line for mention in found) and pattern.search(line)
    )


@functools.cache
def _source_of(module: types.ModuleType) -> str:
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):
        return ""


def _functions_of(module: types.ModuleType) -> Iterator[tuple[Any, str, types.FunctionType]]:
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    for owner in (module, *(value for value in own if isinstance(value, type))):
        for name, value in vars(owner).items():
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                yield owner, name, inspect.unwrap(value)


def _lines_of(code: types.CodeType) -> frozenset[int]:
    """The lines of a function, with those of its comprehensions and of the functions in it."""
    inner = (_lines_of(const) for const in code.co_consts if isinstance(const, types.CodeType))
    return frozenset(line for _, _, line in code.co_lines() if line).union(*inner)
