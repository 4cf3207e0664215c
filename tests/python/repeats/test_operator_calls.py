"""Operator calls that never leave C++ return what the same calls of Python return."""

from __future__ import annotations

from typing import Any

import indexed_blocks
import pytest
import torch
from stacks import Stack, inputs

from exportguard import ExportOptions, _core
from exportguard.axes import true_shapes
from exportguard.axes.traced_program import TracedProgram, traced_inputs
from exportguard.inputs import CallInputs
from exportguard.request import ExportRequest
from exportguard.tracing import exported_module

V = _core.ValueNumber


def added(calls: _core.OperatorCalls, operator: Any, *args: Any, **kwargs: Any) -> int:
    schema = operator._schema
    return calls.add(schema.name, schema.overload_name, args, kwargs)


def test_values_numbers_lists_options_and_results_are_handed_on() -> None:
    aten = torch.ops.aten
    calls = _core.OperatorCalls(2)
    scaled = added(calls, aten.mul.Tensor, V(0), 0.5)
    shaped = added(calls, aten.view.default, V(scaled), [V(1), -1])
    joined = added(calls, aten.cat.default, [V(shaped), V(shaped)], dim=1)
    both = added(calls, aten.topk.default, V(joined), 2, sorted=True)
    values, places = calls.pick(V(both), 0), calls.pick(V(both), 1)
    chosen = added(calls, aten.index.Tensor, V(joined), [None, V(places)])
    double = added(calls, aten.to.dtype, V(values), torch.float64)
    rows = added(calls, aten.unbind.int, V(double))
    first = calls.pick(V(rows), 1)
    calls.want([chosen, first, places])

    x = torch.randn(4, 3)
    for _ in range(2):
        got = calls.run((x, 3))
        whole = torch.cat([(x * 0.5).view(3, -1)] * 2, dim=1)
        most = whole.topk(2)
        assert torch.equal(got[0], whole[:, most.indices])
        assert torch.equal(got[1], most.values.double()[1])
        assert torch.equal(got[2], most.indices)


def test_a_number_that_is_an_input_is_as_weak_as_in_python() -> None:
    calls = _core.OperatorCalls(2)
    calls.want([added(calls, torch.ops.aten.add.Tensor, V(0), V(1))])
    (got,) = calls.run((torch.ones(2, dtype=torch.float16), 3))
    assert got.dtype == torch.float16
    assert got.tolist() == [4, 4]


def test_an_operator_that_writes_its_argument_writes_it() -> None:
    calls = _core.OperatorCalls(1)
    written = added(calls, torch.ops.aten.add_.Tensor, V(0), 1)
    calls.want([written])
    x = torch.zeros(2)
    (got,) = calls.run((x,))
    assert got is x
    assert x.tolist() == [1, 1]


def test_calls_that_cannot_be_made_are_refused() -> None:
    calls = _core.OperatorCalls(1)
    with pytest.raises(ValueError, match=r"no operator aten::nothing\.default"):
        calls.add("aten::nothing", "default", (), {})
    with pytest.raises(ValueError, match="value 7 is not known yet, of 1"):
        added(calls, torch.ops.aten.tanh.default, V(7))
    with pytest.raises(ValueError, match="needs other"):
        added(calls, torch.ops.aten.add.Tensor, V(0))
    with pytest.raises(ValueError, match="arguments left"):
        added(calls, torch.ops.aten.tanh.default, V(0), other=1)
    calls.want([added(calls, torch.ops.aten.tanh.default, V(0))])
    with pytest.raises(ValueError, match="1 inputs are needed, got 2"):
        calls.run((torch.ones(1), 1))
    with pytest.raises(RuntimeError):
        calls.run(("text",))


@pytest.mark.parametrize("name", [*indexed_blocks.MODELS][::6])
def test_a_block_returns_what_it_returns_in_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    in_cpp = true_shapes.operator_calls

    def both(own: Any, wanted: Any) -> Any:
        one, other = in_cpp(own, wanted), true_shapes._in_python(own, wanted)
        assert one is not None

        def block(*given: Any) -> Any:
            copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in given]
            got, expected = one(*given), other(*copies)
            assert all(map(torch.equal, got, expected))
            compared.append(len(got))
            return got

        return block

    monkeypatch.setattr(true_shapes, "operator_calls", both)
    torch.manual_seed(0)
    model = Stack(indexed_blocks.MODELS[name]().layers[0].function, depth=8).eval()
    shapes = ({0: "batch", 1: "seq"},)
    request = ExportRequest.of(model, (inputs(2, 12),), {}, dynamic_shapes=shapes, options=ExportOptions())
    program = exported_module(request).program
    sizes = dict(zip(traced_inputs(program).sizes[0], (3, 9), strict=False))
    TracedProgram(program).run(CallInputs((inputs(3, 9),)), sizes)
    assert compared
