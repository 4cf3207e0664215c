"""A call of a model whose sizes are symbols, to hear what is asked of them; nothing is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sympy
import torch

from exportguard.inputs import CallInputs
from exportguard.model_code import is_users
from exportguard.signature import raw_size

_MANY = 30  # conditions, some of which hold for all sizes


class Asked(NamedTuple):
    """The conditions on sizes that a model asks, one after the other, each with the answer that it gets, and the
    numbers at hand where it refuses the sizes. It is stopped where anything is raised, cut short where tensors without
    data are asked for some, and raised where the user's own code refuses the sizes, and no operator. `of_code` are the
    conditions that Python code of a model asks, and no operator of torch, for how its result lies in memory."""

    conditions: Sequence[sympy.Basic] = ()
    numbers: Sequence[int] = ()
    is_cut_short: bool = False
    is_raised: bool = False
    is_stopped: bool = False
    of_code: Sequence[sympy.Basic] = ()

    def tells_more_than(self, other: Asked) -> bool:
        """Whether an operator stopped or fixed sizes of the other one, of the same call, that it does not here, and
        asks no more than can be looked for."""
        if self.is_cut_short or self.has_stopped_operator() or len(self.of_code) > _MANY:
            return False
        return other.has_stopped_operator() or len(self.fixed_sizes()) < len(other.fixed_sizes())

    def has_stopped_operator(self) -> bool:
        """Whether it ends at an operator: it refuses the sizes, or has no kernel that takes symbols for them."""
        return self.is_stopped and not self.is_raised

    def fixed_sizes(self) -> list[sympy.Basic]:
        """The conditions by which a size, or a sum or product of some, is one number: what is found then tells nothing
        of others. The kernels of some operators, as that of a resizing by a factor, make numbers of all sizes where
        torch has others for traces that do not."""
        return [
            condition
            for condition in self.of_code
            if isinstance(condition, sympy.Eq)
            and isinstance(condition.lhs, sympy.Symbol | sympy.Add | sympy.Mul)
            and condition.rhs.is_Integer
        ]


class SymbolicSizes:
    """Fake tensors with a symbol for each axis that has one in a trace."""

    def __init__(self, sizes: Sequence[Sequence[sympy.Expr]], *, has_data: bool) -> None:
        """`sizes` are the expressions of the axes of each leaf. With data an operator that refuses sizes is run with
        them, and asks nothing; without, no tensor is a number."""
        # Not at the top: they take long to import, and whoever exports has them by now.
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._sizes = sizes
        self._known: dict[sympy.Symbol, sympy.Expr] = {}
        self._env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        with torch._functorch.config.patch(fake_tensor_propagate_real_tensors=has_data):
            self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self._env)

    def call(self, call: CallInputs) -> CallInputs:
        """The call with such tensors."""
        return call.with_leaves([self._fake(number, leaf) for number, leaf in enumerate(call.leaves())])

    def conditions(self, *, of_code: bool = False) -> list[sympy.Basic]:
        """What was asked so far, in the symbols of the trace; `of_code` for what Python code of a model asked alone."""
        guards = [guard for guard in self._env.guards if not of_code or _is_of_code(guard)]
        found = (guard.expr.xreplace(self._known) for guard in guards)
        return [condition for condition in found if condition not in (sympy.true, sympy.false)]

    def _fake(self, number: int, leaf: object) -> object:
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        if not isinstance(leaf, torch.Tensor):
            return leaf
        kinds = [DimDynamic.DYNAMIC if size.is_Symbol else DimDynamic.STATIC for size in self._sizes[number]]
        context: Any = StatelessSymbolicContext(kinds, constraint_sizes=[None] * len(kinds))
        made = self.mode.from_tensor(leaf, symbolic_context=context, source=ConstantSource(f"input_{number}"))
        named = zip(made.shape, self._sizes[number], strict=True)
        self._known.update({raw_size(size): traced for size, traced in named if traced.is_Symbol})
        return made


def _is_of_code(guard: Any) -> bool:
    """By the frame that asked, which torch 2.11 to 2.13 keep with a guard. What makes a number of a size stands in the
    place of it in all that is asked behind it, whoever asked."""
    frame = guard.sloc.framework_loc
    return isinstance(guard.expr, sympy.Eq) or is_users(getattr(frame, "filename", torch.__file__))


def asks_for_data(error: BaseException) -> bool:
    """Whether it was not the model that refused fake tensors, but they that told nothing of their data."""
    from torch._subclasses import fake_tensor
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    kinds = (
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedFakeTensorException,
        fake_tensor.UnsupportedOperatorException,
        GuardOnDataDependentSymNode,
    )
    return isinstance(error, kinds)
