"""The graph of torch's decomposition of one operator, traced with symbolic sizes of its own."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._decomp import decomposition_table
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._sympy import functions as sympy_functions

from . import _core
from .axes.expressions import Range, Sizes
from .axes.implication import Answer, decide
from .axes.rounding import agree
from .axes.true_shapes import GraphWithTrueShapes, TracedSizes
from .composites import COMPOSITES, CONVERTED
from .devices import same_random_numbers
from .errors import REFUSALS, InvalidArgumentError
from .foreach import of_each

logger = logging.getLogger(__name__)

# Sizes that torch computes with while it traces, when it needs some: unlike each other and every usual constant.
_HINTS = (23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113)

_LARGEST_TRIED = 256  # a size at which graph and operator are compared

_FUNCTIONS = {
    "FloorDiv": sympy_functions.FloorDiv,
    "CeilDiv": sympy_functions.CeilDiv,
    "Mod": sympy_functions.Mod,
    "Max": sympy.Max,
    "Min": sympy.Min,
}

Trace = tuple[GraphModule, dict[str, str]]


def has_decomposition(target: str) -> bool:
    """Whether torch can take the operator apart."""
    operator = _find_operator(target)
    return operator is not None and _find_implementation(operator) is not None


def has_results(target: str) -> bool:
    """Whether the operator returns anything; a decomposition is the graph of what it returns."""
    operator = _find_operator(target)
    return operator is None or bool(operator._schema.returns)


def trace_operator(
    target: str, arguments: Sequence[Any], implementation: Callable[..., Any] | None = None
) -> Trace | None:
    """The graph of one operator's decomposition and the name of each torch symbol in it; None if there is none.

    `arguments` are in the order of the operator's schema; operands are `_core.Operand`s. The decomposition is torch's
    own unless another one is given.

    Raises:
        InvalidArgumentError: the one that was given cannot be traced, holds for some sizes alone, or returns something
            else than the operator.
    """
    operator = _find_operator(target)
    known = None if operator is None else implementation or _find_implementation(operator)
    if operator is None or known is None:
        logger.debug("torch has no decomposition of %s", target)
        return None
    call = _Call(operator, known, arguments)
    try:
        return call.trace(is_given=implementation is not None)
    except _UnfitError as error:
        if implementation is not None:
            raise InvalidArgumentError(f"the decomposition of {target} that was given {error}") from error
        logger.warning("torch's decomposition of %s %s", target, error)
    except Exception as error:  # whatever torch's code raises: the lowering reports the operator
        if implementation is not None:
            first = next(iter(str(error).splitlines()), "")
            raise InvalidArgumentError(
                f"the decomposition of {target} that was given cannot be traced: {type(error).__name__}: {first}"
            ) from error
        logger.info("torch's decomposition of %s cannot be traced: %s", target, error)
    return None


class _UnfitError(ValueError):
    """A decomposition is not one for all sizes, or none of its operator; the text says why."""


def _find_operator(target: str) -> torch._ops.OpOverload | None:
    namespace, name, overload = target.split(".", 2)
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return getattr(packet, overload, None)


def _find_implementation(operator: torch._ops.OpOverload) -> Callable[..., Any] | None:
    if operator in COMPOSITES or operator in CONVERTED:
        return COMPOSITES.get(operator) or CONVERTED[operator]
    if operator in decomposition_table:
        return decomposition_table[operator]
    of_list = of_each(operator)
    if of_list is not None:
        return of_list
    if operator._can_decompose():
        return operator.decompose
    return getattr(operator, "impl_aten", None)  # torch's prims say what they are in terms of aten


@dataclass(frozen=True)
class _Call:
    operator: torch._ops.OpOverload
    implementation: Callable[..., Any]
    arguments: Sequence[Any]

    def trace(self, *, is_given: bool) -> Trace:
        sizes = _Sizes()
        mode = FakeTensorMode(shape_env=sizes.shape_env, allow_non_fake_inputs=True)
        with mode, torch.no_grad():
            operands = [sizes.example(operand) for operand in _operands(self.arguments)]
            module = make_fx(self._run)(*operands)
            for node, operand in zip(module.graph.find_nodes(op="placeholder"), operands, strict=True):
                node.meta.setdefault("val", operand)  # which make_fx leaves out of a size that has become a number
            if is_given:
                _require_alike(self._run_operator(*operands), self._run(*operands))
        if sizes.shape_env.replacements:
            raise _UnfitError(f"fixes a size: {sizes.shape_env.replacements}")
        condition = self._condition_that_fails(module, sizes)
        if condition is not None:
            raise _UnfitError(f"is made for {condition} alone")
        return module, sizes.names

    def _condition_that_fails(self, module: GraphModule, sizes: _Sizes) -> sympy.Basic | None:
        """A condition that the trace took for granted and that is not true of all sizes; None if there is none.

        One that some sizes do not meet may be about a layout in memory alone: the graph does at these sizes what the
        operator does.
        """
        for guard in dict.fromkeys(guard.expr for guard in sizes.shape_env.guards):
            decision = decide(guard, {symbol: Range(2) for symbol in guard.free_symbols})
            if decision.answer != Answer.PROVED and not self._is_right_at(module, sizes, decision.counterexamples):
                return guard
        return None

    def _is_right_at(self, module: GraphModule, sizes: _Sizes, points: Sequence[Sizes]) -> bool:
        """Whether the graph does what the operator does at these sizes, of which there is at least one small enough."""
        small = [point for point in points if max(point.values()) <= _LARGEST_TRIED]
        return bool(small) and all(self._agrees_at(module, sizes, point) for point in small)

    def _agrees_at(self, module: GraphModule, sizes: _Sizes, point: Sizes) -> bool:
        with same_random_numbers():
            operands = [sizes.operand_at(operand, point) for operand in _operands(self.arguments)]
            if any(operand is None for operand in operands):
                return False
            try:
                expected = self._run_operator(*operands)
            except REFUSALS:
                return True
            try:
                got = GraphWithTrueShapes(module, TracedSizes(sizes.at(point))).run(*operands)
            except REFUSALS:
                return False
        return agree(pytree.tree_leaves(expected), pytree.tree_leaves(got))

    def _run_operator(self, *operands: Any) -> Any:
        return self._called(self.operator, operands)

    def _run(self, *operands: Any) -> Any:
        return self._called(self.implementation, operands)

    def _called(self, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
        remaining = iter(operands)
        values = [_filled(argument, remaining) for argument in self.arguments]
        parameters = self.operator._schema.arguments
        positional = [value for value, p in zip(values, parameters, strict=False) if not p.kwarg_only]
        keywords = {p.name: value for value, p in zip(values, parameters, strict=False) if p.kwarg_only}
        return function(*positional, **keywords)


def _require_alike(expected: object, got: object) -> None:
    """Refuses results of another number, dtype or rank than the operator's, or of other sizes that are numbers."""
    wanted, made = ([_look(leaf) for leaf in pytree.tree_leaves(each)] for each in (expected, got))
    if len(wanted) != len(made) or not all(map(_may_be_equal, wanted, made)):
        raise _UnfitError(f"returns {', '.join(map(str, made))}, and the operator {', '.join(map(str, wanted))}")


def _look(value: object) -> tuple[object, ...]:
    return (value.dtype, *value.shape) if isinstance(value, torch.Tensor) else (type(value).__name__,)


def _may_be_equal(one: Sequence[object], other: Sequence[object]) -> bool:
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and not any(
        a != b for a, b in pairs if not isinstance(a, torch.SymInt) and not isinstance(b, torch.SymInt)
    )


def _operands(arguments: Any) -> Iterator[_core.Operand]:
    for argument in arguments:
        if isinstance(argument, _core.Operand):
            yield argument
        elif isinstance(argument, list):
            yield from _operands(argument)


def _filled(argument: object, operands: Iterator[Any]) -> Any:
    if isinstance(argument, _core.Operand):
        return next(operands)
    if isinstance(argument, list):
        return [_filled(item, operands) for item in argument]
    return _torch_object(argument.name) if isinstance(argument, _core.Symbol) else argument


def _torch_object(name: str) -> Any:
    """`torch.strided` and `torch.contiguous_format` by name; devices are the only other enums."""
    value = getattr(torch, name, None)
    return value if isinstance(value, (torch.layout, torch.memory_format)) else torch.device(name)


class _Sizes:
    """Symbolic sizes for one trace."""

    def __init__(self) -> None:
        self.shape_env = ShapeEnv()
        self.names: dict[str, str] = {}  # torch's symbol -> ours
        self._symbols: dict[str, sympy.Symbol] = {}
        self._hints: dict[sympy.Symbol, int] = {}

    def example(self, operand: _core.Operand) -> Any:
        if operand.is_scalar:
            return self._number(operand)
        return torch.empty([self._size(size) for size in operand.shape], dtype=operand.dtype)

    def _number(self, operand: _core.Operand) -> Any:
        if operand.value is not None:
            return self._size(operand.value)
        if operand.dtype == torch.int64:
            return self.shape_env.create_unbacked_symint()
        is_bool = operand.dtype == torch.bool
        return self.shape_env.create_unbacked_symbool() if is_bool else self.shape_env.create_unbacked_symfloat()

    def _size(self, text: str) -> int | torch.SymInt:
        if text.lstrip("-").isdigit():
            return int(text)
        expression = self._expression(text)
        return self.shape_env.create_symintnode(expression, hint=int(expression.xreplace(self._hints)))

    def at(self, point: Sizes) -> Sizes:
        """All symbols at these sizes, the others at what torch computed with."""
        return {**self._hints, **point}

    def operand_at(self, operand: _core.Operand, point: Sizes) -> Any:
        """A random operand of these sizes; None for a number that the sizes do not tell."""
        sizes = self.at(point)
        if operand.is_scalar:
            return None if operand.value is None else self._value(operand.value, sizes)
        shape = [self._value(size, sizes) for size in operand.shape]
        if operand.dtype.is_floating_point or operand.dtype.is_complex:
            return torch.rand(shape, dtype=operand.dtype)
        return torch.randint(0, 2, shape).to(operand.dtype)

    def _value(self, text: str, sizes: Sizes) -> int:
        if text.lstrip("-").isdigit():
            return int(text)
        return int(self._expression(text).xreplace(dict(sizes)))

    def _expression(self, text: str) -> sympy.Expr:
        symbols = {name: self._symbol(name) for name in re.findall(r"\bd\d+\b", text)}
        return sympy.sympify(text, locals={**_FUNCTIONS, **symbols})

    def _symbol(self, name: str) -> sympy.Symbol:
        if name not in self._symbols:
            hint = _HINTS[len(self._symbols) % len(_HINTS)]
            symbol = self.shape_env.create_symbol(hint, ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC)
            self._symbols[name] = symbol
            self._hints[symbol] = hint
            self.names[str(symbol)] = name
        return self._symbols[name]
