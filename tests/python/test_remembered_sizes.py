"""What operators of sizes give is remembered, and is what torch makes of it each time."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from exportguard import _core
from exportguard.patches.torch import floats_of_sizes, remembered_sizes

_OPERATIONS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.eq,
    operator.ne,
    operator.ge,
    operator.gt,
    operator.le,
    operator.lt,
)
_HINTS = (1, 2, 3, 3, 4, 6)


class Sizes:
    """Sizes of an example, and what is made of them; one of them becomes a number on the way."""

    def __init__(self) -> None:
        self.env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self.sizes: list[Any] = [self.size(f"size{at}", hint) for at, hint in enumerate(_HINTS)]
        self.made: list[Any] = [*self.sizes]

    def size(self, name: str, hint: int) -> Any:
        source = ConstantSource(name)
        symbol = self.env.create_symbol(hint, source, DimDynamic.DYNAMIC, constraint_dim=None)
        return self.env.create_symintnode(symbol, hint=hint, source=source)

    def step(self, chosen: random.Random) -> Any:
        compute, (a, b) = chosen.choice(_OPERATIONS), chosen.choices([*self.made, 0, 1, 2, 3], k=2)
        result = compute(a, b)
        if isinstance(result, torch.SymInt | int) and not isinstance(result, bool):
            self.made.append(result)
        return result


def seen(result: Any) -> Any:
    """All that torch knows of a result."""
    if not isinstance(result, torch.SymInt | torch.SymBool):
        return type(result), result
    node = result.node
    return node._expr, node.expr, node.pytype, node.hint, node._optimized_summation, node.constant


@pytest.fixture
def remembered() -> Iterator[None]:
    changes = _core.KeptChanges()
    try:
        for module in (floats_of_sizes, remembered_sizes):
            module._replace_all(changes)
        yield
    finally:
        changes.undo()


def results(seed: int) -> list[Any]:
    chosen, sizes = random.Random(seed), Sizes()
    found = []
    for at in range(300):
        found.append(seen(sizes.step(chosen)))
        if at == 150:
            assert sizes.sizes[2] == sizes.sizes[3]  # from here on one symbol stands for both
            assert sizes.sizes[5] == 6
    return found


@pytest.mark.parametrize("seed", range(20))
def test_results_are_torchs(seed: int, request: pytest.FixtureRequest) -> None:
    without = results(seed)
    request.getfixturevalue("remembered")
    assert results(seed) == without
    assert results(seed) == without, "once more, of what is remembered"


@pytest.mark.usefixtures("remembered")
def test_a_result_is_worked_out_once_and_a_node_of_its_own_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes()
    a, b = sizes.sizes[:2]
    worked_out: list[object] = []
    create = ShapeEnv._create_fx_call_function
    monkeypatch.setattr(ShapeEnv, "_create_fx_call_function", lambda *args: worked_out.append(args) or create(*args))
    for compute in _OPERATIONS:
        one, other = compute(a, b), compute(a, b)
        assert one.node is not other.node
        assert seen(one) == seen(other)
    assert len(worked_out) == len(_OPERATIONS)


@pytest.mark.usefixtures("remembered")
def test_flags_are_no_numbers() -> None:
    sizes = Sizes()
    one = sizes.sizes[0].node

    def node(value: int | bool) -> SymNode:
        return SymNode(one.expr, sizes.env, type(value), value)

    assert [node(value)._add(node(value)).pytype for value in (1, True, 1)] == [int, bool, int]


@pytest.mark.usefixtures("remembered")
def test_sums_in_torchs_own_order_are_no_others() -> None:
    """torch adds to a sum that it made itself without sorting its terms again."""
    sizes = Sizes()
    a, b, c, d = (size.node for size in sizes.sizes[:4])
    ordered = a._add(b)._add(c)
    assert ordered._optimized_summation
    other = SymNode(ordered.expr, sizes.env, int, ordered.hint)
    found = [node._add(d)._optimized_summation for node in (ordered, other, ordered)]
    assert found == [True, False, True]


@pytest.mark.usefixtures("remembered")
def test_sizes_of_data_are_left_to_torch() -> None:
    env = ShapeEnv()
    u, v = env.create_unbacked_symint(), env.create_unbacked_symint()
    assert (u + v).node._hint is None
    equal = u == v
    torch._check(equal)
    assert bool(u == v), "what was checked is known"


@pytest.mark.usefixtures("remembered")
def test_a_trace_is_asked_for_each_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    dispatch = proxy_tensor.handle_sym_dispatch
    monkeypatch.setattr(proxy_tensor, "handle_sym_dispatch", lambda *call: asked.append(call[0]) or dispatch(*call))

    def twice(x: torch.Tensor) -> tuple[Any, Any]:
        return x.shape[0] * x.shape[1], x.shape[0] * x.shape[1]

    proxy_tensor.make_fx(twice, tracing_mode="symbolic")(torch.ones(2, 3))
    assert asked.count(operator.mul) == 2
