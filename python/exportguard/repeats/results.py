"""What operator calls return, by what they are given: a fake kernel says the same of the same sizes each time.

A block of a new kind has calls that others have made, as the two norms of a layer, or the feed-forward parts of kinds
that differ in their attention. They are nodes of their own, of which the example value alone is not computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from exportguard.repeats.keys import Local, UncomparableError, appearance, is_comparable, scalar_key, thread_state
from exportguard.repeats.likenesses import Likeness
from exportguard.repeats.paths import leaves

_NONE = Local.of(0)  # a likeness is a value of a path, and these are of none


class Results:
    """Those of the fake kernels of one trace; it ends with it."""

    def __init__(self) -> None:
        self._known: dict[Any, Likeness] = {}
        self._are_alike: dict[Any, bool] = {}
        self._is_computing = False  # what a kernel calls is a part of it

    def result(self, mode: FakeTensorMode, func: Any, args: Any, kwargs: Any, compute: Callable[[], Any]) -> Any:
        """What a fake kernel returns."""
        if self._is_computing or not self._is_alike(func):
            return compute()
        try:
            key = mode, func, _key(args), _key(tuple(kwargs.items())), thread_state()
        except UncomparableError:
            return compute()
        known = self._known.get(key)
        if known is not None:
            return known.make_in_own_memory()
        self._is_computing = True
        try:
            result = compute()
        finally:
            self._is_computing = False
        self._note(key, result, mode, (args, kwargs))
        return result

    def _is_alike(self, func: Any) -> bool:
        """Whether equal arguments mean equal results in memory of their own."""
        known = self._are_alike.get(func)
        if known is None:
            known = self._are_alike[func] = is_comparable(func) and _returns_a_new_tensor(func._schema)
        return known

    def _note(self, key: Any, result: Any, mode: FakeTensorMode, given: Any) -> None:
        if type(result) is not FakeTensor or result.fake_mode is not mode or _memory(result) in _memories(given):
            return
        try:
            likeness = Likeness(_NONE, result, None)
        except UncomparableError:
            return
        if not _symbols(likeness.look) <= _symbols(key):
            return  # as many as the data has, another number each time
        likeness.settle()
        self._known[key] = likeness


def _returns_a_new_tensor(schema: Any) -> bool:
    """Not what makes one of nothing: torch copies that if somebody else holds it, and loses sight of the copy."""
    makes_variables = any(argument.name == "pin_memory" for argument in schema.arguments)
    returns = [(str(returned.type), returned.alias_info) for returned in schema.returns]
    return not schema.is_mutable and not makes_variables and returns == [("Tensor", None)]


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return appearance(value)
    if type(value) is list or type(value) is tuple:
        return tuple([_key(item) for item in value])
    return scalar_key(value)


def _symbols(look: Any) -> set[sympy.Basic]:
    return {symbol for leaf in leaves(look) if isinstance(leaf, sympy.Basic) for symbol in leaf.free_symbols}


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _memories(given: Any) -> set[int]:
    return {_memory(leaf) for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)}
