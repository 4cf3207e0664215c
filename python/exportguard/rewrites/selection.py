"""What users pass as `rewrite`: methods, classes, modules, as patches for the guard."""

from __future__ import annotations

import ast
import importlib
import logging
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Replacement, Verdict, not_needed
from exportguard.declaration.targets import Target
from exportguard.errors import InvalidArgumentError
from exportguard.model_code import is_users_class
from exportguard.rewrites.automatic import automatic_rewriting
from exportguard.rewrites.engine import RewrittenMethod
from exportguard.rewrites.transform import transform_method
from exportguard.rewrites.watch import watch_exports
from exportguard.source.errors import RewriteError
from exportguard.source.reading import definition_of
from exportguard.source.walking import walked
from exportguard.source.wrapping import innermost

if TYPE_CHECKING:
    from exportguard._core import Changes

logger = logging.getLogger(__name__)

_OPTIONS = ("filter_node", "pre_rewriter", "post_rewriter", "absorb_rest")


@dataclass(frozen=True, kw_only=True, eq=False)
class RewritePatch(Patch):
    """Puts a rewritten function in the place of its original, which needs no dotted path: local classes have none."""

    owner: Any
    attribute: str
    rewritten: RewrittenMethod

    def _find_verdict(self) -> Verdict:
        return NEEDED if self.rewritten.is_changed else not_needed("there is nothing to rewrite in it")

    def replacements(self) -> list[Replacement]:
        """The one place, with the rewritten function."""
        raw = vars(self.owner)[self.attribute]
        return [Replacement(self.targets[0], Target(self.owner, self.attribute, raw), self.rewritten.func)]

    def install(self, changes: Changes) -> None:
        """Puts the rewritten function in its place, and exports under a watch."""
        watch_exports(changes)
        super().install(changes)


def rewrite_patch(owner: Any, attribute: str, **options: Any) -> RewritePatch:
    """The patch that rewrites `owner.attribute`, where `owner` defines it itself.

    :raises RewriteError: it cannot be rewritten
    """
    path = f"{getattr(owner, '__module__', '')}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
    target = f"{path}.{attribute}".lstrip(".")
    rewritten = transform_method(vars(owner)[attribute], **options)
    return RewritePatch(
        name=f"rewrite {target}",
        kind="rewrite",
        target=target,
        reason=", ".join(rewritten.applied) or "nothing to rewrite",
        owner=owner,
        attribute=attribute,
        rewritten=rewritten,
    )


def as_rewrites(rewrite: object) -> tuple[Patch, ...]:
    """One patch for every function that `rewrite` names: a module, or an iterable of patches, methods, classes, pairs
    (class, "name"), modules, and dicts of a "target" (one of these) with options of `transform_method`.
    True or "auto", alone or in the iterable, is the patch that finds out which functions need it.

    :raises InvalidArgumentError: for anything else
    :raises RewriteError: for a method that cannot be rewritten
    """
    if rewrite is False or rewrite is None:
        return ()
    is_one = _is_automatic(rewrite) or isinstance(rewrite, torch.nn.Module | type | Mapping | types.FunctionType)
    items = [rewrite] if is_one else rewrite
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InvalidArgumentError(
            "rewrite must be 'auto', a module or a list of methods, classes, (class, 'name') pairs and dicts, "
            f"got {rewrite!r}"
        )
    patches = [patch for item in items for patch in _patches_of(item, {})]
    return tuple({patch.name: patch for patch in patches}.values())


def _is_automatic(item: object) -> bool:
    return item is True or (isinstance(item, str) and item == "auto")


def _patches_of(item: object, options: Mapping[str, Any]) -> list[Patch]:
    if isinstance(item, Patch):
        return [item]
    if _is_automatic(item):
        return [automatic_rewriting()]
    if isinstance(item, Mapping):
        return _from_mapping(item)
    if isinstance(item, torch.nn.Module):
        return list(_tolerant(_methods_of_module(item), options))
    if isinstance(item, type):
        return list(_tolerant(((item, name) for name in _own_methods(item)), options))
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], type) and isinstance(item[1], str):
        return [rewrite_patch(_definer(*item), item[1], **options)]
    if callable(item):
        return [rewrite_patch(*owner_of(item), **options)]
    raise InvalidArgumentError(f"rewrite cannot hold {item!r}; pass methods, classes, (class, 'name') pairs or dicts")


def _from_mapping(item: Mapping[str, Any]) -> list[Patch]:
    unknown = sorted(set(item) - {"target", *_OPTIONS})
    if "target" not in item or unknown:
        raise InvalidArgumentError(
            f"a dict in rewrite has the key 'target' and may have {', '.join(_OPTIONS)}, got {sorted(map(str, item))}"
        )
    return _patches_of(item["target"], {name: item[name] for name in _OPTIONS if name in item})


def _tolerant(methods: Iterable[tuple[type, str]], options: Mapping[str, Any]) -> Iterator[Patch]:
    """Patches of what a search found: what has nothing to rewrite, or cannot be rewritten, is left as it is."""
    for owner, name in methods:
        try:
            patch = rewrite_patch(owner, name, **options)
        except RewriteError as error:
            logger.info("%s.%s is not rewritten: %s", owner.__qualname__, name, error)
            continue
        if patch.rewritten.is_changed:
            yield patch


def _definer(cls: type, name: str) -> type:
    for holder in cls.__mro__:
        if name in vars(holder):
            return holder
    raise InvalidArgumentError(f"{cls.__qualname__} has no method '{name}'")


def owner_of(function: Callable[..., Any]) -> tuple[Any, str]:
    """The class or module that holds a function, and its name there.

    :raises InvalidArgumentError: it is not found there, as for functions defined in functions
    """
    bound = getattr(function, "__self__", None)
    name = getattr(function, "__name__", repr(function))
    if bound is not None:
        return _definer(bound if isinstance(bound, type) else type(bound), name), name
    inner = innermost(function)
    holder: Any = importlib.import_module(inner.__module__)
    for part in inner.__qualname__.split(".")[:-1]:
        holder = getattr(holder, part, None)
    if holder is None or name not in vars(holder):
        raise InvalidArgumentError(
            f"{inner.__module__}.{inner.__qualname__} cannot be found by its name; pass (class, '{name}') instead"
        )
    return holder, name


# ---------------------------------------------------------------------------------------------------- searching


def _own_methods(cls: type) -> list[str]:
    kinds = (types.FunctionType, staticmethod, classmethod)
    return [name for name, value in vars(cls).items() if isinstance(value, kinds) and not name.startswith("__")]


def _methods_of_module(module: torch.nn.Module) -> Iterator[tuple[type, str]]:
    """`forward` of every submodule outside torch, and the methods of its own that it names."""
    seen: set[tuple[type, str]] = set()
    for cls in dict.fromkeys(type(part) for part in module.modules()):
        pending = ["forward"] if is_users_class(cls) else []
        while pending:
            name = pending.pop(0)
            for holder in (c for c in cls.__mro__ if is_users_class(c) and _is_method(vars(c).get(name))):
                if (holder, name) in seen:
                    continue
                seen.add((holder, name))
                yield holder, name
                pending += _named_on_self(vars(holder)[name])


def _named_on_self(function: object) -> list[str]:
    try:
        node = definition_of(innermost(function))
    except RewriteError:
        return []
    return [n.attr for n in walked(node) if isinstance(n, ast.Attribute) and _is_self_or_super(n.value)]


def _is_method(value: object) -> bool:
    is_function = callable(value) and not isinstance(value, type)
    return is_function or isinstance(value, staticmethod | classmethod | property)


def _is_self_or_super(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Name) and node.id in {"self", "super", "cls"}


# ---------------------------------------------------------------------------------------------------- what needs it

_DATA_CALLS = {"any", "all", "sum", "max", "min", "mean", "item", "isnan", "isinf", "equal", "allclose", "norm"}


def code_needing_rewriting(model: torch.nn.Module | type[torch.nn.Module]) -> list[tuple[type, str]]:
    """Methods of a module, its submodules or a class with a test that looks as if it depended on tensor data.

    The result can be given as `rewrite`. It is found in the source, so a test on a tensor that comes in a variable of
    any name is not seen: `export_with_rewriting` finds those by exporting.

    >>> class Clamped(torch.nn.Module):
    ...     def forward(self, x):
    ...         if x.abs().max() > 1:
    ...             x = x / 2
    ...         return x
    >>> code_needing_rewriting(Clamped())
    [(<class 'exportguard.rewrites.selection.Clamped'>, 'forward')]
    """
    methods = (
        _methods_of_module(model) if isinstance(model, torch.nn.Module) else ((model, n) for n in _own_methods(model))
    )
    return [(owner, name) for owner, name in methods if _tests_data(vars(owner)[name])]


def _tests_data(function: object) -> bool:
    try:
        node = definition_of(innermost(function))
    except RewriteError:
        return False
    tests = [n.test for n in walked(node) if isinstance(n, ast.If | ast.IfExp | ast.While | ast.Assert)]
    called = (n.func for test in tests for n in walked(test) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr in _DATA_CALLS for f in called)
