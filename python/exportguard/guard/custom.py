"""What users pass as `custom_patches`, as patches."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Iterable, Mapping
from typing import Any

from exportguard.arguments import require_callable, require_kind, wrong
from exportguard.declaration.patch import Patch
from exportguard.errors import InvalidArgumentError
from exportguard.rewrites.saved import SavedRewrite, load_rewritten, patches_of, saved_in


def path_of(value: Any) -> str:
    """The dotted path of a class or function."""
    return f"{value.__module__}.{value.__qualname__}"


def _link(value: object) -> str:
    return str(getattr(value, "_PATCHED_PR_", "") or "")


def _reason(value: object) -> str:
    return (inspect.getdoc(value) or "a custom patch").strip().splitlines()[0]


def _method_patch(cls: type, name: str) -> Patch:
    if name not in vars(cls):
        raise InvalidArgumentError(f"{path_of(cls)}._PATCHES_ names '{name}', which the class does not define")
    function, target = vars(cls)[name], cls._PATCHED_CLASS_  # type: ignore[attr-defined]
    return Patch(
        name=f"{path_of(cls)}.{name}",
        kind="custom",
        target=f"{path_of(target)}.{name}",
        owner=target,
        reason=_reason(cls),
        upstream=_link(cls),
        replace=lambda _: function,
    )


def _from_class(cls: type) -> list[Patch]:
    if not hasattr(cls, "_PATCHES_"):
        raise InvalidArgumentError(
            f"{path_of(cls)} has no _PATCHES_; list there the methods to replace, and the class in _PATCHED_CLASS_"
        )
    if getattr(cls, "_PATCHED_CLASS_", None) is None:
        return []  # the installed version does not have the class
    return [_method_patch(cls, name) for name in cls._PATCHES_]


def _from_function(function: types.FunctionType) -> Patch:
    target = getattr(function, "_PATCHED_FUNCTION_", None)
    if target is None:
        raise InvalidArgumentError(
            f"{path_of(function)} does not say what it replaces; set its attribute _PATCHED_FUNCTION_ to the function "
            "or its dotted path, or pass {dotted path: function}"
        )
    path = target if isinstance(target, str) else path_of(target)
    return replacement(path, function)


def replacement(path: str, function: object) -> Patch:
    """The patch that puts `function` at the dotted path."""
    return Patch(
        name=f"{path_of(function)} for {path}",
        kind="custom",
        target=path,
        reason=_reason(function),
        upstream=_link(function),
        replace=lambda _: function,
    )


def _from_module(module: types.ModuleType) -> list[Patch]:
    classes = [value for name, value in vars(module).items() if name.startswith("patched_") and inspect.isclass(value)]
    saved = saved_in(module)
    return [patch for cls in classes for patch in _from_class(cls)] + (patches_of(saved) if saved else [])


def _as_patches(custom: object) -> list[Patch]:
    if isinstance(custom, Patch):
        return [custom]
    if isinstance(custom, str | os.PathLike):
        return load_rewritten(custom)
    if isinstance(custom, SavedRewrite):
        return patches_of([custom])
    if isinstance(custom, Mapping):
        for path, function in custom.items():
            require_kind("a target in custom_patches", path, str, "a dotted path")
            require_callable(f"custom_patches[{path!r}]", function)
        return [replacement(path, function) for path, function in custom.items()]
    if isinstance(custom, types.ModuleType):
        return _from_module(custom)
    if isinstance(custom, type):
        return _from_class(custom)
    if isinstance(custom, types.FunctionType):
        return [_from_function(custom)]
    raise InvalidArgumentError(
        f"custom_patches may hold patches, classes with _PATCHES_ and _PATCHED_CLASS_, functions with "
        f"_PATCHED_FUNCTION_, modules of such classes, {{dotted path: function}} and paths of saved files, "
        f"got {type(custom).__name__}"
    )


def as_patches(custom_patches: object) -> tuple[Patch, ...]:
    """One patch for every function that is replaced.

    :raises InvalidArgumentError: for anything that does not say what it replaces
    """
    if isinstance(custom_patches, str | os.PathLike | types.ModuleType | Mapping):
        custom_patches = [custom_patches]
    if not isinstance(custom_patches, Iterable):
        raise wrong("custom_patches", custom_patches, "a list of patches, classes, functions and dictionaries")
    return tuple(patch for custom in custom_patches for patch in _as_patches(custom))
