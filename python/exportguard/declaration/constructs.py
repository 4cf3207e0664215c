"""Patches of a construct rather than of a function: wherever the models of transformers that are imported have it.

Each function that a rule changes is a target of its own, and each that only looks like one is told with the reason.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import logging
import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exportguard.declaration.imports import module_exists
from exportguard.declaration.modules import for_later_modules, imported_models
from exportguard.declaration.patch import (
    NEEDED,
    CodeReplacement,
    Patch,
    Replacement,
    Told,
    Verdict,
    does_not_fit,
    keep_frames,
    not_needed,
)
from exportguard.declaration.targets import Target
from exportguard.source.editing import is_made_here
from exportguard.source.errors import RewriteError
from exportguard.source.reading import definition_of
from exportguard.source.wrapping import innermost, plain

if TYPE_CHECKING:
    from exportguard._core import Changes, LaterChanges

logger = logging.getLogger(__name__)

_MODELS = "transformers.models"
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod)
_SHOWN = 3  # functions that do not fit, in a report; `SearchPatch.misfits` has all of them

#: The places in a module where a patch may apply, each as (owner, name).
Find = Callable[[types.ModuleType], Iterable[tuple[Any, str]]]


@dataclass(frozen=True)
class Misfit:
    """A function with what the patch looks for in another form than it was written for."""

    path: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchPatch(Patch):
    """The patch of every function that `find` finds in a modeling module, imported now or later.

    `replace` makes of what is there what takes its place. Where it raises `RewriteError` the function stays as it is,
    and is one of the `misfits` unless it was another patch that took the construct away.

    :param has: whether a function that `find` finds has the construct at all, asked where `replace` finds nothing
    :param mentions: words of which a module has one wherever `find` finds something; left out: any module may have it
    :param in_code: the function objects stay and run the new code, for whoever holds them already
    """

    find: Find
    has: Callable[[ast.FunctionDef], bool] = lambda definition: True
    mentions: tuple[str, ...] = ()
    in_code: bool = False
    searches: str = _MODELS
    misfits: list[Misfit] = field(default_factory=list, init=False, repr=False)
    _searched: list[Any] = field(default_factory=list, init=False, repr=False)
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def awaited_modules(self) -> list[str]:
        """None: it looks at those that are there, and at each that comes."""
        return []

    def replacements(self) -> list[Replacement]:
        """What it would replace in the modules that are imported."""
        return [found for found in self._found_everywhere() if isinstance(found, Replacement)]

    def load(self) -> None:
        """Nothing: to import every model that may have the construct is for `load_all` alone."""

    def load_all(self) -> None:
        """Imports every modeling module of the installed transformers that has one of the words.

        One that needs a package which is not installed is left out, as it is for its users.
        """
        for name, source in _installed_modules():
            if not self.mentions or any(mention in source for mention in self.mentions):
                try:
                    importlib.import_module(name)
                except ImportError as error:
                    logger.info("%s cannot be imported: %s", name, error)

    def _find_verdict(self) -> Verdict:
        """Always needed for a guard, since models come later; `verdict_here` looks at what is imported."""
        return NEEDED

    def verdict_here(self) -> Verdict:
        """What the modules that are imported have: "needed" and where, "does not fit", or "not needed": met nowhere."""
        found = self._found_everywhere()
        replaced = [result.path for result in found if isinstance(result, Replacement)]
        misfits = [result for result in found if isinstance(result, Misfit)]
        if replaced:
            return Verdict(NEEDED.fit, f"in {len(replaced)} functions")
        return does_not_fit(_text(misfits)) if misfits else not_needed("met nowhere in the installed models")

    def install(self, changes: Changes) -> None:
        """Replaces what it finds in the modules that are imported, and waits for others."""
        self._begin()
        self.misfits.clear()
        self._put(changes, self._found_everywhere())
        for_later_modules(changes, _MODELS, self._act, self._tell)

    def told(self) -> Told:
        """What it came to so far: "waiting" as long as it has met no construct, "skipped" if it met none that fits."""
        outcome = "installed" if self.installed else "skipped" if self.misfits else "waiting"
        reason = {"installed": self.reason, "waiting": "met nowhere in the models that are imported"}.get(outcome, "")
        misfits = f"does not fit: {_text(self.misfits)}" if self.misfits else ""
        return outcome, [replacement.path for replacement in self.installed], "; ".join(filter(None, (reason, misfits)))

    def _act(self, changes: Changes, module: types.ModuleType) -> None:
        self._put(changes, self._found(self._places_in(module)))

    def _put(self, changes: Changes, found: list[Replacement | Misfit]) -> None:
        if not found:
            return
        replaced = [result for result in found if isinstance(result, Replacement)]
        for replacement in replaced:
            replacement.put(changes)
        keep_frames(changes, [replacement.after for replacement in replaced])
        self.installed.extend(replaced)
        self.misfits.extend(result for result in found if isinstance(result, Misfit))
        self._dump(replaced)

    def _tell(self, later: LaterChanges, module: types.ModuleType) -> None:
        later.tell(self.name, self.told())

    def _found_everywhere(self) -> list[Replacement | Misfit]:
        """In all modules that are imported; where to look is found out again only if there are others than before."""
        modules = imported_models()
        if self._searched[:1] != [modules]:
            places = [place for module in modules for place in self._places_in(module)]
            self._searched[:] = [modules, places]
        return self._found(self._searched[1])

    def _places_in(self, module: types.ModuleType) -> list[tuple[Any, str]]:
        return list(self.find(module)) if _has_models(module.__name__) else []

    def _found(self, places: Iterable[tuple[Any, str]]) -> list[Replacement | Misfit]:
        found = (self._replacement(*place) for place in places)
        return [result for result in found if result is not None]

    def _replacement(self, owner: object, name: str) -> Replacement | Misfit | None:
        """What takes the place of `owner.name`, found out once for each object that stood there."""
        path, raw = _path(owner, name), vars(owner)[name]
        if raw not in self._known:
            try:
                self._known[raw] = self._made(raw)
            except RewriteError as error:
                is_other = is_made_here(raw) or not self._has(raw)
                self._known[raw] = None if is_other else Misfit(path, str(error).removeprefix(f"{path} "))
        known = self._known[raw]
        if known is None or isinstance(known, Misfit):
            return known
        if self.in_code:
            return CodeReplacement.of(path, innermost(raw), known)
        return Replacement(path, Target(owner, name, raw), known)

    def _has(self, raw: object) -> bool:
        try:
            return self.has(definition_of(innermost(raw)))
        except RewriteError:  # what cannot be read may have it
            return True

    def _made(self, raw: object) -> Any:
        assert self.replace is not None
        return self.replace(raw)


def construct_patch(
    *,
    name: str,
    marker: str,
    mentions: tuple[str, ...],
    replace: Callable[[Any], Any],
    reason: str,
    upstream: str,
    named: Callable[[str], bool] = lambda name: True,
    has: Callable[[ast.FunctionDef], bool] = lambda definition: True,
    in_code: bool = False,
) -> SearchPatch:
    """The patch of every function of a modeling module, imported now or later, with a line that matches `marker`.

    Every such line has one of the `mentions` in it; most modules have none, which is found out sooner. `named` tells
    the names of the functions that are meant, `has` whether such a line is the construct or something else.
    """
    pattern = re.compile(marker)

    def find(module: types.ModuleType) -> Iterator[tuple[Any, str]]:
        return ((owner, name) for owner, name in functions_with(module, pattern, mentions) if named(name))

    return SearchPatch(
        name=name,
        kind="transformers",
        reason=reason,
        upstream=upstream,
        find=find,
        has=has,
        mentions=mentions,
        replace=replace,
        in_code=in_code,
    )


def _path(owner: Any, name: str) -> str:
    holder = f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
    return f"{holder}.{name}"


def _text(misfits: list[Misfit]) -> str:
    shown = [f"{misfit.path} ({misfit.reason})" for misfit in misfits[:_SHOWN]]
    rest = [f"{len(misfits) - _SHOWN} more"] if len(misfits) > _SHOWN else []
    return ", ".join([*shown, *rest])


def _has_models(name: str) -> bool:
    return name.startswith(f"{_MODELS}.") and name.rpartition(".")[2].startswith("modeling_")


@functools.cache
def _installed_modules() -> tuple[tuple[str, str], ...]:
    """Every modeling module for torch of the installed transformers, by name, with its source; none without it."""
    if not module_exists(_MODELS):
        return ()
    package = importlib.import_module(_MODELS)
    files = [path for folder in package.__path__ for path in sorted(Path(folder).glob("*/modeling_*.py"))]
    torch_files = [path for path in files if not path.stem.startswith(("modeling_tf_", "modeling_flax_"))]
    return tuple((f"{_MODELS}.{path.parent.name}.{path.stem}", path.read_text("utf-8")) for path in torch_files)


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
            # A decorator that does not keep the module's name, as those of kernels from the hub, is not looked behind.
            is_own = isinstance(value, _FUNCTIONS) and getattr(value, "__module__", None) == module.__name__
            function = plain(value) if is_own else None
            if isinstance(function, types.FunctionType):
                yield owner, name, function


def _lines_of(code: types.CodeType) -> frozenset[int]:
    """The lines of a function, with those of its comprehensions and of the functions in it."""
    inner = (_lines_of(const) for const in code.co_consts if isinstance(const, types.CodeType))
    return frozenset(line for _, _, line in code.co_lines() if line).union(*inner)
