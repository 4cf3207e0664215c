"""A rewritten function in force wherever the original is referred to: by other names, in other modules, in closures."""

from __future__ import annotations

import functools
import logging
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from exportguard.declaration.patch import NEEDED, CodeReplacement, Patch, Replacement, Verdict, keep_frames
from exportguard.rewrites.engine import RewrittenMethod
from exportguard.rewrites.places import dotted_path, own_path
from exportguard.rewrites.rules import answering_rules
from exportguard.rewrites.transform import transform_function
from exportguard.rewrites.watch import watch_exports
from exportguard.source.errors import RewriteError

if TYPE_CHECKING:
    from exportguard._core import Changes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class InPlaceRewrite(Patch):
    """Lets functions run the code of their rewritten selves; the function objects stay what they are.

    :param functions: they run one code; closures of one `def` are several
    :param rewritten: the first of them beside its rewritten self
    """

    functions: tuple[types.FunctionType, ...] = field(repr=False)
    rewritten: RewrittenMethod = field(repr=False)
    is_watched: bool = field(default=True, repr=False)  # whether it may make branches and loops of a graph

    def _find_verdict(self) -> Verdict:
        return NEEDED

    def replacements(self) -> list[Replacement]:
        """Each function with its rewritten self."""
        path, new = self.targets[0], self.rewritten.func
        return [CodeReplacement.of(path, function, new) for function in self.functions]

    def install(self, changes: Changes) -> None:
        """Gives each function the new code; the guard gives the old one back."""
        if self.is_watched:
            watch_exports(changes)
        self._begin()
        self.state.replaced += self.replacements()
        for replacement in self.installed:
            replacement.put(changes)
        keep_frames(changes, [self.rewritten.func])


def rewrite_in_place(
    functions: Sequence[types.FunctionType],
    lines: frozenset[int] | None = None,
    *,
    absorb_rest: bool = False,
    keep_sizes: bool = False,
    tell_nones: bool = False,
) -> InPlaceRewrite:
    """The patch for functions that run one code. With `lines`, only what stands at one of them is rewritten.

    :param keep_sizes: what makes a size a constant, as `len(x)`, is worth a rewriting by itself
    :param tell_nones: a variable that may be None gets another one that says so
    :raises RewriteError: they cannot be rewritten, or there is nothing to rewrite
    """
    first = functions[0]
    keep = _at(lines) if lines else None
    rewritten = transform_function(
        first, filter_node=keep, absorb_rest=absorb_rest, keep_sizes=keep_sizes, tell_nones=tell_nones
    )
    if not rewritten.is_changed:
        raise RewriteError(f"{dotted_path(first)} has nothing to rewrite")
    return in_place(functions, rewritten)


def answering(functions: Sequence[types.FunctionType], lines: frozenset[int]) -> InPlaceRewrite | None:
    """The patch that gives `match` of types, `flag is True`, `type(n)` and `n.__class__` at these lines the answers of
    eager mode, and changes nothing else; None if the functions, which run one code, cannot be rewritten."""
    rewritten = _answering(functions[0], functions[0].__code__, lines)
    return None if rewritten is None else replace(in_place(functions, rewritten), is_watched=False)


@functools.lru_cache(maxsize=1024)
def _answering(function: types.FunctionType, _: types.CodeType, lines: frozenset[int]) -> RewrittenMethod | None:
    """What is made of a function while it runs a code."""
    try:
        rewritten = transform_function(function, rules=answering_rules(), filter_node=_at(lines))
    except RewriteError as reason:
        logger.info("what a function of a package asks of its numbers stays as it is: %s", reason)
        return None
    is_fitting = rewritten.func.__code__.co_freevars == function.__code__.co_freevars
    return rewritten if rewritten.is_changed and is_fitting else None


def in_place(functions: Sequence[types.FunctionType], rewritten: RewrittenMethod, name: str = "") -> InPlaceRewrite:
    """The patch that lets `functions` run what `rewritten` holds."""
    target = own_path(functions[0])
    if rewritten.func.__code__.co_freevars != functions[0].__code__.co_freevars:
        raise RewriteError(f"{target} refers to other enclosing variables when it is rewritten; rewrite it by hand")
    return InPlaceRewrite(
        name=name or f"rewrite {target}",
        kind="rewrite",
        target=target,
        reason=", ".join(rewritten.applied),
        functions=tuple(functions),
        rewritten=rewritten,
    )


def _at(lines: frozenset[int]) -> Callable[[Any], bool]:
    def stands_there(node: object) -> bool:
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
        return any(first <= line <= last for line in lines)

    return stands_there
