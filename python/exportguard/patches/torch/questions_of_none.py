"""Functions of torch that ask first whether they were given anything, of rows that tensor data count.

`if x.numel() == 0` stops a trace where data decide how many rows `x` has. In the functions that stand here what follows
holds in both cases: those that give the shape of an operator's result have one formula for both, and the operator
itself stays in the program; in `local_response_norm` all steps leave nothing of nothing. torch 2.11 to 2.13 ask
elsewhere with `guard_or_false`, which takes one answer for granted where data decide; so it is here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sympy

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch
from exportguard.declaration.targets import TargetMissingError, resolve

_TARGET = "torch.fx.experimental.sym_node.SymNode.bool_"


@dataclass(frozen=True)
class _Asking:
    """What a function asks, and whether its way for what has elements is taken; that of none may check less."""

    question: str
    has_elements: bool = True


_ASKING = {
    "torch._refs.logsumexp": _Asking("self.numel() == 0", has_elements=False),  # else it takes a maximum
    "torch._refs.roll": _Asking("a.numel() == 0"),
    "torch._refs.nn.functional.channel_shuffle": _Asking("input.numel() == 0"),
    "torch._meta_registrations.cummaxmin": _Asking("self.numel() != 0"),
    "torch._meta_registrations.cholesky": _Asking("self.numel() == 0"),
    "torch._meta_registrations.meta_take": _Asking("self.numel() == 0"),
    "torch.nn.functional.local_response_norm": _Asking("input.numel() == 0"),
}

#: In torch 2.13; before, it had another name, and is left to stop a trace there.
_IN_LATER_VERSIONS = {
    "torch._meta_registrations.meta_upsample_bimode2d_aa": _Asking("input.numel() != 0", has_elements=False)
}


def _as_of_some(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The truth value of a symbol, which has the answer of one of these functions where that asks."""
    has_elements = dict(_answers())

    @functools.wraps(original)
    def bool_(self: Any) -> bool:
        answer = has_elements.get(_asking()) if _is_of_none(self.expr) else None
        if answer is None:
            return original(self)
        return bool(self.shape_env.evaluate_sym_node(self, fallback_value=isinstance(self.expr, sympy.Ne) == answer))

    return bool_


def _asking() -> types.CodeType:
    """What calls `SymBool.__bool__`, which calls `SymNode.bool_`."""
    frame = sys._getframe(1)
    while frame.f_code.co_name in ("bool_", "__bool__") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code


def _answers() -> Iterator[tuple[types.CodeType, bool]]:
    for path, asking in (_ASKING | _IN_LATER_VERSIONS).items():
        with contextlib.suppress(TargetMissingError):
            function: Any = inspect.unwrap(resolve(path).function)
            yield function.__code__, asking.has_elements


def _is_of_none(question: sympy.Basic) -> bool:
    """Whether it compares with 0 a number of elements that data decide."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return isinstance(question, (sympy.Eq, sympy.Ne)) and 0 in question.args and bool(free_unbacked_symbols(question))


PATCHES = (
    Patch(
        name="questions of no rows",
        kind="torch",
        target=_TARGET,
        reason="functions that ask first whether they were given anything stop a trace of rows that tensor data count",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_refs/__init__.py",
        probe=expecting(
            Expected(path=_TARGET, parameters="self"),
            *(Expected(path=path, has=(asking.question,)) for path, asking in _ASKING.items()),
        ),
        replace=_as_of_some,
    ),
)
