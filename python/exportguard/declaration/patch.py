"""What a patch says about itself: the target, the reason, and the probe that shows whether it is needed."""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.fx.proxy

from exportguard.declaration.imports import Waiting, module_exists, module_of
from exportguard.declaration.replaced_function import PatchedFunction
from exportguard.declaration.targets import Target, TargetMissingError, raw_attribute, resolve
from exportguard.errors import GuardError
from exportguard.source.errors import RewriteError
from exportguard.source.wrapping import plain

if TYPE_CHECKING:
    from exportguard._core import Changes, LaterChanges

logger = logging.getLogger(__name__)

#: What a guard's report says of a patch: the outcome, the targets that were replaced, and why.
Told = tuple[str, list[str], str]


#: File and name of the functions that nodes name beside `forward`, for a torch that has no set of them; it has from
#: 2.12 on.
KEPT_FRAMES: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Verdict:
    """What a probe found: "needed", "not needed", "does not fit" or "target missing", and why."""

    fit: str
    reason: str = ""

    @property
    def is_needed(self) -> bool:
        return self.fit == "needed"


NEEDED = Verdict("needed")


def not_needed(reason: str) -> Verdict:
    """The installed version is right without the patch."""
    return Verdict("not needed", reason)


def needed_without_a_shape(operator: Any, of_what: str) -> Verdict:
    """Needed while the sizes of an operator's results depend on data, for which fake tensors stop (torch 2.11 to 2.13).

    :param operator: an overload of `torch.ops`
    """
    if torch.Tag.dynamic_output_shape in operator.tags:
        return NEEDED
    return not_needed(f"torch knows the shapes of {of_what}")


def does_not_fit(reason: str) -> Verdict:
    """The target is there, but it is not what the patch was written for."""
    return Verdict("does not fit", reason)


def target_missing(reason: str) -> Verdict:
    """There is nothing to patch in the installed version."""
    return Verdict("target missing", reason)


#: Whoever passes one of these names what is there.
_NEVER_WAITING = ("custom", "rewrite")


def _not_installed(module: str) -> tuple[str, str]:
    return "target missing", f"{module} is not installed"


@dataclass(frozen=True)
class Replacement:
    """What took the place of a target."""

    path: str
    target: Target
    value: Any

    def put(self, changes: Changes) -> None:
        """Puts it there until the guard ends."""
        owner, name, value = self.target.owner, self.target.name, self.value
        if self.target.is_there:
            changes.set_attribute(owner, name, value)
        else:
            changes.call(lambda: setattr(owner, name, value), lambda: delattr(owner, name), f"{owner.__name__}.{name}")

    @property
    def before(self) -> Any:
        """The original: a function, also behind a staticmethod or classmethod."""
        return self.target.function

    @property
    def after(self) -> Any:
        """What took its place, in the same way."""
        return Target(self.target.owner, self.target.name, self.value).function


@dataclass(frozen=True)
class CodeReplacement(Replacement):
    """New code for a function, which stays the object that it is, for whoever holds it already."""

    @classmethod
    def of(cls, path: str, function: types.FunctionType, new: types.FunctionType) -> CodeReplacement:
        """The one that lets `function` run the code of `new`, with the same enclosing variables."""
        return cls(path, Target(function, "__code__", function), new)

    def put(self, changes: Changes) -> None:
        """Gives the function the code until the guard ends."""
        changes.set_attribute(self.target.owner, "__code__", self.value.__code__)


@dataclass
class Installation:
    """What the last install of a patch came to, so far."""

    replaced: list[Replacement] = field(default_factory=list)
    outcome: str = "installed"
    reason: str = ""
    folder: str = ""  # for the sources of what is replaced later


def replaced(changes: Changes, path: str, replace: Callable[[Any], Any]) -> Replacement:
    """Puts what `replace` makes of the function at a path in its place, for an `apply` that changes more than one."""
    target = resolve(path)
    replacement = Replacement(path, target, target.wrapped_as_before(replace(target.function)))
    replacement.put(changes)
    return replacement


def keep_frames(changes: Changes, functions: Iterable[Any]) -> None:
    """Lets the nodes that the functions make name them in their stack trace, which holds but `forward` otherwise."""
    anchors: set[tuple[str, str]] = getattr(torch.fx.proxy, "_STACK_TRACE_ANCHORS", KEPT_FRAMES)
    codes = (getattr(plain(function), "__code__", None) for function in functions)
    new = {(code.co_filename, code.co_name) for code in codes if code is not None} - anchors
    if new:
        changes.call(lambda: anchors.update(new), lambda: anchors.difference_update(new), "stack traces")


def by_target(replacements: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The `replace` of a patch of several targets, each with a function of its own, by the names in their paths.

    >>> made = by_target({"math.floor": lambda original: "down", "math.ceil": lambda original: "up"})
    >>> import math
    >>> made(math.ceil)
    'up'
    """
    by_name = {path.rpartition(".")[2]: make for path, make in replacements.items()}
    return lambda original: by_name[original.__name__](original)


@dataclass(frozen=True, kw_only=True, eq=False)
class Patch:
    """A declared change of somebody else's code, in force while a guard is open.

    Give `replace`, which makes the new function from the one that is there, or `apply`, which writes any changes and
    may return what it replaced.

    :param name: unique among all patches
    :param kind: "sympy", "torch", "transformers", "diffusers", "serializer", "constraints", "static_check", "rewrite"
        or "custom"; each is switched by one argument of `torch_export_patches`
    :param target: the dotted path of what is changed, or several
    :param reason: what goes wrong without it
    :param upstream: a link to where upstream knows of it
    :param versions: the versions that it was written for, for readers: the probe decides
    :param owner: the class or module whose attribute it is, if the path does not lead there; it may lack the attribute
    :param awaits: the module that must be imported before `apply` runs; `replace` waits for it beside its targets: what
        the new function uses, or whoever calls it
    :param searches: where targets are looked for, if only an install finds them
    :param is_in_traces: whether the nodes that a new function makes name it, as code of the model
    :param probe: looks at the installed versions, changes nothing; left out: needed wherever the target is

    A patch of a module that is not imported waits for that: a model that does not exist costs nothing.

    >>> import math
    >>> Patch(name="tau", kind="custom", target="math.tau", reason="an example", replace=lambda tau: 6).verdict()
    ('needed', '')
    """

    name: str
    kind: str
    target: str | tuple[str, ...] = ()
    reason: str
    upstream: str = ""
    versions: str = ""
    owner: Any = None
    awaits: str = ""
    searches: str = ""
    is_in_traces: bool = True
    probe: Callable[[], Verdict] | None = None
    replace: Callable[[Any], Any] | None = None
    apply: Callable[[Changes], Iterable[Replacement] | None] | None = None
    state: Installation = field(default_factory=Installation, init=False, repr=False)
    _verdict: list[Verdict] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if type(self) is Patch and (self.replace is None) == (self.apply is None):
            raise GuardError(f"patch '{self.name}' needs either replace or apply")

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def installed(self) -> list[Replacement]:
        """What the last install replaced."""
        return self.state.replaced

    def verdict(self) -> tuple[str, str]:
        """Whether the installed versions need the patch, and why; found out once, when what it changes is imported."""
        awaited = self.awaited_modules()
        if awaited:
            missing = next((module for module in awaited if not module_exists(module)), None)
            return ("needed", f"once {awaited[0]} is imported") if missing is None else _not_installed(missing)
        if not self._verdict:
            self._verdict.append(self._find_verdict())
        return self._verdict[0].fit, self._verdict[0].reason

    def awaited_modules(self) -> list[str]:
        """The modules that it waits for and that are not imported yet."""
        return [module for module in self._modules if module not in sys.modules]

    @functools.cached_property
    def _modules(self) -> list[str]:
        """The modules that it changes or asks for, which it waits for."""
        if self.kind in _NEVER_WAITING:
            return []
        paths = {module_of(path) for path in self.targets} if self.replace is not None else set()
        return sorted(filter(None, {*paths, self.awaits}))

    def load(self) -> None:
        """Imports what the patch changes, if it is installed."""
        for module in self.awaited_modules():
            if module_exists(module):
                importlib.import_module(module)

    def _find_verdict(self) -> Verdict:
        try:
            if self.replace is not None:
                for path in self.targets:
                    self._resolve(path)
            verdict = self.probe() if self.probe else NEEDED
            if verdict.is_needed and self.replace is not None:
                self.replacements()
            return verdict
        except TargetMissingError as error:
            return target_missing(str(error))
        except RewriteError as error:
            return does_not_fit(str(error))

    def _resolve(self, path: str) -> Target:
        if self.owner is None:
            return resolve(path)
        name = path.rpartition(".")[2]
        try:
            return Target(self.owner, name, raw_attribute(self.owner, name))
        except TargetMissingError:
            return Target(self.owner, name, None, is_there=False)

    def replacements(self) -> list[Replacement]:
        """Each target with what takes its place."""
        if self.replace is None:
            return []
        targets = {path: self._resolve(path) for path in self.targets}
        return [
            Replacement(path, target, target.wrapped_as_before(self.replace(target.function)))
            for path, target in targets.items()
        ]

    def replaced_functions(self, replacements: Iterable[Replacement]) -> list[PatchedFunction]:
        """What these replacements change."""
        return [
            PatchedFunction(self, replacement.path, replacement.before, replacement.after)
            for replacement in replacements
        ]

    def dump(self, folder: str) -> None:
        """Writes what was installed last: for every function its original, what took its place, and the difference."""
        self.state.folder = folder
        self._dump(self.installed)

    def _dump(self, replacements: Iterable[Replacement]) -> None:
        for function in self.replaced_functions(replacements) if self.state.folder else ():
            function.dump(self.state.folder)

    def told(self) -> Told:
        """What the last install came to: the outcome, the targets that it replaced, and why if it can say more."""
        return self.state.outcome, [replacement.path for replacement in self.installed], self.state.reason

    def install(self, changes: Changes) -> None:
        """Makes the changes, now or when the modules are imported; the guard takes them back."""
        self._begin()
        awaited = self.awaited_modules()
        if awaited:
            self.state.outcome, self.state.reason = "waiting", f"once {awaited[0]} is imported"
            self._wait(changes, frozenset(awaited))
        else:
            self._install_now(changes)

    def _begin(self) -> None:
        """Forgets the install before."""
        self.state.replaced = []  # whoever was told of the old list keeps it
        self.state.outcome, self.state.reason, self.state.folder = "installed", "", ""

    def _install_now(self, changes: Changes) -> None:
        if self.apply is not None:
            self.state.replaced += self.apply(changes) or ()
        else:
            self.state.replaced += (replacements := self.replacements())
            for replacement in replacements:
                replacement.put(changes)
        if self.is_in_traces and self.installed:
            keep_frames(changes, [replacement.after for replacement in self.installed])

    def _wait(self, changes: Changes, awaited: frozenset[str]) -> None:
        """Installs the patch when the last of the modules that it changes is imported."""
        later = changes.later()

        def imported(module: types.ModuleType) -> None:
            if self.state.outcome == "waiting" and not self.awaited_modules() and is_here(later, self, module):
                self._install_later(later)

        waiting = Waiting(awaited.__contains__, imported)
        changes.call(waiting.start, waiting.stop, f"{self.name}, once it was imported")

    def _install_later(self, later: LaterChanges) -> None:
        fit, reason = self.verdict()
        if fit == "needed":
            later.run(self._install_now)
            self.state.outcome, self.state.reason = "installed", reason or self.reason
            self._dump(self.installed)
        else:
            self.state.outcome, self.state.reason = "skipped", f"{fit}: {reason}" if reason else fit
        later.tell(self.name, self.told())


def is_here(later: LaterChanges, patch: Patch, module: types.ModuleType) -> bool:
    """Whether it is the guard's own thread that imports the module; patches change the whole process."""
    if not later.is_here:
        logger.warning("%s was imported by another thread than the guard's: no '%s' in it", module.__name__, patch.name)
    return later.is_here
