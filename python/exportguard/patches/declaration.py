"""What a patch says about itself: the target, the reason, and the probe that shows whether it is needed."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.fx.proxy

from exportguard.errors import GuardError

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


class TargetMissingError(GuardError):
    """A dotted path leads nowhere in the installed version."""


class SourceDoesNotFitError(GuardError):
    """The installed source is not what a rewrite was written for."""


@dataclass(frozen=True)
class Target:
    """An attribute that can be replaced: `owner.name`, and what is there now, taken raw from where it is defined."""

    owner: Any
    name: str
    raw: Any

    @property
    def function(self) -> Any:
        """The function behind a staticmethod or classmethod, else the object itself."""
        return self.raw.__func__ if isinstance(self.raw, (staticmethod, classmethod)) else self.raw

    def wrapped_as_before(self, function: Any) -> Any:
        """`function` as a staticmethod or classmethod if the target is one."""
        kind = type(self.raw)
        return kind(function) if kind in (staticmethod, classmethod) else function


def _import_longest_prefix(parts: list[str]) -> tuple[types.ModuleType, list[str]]:
    for size in range(len(parts), 0, -1):
        name = ".".join(parts[:size])
        try:
            return importlib.import_module(name), parts[size:]
        except ModuleNotFoundError as error:
            # A module that is there but misses one of its own imports is another matter.
            if error.name is None or not name.startswith(error.name):
                raise TargetMissingError(f"{name} cannot be imported: {error}") from error
    raise TargetMissingError(f"there is no module {parts[0]}")


def resolve_object(path: str) -> Any:
    """The object at a dotted path such as "torch.nn.Linear".

    :raises TargetMissingError: if it is not there
    """
    module, names = _import_longest_prefix(path.split("."))
    try:
        return functools.reduce(getattr, names, module)
    except AttributeError as error:
        raise TargetMissingError(f"there is no {path}: {error}") from error


def _raw_attribute(owner: Any, name: str) -> Any:
    holders = [owner, *getattr(owner, "__mro__", ())[1:]]
    for holder in holders:
        if name in vars(holder):
            return vars(holder)[name]
    raise TargetMissingError(f"{getattr(owner, '__name__', owner)} has no attribute {name}")


def resolve(path: str) -> Target:
    """The attribute at a dotted path such as "torch.nn.Linear.forward".

    :raises TargetMissingError: if it is not there
    """
    owner_path, _, name = path.rpartition(".")
    owner = resolve_object(owner_path)
    return Target(owner, name, _raw_attribute(owner, name))


def _is_of_unloaded_models(path: str) -> bool:
    """Whether the path leads to a model of transformers while none can exist; the import takes seconds."""
    return path.startswith("transformers.models.") and "transformers.modeling_utils" not in sys.modules


def _keep_frames(changes: Changes, function: Any) -> None:
    """Lets the nodes that `function` makes name it in their stack trace, which holds but `forward` otherwise."""
    anchors: set[tuple[str, str]] | None = getattr(torch.fx.proxy, "_STACK_TRACE_ANCHORS", None)
    code = getattr(function, "__code__", None)
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
    :param probe: looks at the installed versions, changes nothing; left out: needed wherever the target is

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
    probe: Callable[[], Verdict] | None = None
    replace: Callable[[Any], Any] | None = None
    apply: Callable[[Changes], None] | None = None
    installed: list[tuple[Target, Any]] = field(default_factory=list, init=False, repr=False)
    _verdict: list[Verdict] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.replace is None) == (self.apply is None):
            raise GuardError(f"patch '{self.name}' needs either replace or apply")

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    def verdict(self) -> tuple[str, str]:
        """Whether the installed versions need the patch, and why; found out once."""
        if any(map(_is_of_unloaded_models, self.targets)):
            return "not needed", "no model of transformers is loaded"
        if not self._verdict:
            self._verdict.append(self._find_verdict())
        return self._verdict[0].fit, self._verdict[0].reason

    def _find_verdict(self) -> Verdict:
        try:
            if self.replace is not None:
                for path in self.targets:
                    resolve(path)
            verdict = self.probe() if self.probe else NEEDED
            if verdict.is_needed and self.replace is not None:
                self.replacements()
            return verdict
        except TargetMissingError as error:
            return target_missing(str(error))
        except SourceDoesNotFitError as error:
            return does_not_fit(str(error))

    def replacements(self) -> list[tuple[Target, Any]]:
        """Each target with what takes its place."""
        if self.replace is None:
            return []
        targets = [resolve(path) for path in self.targets]
        return [(target, target.wrapped_as_before(self.replace(target.function))) for target in targets]

    def dump(self, folder: str) -> None:
        """Writes what was installed last: for every function its original, what took its place, and the difference."""
        from exportguard.patches.details import patched_functions

        for function in patched_functions(self, self.installed):
            function.dump(folder)

    def install(self, changes: Changes) -> None:
        """Makes the changes; the guard takes them back."""
        if self.apply is not None:
            self.apply(changes)
        self.installed[:] = self.replacements()
        for target, value in self.installed:
            changes.set_attribute(target.owner, target.name, value)
            _keep_frames(changes, Target(target.owner, target.name, value).function)
