"""What torch's fake kernels answered in one trace: how the results of an operator call look.

A block that is traced makes calls that it, or a block of another kind, has made before: the products and norms of a
layer are asked of tensors that look alike. Such a call is traced as always, with a node of its own; how its results
look is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch._library.utils import is_builtin
from torch._subclasses.fake_tensor import FakeTensor

from exportguard.repeats.keys import Local, UncomparableError, appearance, is_comparable, scalar_key, thread_state
from exportguard.repeats.likenesses import Likeness
from exportguard.repeats.moved_axes import MovedAxes
from exportguard.repeats.operands import Operand
from exportguard.repeats.paths import leaves
from exportguard.repeats.pointwise import Pointwise
from exportguard.repeats.row_by_row import RowByRow

_OF_NO_PATH = Local.of(0)


class Answers:
    """By what was asked: the operator, its numbers, and how its tensors look.

    :param remembers: whether an answer is kept for the next call; if not, what the expressions of the operands say is
        all that is not asked
    """

    def __init__(self, *, remembers: bool = True) -> None:
        self._remembers = remembers
        self._mode: Any = None
        self._known: dict[Any, Likeness | tuple[Likeness, ...]] = {}
        self._is_asked_once: dict[Any, bool] = {}
        self._likenesses: dict[int, Likeness] = {}  # by the identity of a result, which may be another tensor by now
        self._rules = (Pointwise(), MovedAxes(), RowByRow())

    def of(self, mode: Any, call: tuple[Any, Any, Any], ask: Callable[[], Any]) -> Any:
        """What `ask` returns for the operator, arguments and keywords of a call, or results that look like it.

        An operator of elements, or of axes, is not asked where the expressions of its operands tell all.

        :param mode: the fake tensors' mode; that of a model has answers of its own, which are not looked at
        """
        func, args, kwargs = call
        self._mode = self._mode or mode
        if mode is not self._mode or mode.propagate_real_tensors or not self._may_know(func):
            return ask()
        operands: list[Operand] = []
        try:
            key = (func, _key((args, *kwargs.items()), operands), thread_state(), torch.is_inference_mode_enabled())
        except UncomparableError:
            return ask()
        for operand in operands:
            self._look_again(operand.tensor)
        known = self._known.get(key)  # nothing, where nothing is remembered
        if known is not None:
            return tuple(map(_made, known)) if isinstance(known, tuple) else _made(known)
        told = (rule.result(mode, call, operands) for rule in self._rules)
        result = next((result for result in told if result is not None), None)
        if result is None:
            result = ask()
        if self._remembers and not _is_factory(func):
            self._note(key, result, operands)
        return result

    def _may_know(self, func: Any) -> bool:
        known = self._is_asked_once.get(func)
        if known is None:
            known = self._is_asked_once[func] = _makes_the_same_again(func)
        return known

    def _look_again(self, tensor: Any) -> None:
        """What was found out of the layout of a result is known of those like it: it takes long for symbolic sizes."""
        likeness = self._likenesses.get(id(tensor))
        if likeness is not None:
            likeness.look_again(tensor)

    def _note(self, key: Any, result: Any, operands: list[Operand]) -> None:
        """Keeps new tensors alone, whose sizes are made of those that were given: no views, no sizes of data."""
        results = result if isinstance(result, tuple) else (result,)
        if not all(map(_is_plain, results)) or _shares_memory(results, operands):
            return
        try:
            likenesses = tuple([Likeness(_OF_NO_PATH, one, None) for one in results])
        except UncomparableError:
            return
        if {*_symbols([one.look for one in likenesses])} <= {*_symbols(key)}:
            self._known[key] = likenesses if isinstance(result, tuple) else likenesses[0]
            self._likenesses.update((id(one), likeness) for one, likeness in zip(results, likenesses, strict=True))


def _makes_the_same_again(func: Any) -> bool:
    """Whether equal calls of an operator of torch return new tensors of equal looks, and do nothing else."""
    if not isinstance(func, torch._ops.OpOverload) or not is_builtin(func) or not is_comparable(func):
        return False
    return not func._schema.is_mutable


@functools.cache
def _is_factory(func: Any) -> bool:
    """Whether torch copies what an operator returns if somebody else holds it, as `zeros` and its kin:
    `region._makes_variables`."""
    return any(one.name == "pin_memory" for one in func._schema.arguments)


def _key(value: Any, operands: list[Operand]) -> Any:
    """The key of arguments, whose tensors are added to a list."""
    if isinstance(value, torch.Tensor):
        operands.append(Operand(value, appearance(value)))
        return operands[-1].look
    if type(value) is list or type(value) is tuple:
        return tuple([_key(item, operands) for item in value])
    return scalar_key(value)


def _is_plain(result: object) -> bool:
    """Whether a result is a tensor without a history."""
    return type(result) is FakeTensor and not result.requires_grad


def _shares_memory(results: tuple[Any, ...], operands: list[Operand]) -> bool:
    """Whether a result has the memory of another one, or of a tensor that was given."""
    memories = {operand.tensor.untyped_storage()._cdata for operand in operands}
    own = {result.untyped_storage()._cdata for result in results}
    return len(own) < len(results) or not memories.isdisjoint(own)


def _symbols(key: Any) -> Iterator[sympy.Basic]:
    return (symbol for leaf in leaves(key) if isinstance(leaf, sympy.Basic) for symbol in leaf.free_symbols)


def _made(likeness: Likeness) -> Any:
    if not likeness.is_settled:
        likeness.settle()
    return likeness.make_in_own_memory()
