"""Makes a changed copy of a function from its installed source, by a rule on its syntax tree."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

from exportguard.source.compiling import compiled, require_free_names
from exportguard.source.errors import RewriteError
from exportguard.source.reading import copied, definition_of, is_same_tree, name_of
from exportguard.source.walking import walked
from exportguard.source.wrapping import innermost, plain, rewrap

_SOURCES = "__exportguard_sources__"

_Node = TypeVar("_Node", bound=ast.AST)


#: A source without comments, or the tree of it: few are ever read.
Source = str | ast.AST


def keep_sources(function: types.FunctionType, original: Source, own: Source) -> None:
    """Lets a rewritten function know its original's source and its own; a tree is the function's from now on."""
    setattr(function, _SOURCES, (function.__code__, original, own))


def sources_of(function: object) -> tuple[str, str] | None:
    """What `keep_sources` was given for the function, or for the one inside its decorators."""
    kept = _kept_sources(function)
    return None if kept is None else (_text_of(kept[0]), _text_of(kept[1]))


def is_made_here(function: object) -> bool:
    """Whether the function, or the one inside its decorators, has sources that were kept."""
    return _kept_sources(function) is not None


def _kept_sources(function: object) -> tuple[Source, Source] | None:
    inner = plain(function)
    code, *sources = getattr(inner, _SOURCES, (None,))
    # Decorators hand attributes on to what wraps the function.
    return (sources[0], sources[1]) if code is not None and code is getattr(inner, "__code__", None) else None


def _text_of(source: Source) -> str:
    return source if isinstance(source, str) else ast.unparse(source)


@functools.cache
def _rewrite(function: Any, rule: Any, names: tuple[tuple[str, Any], ...]) -> Any:
    inner = innermost(function)
    definition = definition_of(inner)
    definition.decorator_list = []  # the copy takes the place of what the decorators were given
    changed = rule().visit(copied(definition))
    if is_same_tree(changed, definition):
        raise RewriteError(f"{name_of(inner)} does not contain what {rule.__name__} rewrites")
    require_free_names(definition, changed, inner, dict(names))
    made = compiled(changed, inner, names=dict(names))
    keep_sources(made, (_kept_sources(inner) or (definition,))[0], changed)
    return rewrap(function, inner, made)


def placed(node: _Node, like: ast.AST) -> _Node:
    """`node` with all that is in it, at the place of `like`."""
    for part in walked(node):
        ast.copy_location(part, like)
    return node


def rewrite(rule: type[ast.NodeTransformer], **names: Any) -> Callable[[Any], Any]:
    """What `Patch.replace` takes: a function -> its copy with `rule` applied to its source.

    :param names: what the rewritten source may use beside the names of the original
    :raises RewriteError: from the returned function, if the rule finds nothing to change or the function has one of the
        names for something else
    """
    cache_key: Any = rule
    return lambda function: _rewrite(function, cache_key, tuple(names.items()))
