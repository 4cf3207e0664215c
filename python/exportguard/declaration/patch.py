"""What a patch says about itself: the target, the reason, and the probe that shows whether it is needed."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.fx.proxy

from exportguard import _core
from exportguard.declaration.details import patched_functions
from exportguard.declaration.imports import Waiting, module_exists, module_of
from exportguard.declaration.targets import Target, TargetMissingError, raw_attribute, resolve
from exportguard.errors import GuardError
from exportguard.source.errors import RewriteError
from exportguard.source.wrapping import plain

if TYPE_CHECKING:
    from exportguard._core import Changes


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


def _set(changes: Changes, target: Target, value: Any) -> None:
    if target.is_there:
        changes.set_attribute(target.owner, target.name, value)
    else:
        owner, name = target.owner, target.name
        changes.call(lambda: setattr(owner, name, value), lambda: delattr(owner, name), f"{owner.__name__}.{name}")


def keep_frames(changes: Changes, function: Any) -> None:
    """Lets the nodes that `function` makes name it in their stack trace, which holds but `forward` otherwise."""
    anchors: set[tuple[str, str]] | None = getattr(torch.fx.proxy, "_STACK_TRACE_ANCHORS", None)
    code = getattr(plain(function), "__code__", None)
    if anchors is None or code is None:
        return
    anchor = (code.co_filename, code.co_name)
    if anchor not in anchors:
        changes.call(lambda: anchors.add(anchor), lambda: anchors.discard(anchor), f"stack traces of {code.co_name}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Patch:
    """A declared change of somebody else's code, in force while a guard is open.

    Give `replace`, which makes the new function from the one that is there, or `apply`, which writes any changes.

    :param name: unique among all patches
    :param kind: "sympy", "torch", "transformers", "diffusers", "serializer", "constraints", "static_check", "rewrite"
        or "custom"; each is switched by one argument of `torch_export_patches`
    :param target: the dotted path of what is changed, or several
    :param reason: what goes wrong without it
    :param upstream: a link to where upstream knows of it
    :param versions: the versions that it was written for, for readers: the probe decides
    :param owner: the class or module whose attribute it is, if the path does not lead there; it may lack the attribute
    :param awaits: the module that must be imported before `apply` runs; of `replace` the targets say it
    :param probe: looks at the installed versions, changes nothing; left out: needed wherever the target is

    A patch of a module that is not imported waits for that: a model that does not exist costs nothing.

    `installed` holds what the last install replaced, each target with what took its place.

    >>> import math
    >>> Patch(name="tau", kind="custom", target="math.tau", reason="an example", replace=lambda tau: 6).verdict()
    ('needed', '')
    """

    name: str
    kind: str
    target: str | tuple[str, ...]
    reason: str
    upstream: str = ""
    versions: str = ""
    owner: Any = None
    awaits: str = ""
    probe: Callable[[], Verdict] | None = None
    replace: Callable[[Any], Any] | None = None
    apply: Callable[[Changes], None] | None = None
    installed: list[tuple[Target, Any]] = field(default_factory=list, init=False, repr=False)
    _verdict: list[Verdict] = field(default_factory=list, init=False, repr=False)
    _late: list[tuple[str, str]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.replace is None) == (self.apply is None):
            raise GuardError(f"patch '{self.name}' needs either replace or apply")

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

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
        """The modules that it changes and that are not imported yet."""
        if self.kind in _NEVER_WAITING:
            return []
        paths = {module_of(path) for path in self.targets} if self.replace is not None else {self.awaits}
        return sorted(module for module in paths if module and module not in sys.modules)

    def load(self) -> None:
        """Imports what the patch changes, if it is installed."""
        for module in self.awaited_modules():
            if module_exists(module):
                importlib.import_module(module)

    @property
    def late_outcome(self) -> tuple[str, str] | None:
        """What became of a patch that waited, once its modules were imported: the outcome and the reason."""
        return self._late[0] if self._late else None

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

    def replacements(self) -> list[tuple[Target, Any]]:
        """Each target with what takes its place."""
        if self.replace is None:
            return []
        targets = [self._resolve(path) for path in self.targets]
        return [(target, target.wrapped_as_before(self.replace(target.function))) for target in targets]

    def dump(self, folder: str) -> None:
        """Writes what was installed last: for every function its original, what took its place, and the difference."""
        for function in patched_functions(self, self.installed):
            function.dump(folder)

    def install(self, changes: Changes) -> None:
        """Makes the changes, now or when the modules are imported; the guard takes them back."""
        self.installed.clear()
        self._late.clear()
        if self.awaited_modules():
            _LateInstall(self).wait(changes)
        else:
            self._install_now(changes)

    def _install_now(self, changes: Changes) -> None:
        if self.apply is not None:
            self.apply(changes)
        self.installed[:] = self.replacements()
        for target, value in self.installed:
            _set(changes, target, value)
            keep_frames(changes, Target(target.owner, target.name, value).function)


class _LateInstall:
    """Installs a patch when the last of the modules that it changes is imported."""

    def __init__(self, patch: Patch) -> None:
        self._patch = patch
        self._awaited = frozenset(patch.awaited_modules())
        self._waiting = Waiting(self._awaited.__contains__, self._install)
        self._changes: _core.KeptChanges | None = None

    def wait(self, changes: Changes) -> None:
        changes.call(self._waiting.start, self._undo, f"{self._patch.name}, once it was imported")

    def _install(self, module: types.ModuleType) -> None:
        patch = self._patch
        if self._changes is not None or patch.awaited_modules():
            return
        fit, reason = patch.verdict()
        if fit != "needed":
            patch._late.append(("skipped", f"{fit}: {reason}" if reason else fit))
            return
        self._changes = _core.KeptChanges()
        try:
            patch._install_now(self._changes)
        except BaseException:
            self._undo_changes()
            raise
        patch._late.append(("installed", reason or patch.reason))

    def _undo_changes(self) -> None:
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.undo()

    def _undo(self) -> None:
        self._waiting.stop()
        self._undo_changes()
