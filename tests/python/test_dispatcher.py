"""Operators of one's own, and other converters for those that exist."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnxscript import opset20, script
from onnxscript.values import Opset

from called import CalledWithAll
from exportguard import Dispatcher, ExportError, InvalidArgumentError, LoweringError, OnnxModel, to_onnx


@torch.library.custom_op("test_dispatcher::scaled_sum", mutates_args=())
def scaled_sum(x: torch.Tensor, y: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
    return x + y * scale


@scaled_sum.register_fake
def _(x: torch.Tensor, y: torch.Tensor, *, scale: float = 2.0) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("test_dispatcher::both_ends", mutates_args=())
def both_ends(x: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:count].clone(), x[x.shape[0] - count :].clone()


@both_ends.register_fake
def _(x: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(count, *x.shape[1:]), x.new_empty(count, *x.shape[1:])


@torch.library.custom_op("test_dispatcher::joined", mutates_args=())
def joined(values: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(values)


@joined.register_fake
def _(values: list[torch.Tensor]) -> torch.Tensor:
    return values[0].new_empty(sum(value.shape[0] for value in values), *values[0].shape[1:])


@torch.library.custom_op("test_dispatcher::halve_", mutates_args=("x",))
def halve_(x: torch.Tensor) -> None:
    x.mul_(0.5)


@torch.library.custom_op("test_dispatcher::swapped_", mutates_args=("x", "y"))
def swapped_(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return x - y


@swapped_.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def convert_scaled_sum(g: Any, x: Any, y: Any, *, scale: float) -> Any:
    return g.op.Add(x, g.op.Mul(y, scale))


def convert_both_ends(g: Any, x: Any, count: Any) -> Any:
    wanted = g.op.Reshape(count, [1]) if not isinstance(count, int) else g.constant(torch.tensor([count]))
    end = g.constant(torch.tensor([2**62]))
    return g.op.Slice(x, [0], wanted), g.op.Slice(x, g.op.Neg(wanted), end)


def convert_swapped(g: Any, x: Any, y: Any) -> Any:
    return g.op.Sub(y, x), y, x


DISPATCHER = Dispatcher(
    {
        scaled_sum: convert_scaled_sum,
        "test_dispatcher::both_ends": convert_both_ends,
        torch.ops.test_dispatcher.joined: lambda g, values: g.op.Concat(*values, axis=0),
        torch.ops.test_dispatcher.halve_.default: lambda g, x: g.op.Mul(x, 0.5),
        "test_dispatcher.swapped_.default": convert_swapped,
    }
)


def converted(function: Callable[..., Any], *inputs: torch.Tensor, dispatcher: Dispatcher | None) -> OnnxModel:
    shapes = (tuple({0: "n"} for _ in inputs),)
    return to_onnx(CalledWithAll(function).eval(), inputs, dynamic_shapes=shapes, dispatcher=dispatcher)


def check(function: Callable[..., Any], *inputs: torch.Tensor, dispatcher: Dispatcher = DISPATCHER) -> OnnxModel:
    """The model agrees with eager at the traced size and at another."""
    model = converted(function, *inputs, dispatcher=dispatcher)
    model.check(full=True)
    session = onnxruntime.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    for feed in (inputs, tuple(torch.cat([value, value + 1, value * 2]) for value in inputs)):
        expected = function(*(value.clone() for value in feed))
        leaves = expected if isinstance(expected, tuple) else (expected,)
        given = {value.name: tensor.numpy() for value, tensor in zip(session.get_inputs(), feed, strict=True)}
        for left, right in zip(leaves, session.run(None, given), strict=False):
            np.testing.assert_allclose(left.numpy(), right, rtol=1e-6)
    return model


def test_a_functional_operator() -> None:
    check(lambda x, y: torch.ops.test_dispatcher.scaled_sum(x, y, scale=3.0).relu(), torch.rand(2, 3), torch.rand(2, 3))


def test_several_results_and_dynamic_sizes() -> None:
    def function(x: torch.Tensor) -> Any:
        first, last = torch.ops.test_dispatcher.both_ends(x, x.shape[0] // 2)
        return first + 1, last * 2

    check(function, torch.rand(4, 3))


def test_a_list_of_tensors() -> None:
    check(lambda x, y: torch.ops.test_dispatcher.joined([x, y, x]), torch.rand(2, 3), torch.rand(2, 3))


def test_an_operator_in_place() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch.ops.test_dispatcher.halve_(y)
        return y * y

    check(function, torch.rand(2, 3))


def test_an_operator_in_place_through_a_view() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch.ops.test_dispatcher.halve_(y[:, 0])
        return y

    check(function, torch.rand(2, 3))


def test_results_beside_two_arguments_that_are_written() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b = x + 0, y + 0
        difference = torch.ops.test_dispatcher.swapped_(a, b)
        return difference, a, b

    check(function, torch.rand(2, 3), torch.rand(2, 3))


def test_inside_a_branch() -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.cond(
            x.sum() > 2,
            lambda v: (torch.ops.test_dispatcher.scaled_sum(v, v),),
            lambda v: (torch.ops.test_dispatcher.both_ends(v, 1)[0].sum() + v,),
            (x,),
        )[0]

    check(function, torch.rand(2, 3))


def test_inside_a_scan() -> None:
    from torch._higher_order_ops.scan import scan

    def function(x: torch.Tensor) -> Any:
        def step(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = torch.ops.test_dispatcher.scaled_sum(carry, row)
            return total, total + 0

        return scan(step, torch.zeros(3), x)[1]

    check(function, torch.rand(2, 3))


def test_an_operator_that_exists_is_converted_otherwise() -> None:
    dispatcher = Dispatcher()

    @dispatcher.register("aten::relu")
    def _(g: Any, x: Any) -> Any:
        return g.op.Max(x, 0.0)

    model = check(lambda x: (x - 0.5).relu(), torch.rand(2, 3), dispatcher=dispatcher)
    assert "Max(" in model.text()
    assert "Relu(" not in model.text()


own = Opset("test_dispatcher.onnxscript", 1)


@script(own, default_opset=opset20)
def script_scaled_sum(x: Any, y: Any, scale: float = 2.0) -> Any:
    return opset20.Add(x, opset20.Mul(y, opset20.CastLike(opset20.Constant(value_float=scale), y)))


def test_an_onnxscript_function_becomes_a_local_function() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        once = torch.ops.test_dispatcher.scaled_sum(x, y, scale=3.0)
        return torch.ops.test_dispatcher.scaled_sum(once, y, scale=3.0)

    inputs = torch.rand(2, 3), torch.rand(2, 3)
    program = torch.export.export(CalledWithAll(function).eval(), inputs, strict=False)
    model = to_onnx(program, opset=20, dispatcher=Dispatcher({scaled_sum: script_scaled_sum}))
    assert model.text().count("function ") == 1
    session = onnxruntime.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    (result,) = session.run(None, {name: value.numpy() for name, value in zip(names, inputs, strict=True)})
    np.testing.assert_allclose(result, function(*inputs).numpy(), rtol=1e-6)


# ---------------------------------------------------------------------------------------------------- errors


def test_an_operator_without_a_converter_says_how_to_give_one() -> None:
    with pytest.raises(LoweringError, match="without a lowering") as caught:
        converted(lambda x: torch.ops.test_dispatcher.joined([x, x]), torch.rand(2, 3), dispatcher=None)
    assert "test_dispatcher.joined.default" in str(caught.value)
    assert 'dispatcher=exportguard.Dispatcher({"test_dispatcher.joined.default"' in str(caught.value)


def failing(converter: Callable[..., Any]) -> pytest.ExceptionInfo[Exception]:
    function = torch.ops.test_dispatcher.scaled_sum
    with pytest.raises((LoweringError, InvalidArgumentError)) as caught:
        converted(function, torch.rand(2, 3), torch.rand(2, 3), dispatcher=Dispatcher({scaled_sum: converter}))
    return caught


@pytest.mark.parametrize(
    ("converter", "message"),
    [
        (lambda g, x, y, scale: (x, y), "the converter must return 1 values, got 2"),
        (lambda g, x, y, scale: 3, "result 0 of the converter must be a value of the graph, got 3"),
        (lambda g, x, y, scale: g.op.Transpose(x), "result 0 of the converter must be f32"),
        (lambda g, x, y, scale: g.op.ReduceSum(x), "result 0 of the converter must be f32"),
    ],
    ids=["too many", "a number", "another shape", "another rank"],
)
def test_a_converter_that_gives_something_else_is_told(converter: Callable[..., Any], message: str) -> None:
    caught = failing(converter)
    assert caught.type is LoweringError
    assert message in str(caught.value)
    assert "cannot lower test_dispatcher.scaled_sum.default" in str(caught.value)


def test_a_converter_that_returns_nothing_is_told() -> None:
    caught = failing(lambda g, x, y, scale: None)
    assert caught.type is InvalidArgumentError
    assert str(caught.value) == (
        "the converter of test_dispatcher.scaled_sum.default returned None; return a value of the graph"
    )
    assert "scaled_sum" in caught.value.__notes__[0]


def test_an_onnxscript_function_of_another_opset_is_told() -> None:
    inputs = torch.rand(2, 3), torch.rand(2, 3)
    with pytest.raises(InvalidArgumentError, match="is written for opset 20 and the model has 18; pass opset=20, or"):
        to_onnx(
            CalledWithAll(torch.ops.test_dispatcher.scaled_sum).eval(),
            inputs,
            opset=18,
            dispatcher=Dispatcher({scaled_sum: script_scaled_sum}),
        )


def test_what_a_converter_raises_comes_with_the_node() -> None:
    caught = failing(lambda g, x, y, scale: g.op.MatMull(x, y))
    assert caught.type is InvalidArgumentError
    (note,) = caught.value.__notes__
    assert re.fullmatch(r"while test_dispatcher\.scaled_sum\.default \(.*called\.py:\d+\) was converted", note)


def test_a_value_is_of_no_use_afterwards() -> None:
    kept: list[Any] = []

    def converter(g: Any, x: Any, y: Any, scale: float) -> Any:
        kept.extend([g, x])
        return g.op.Add(x, y)

    converted(
        torch.ops.test_dispatcher.scaled_sum,
        torch.rand(2),
        torch.rand(2),
        dispatcher=Dispatcher({scaled_sum: converter}),
    )
    with pytest.raises(InvalidArgumentError, match="the converter has returned"):
        kept[0].op.Relu(kept[1])


@pytest.mark.parametrize(
    ("operator", "converter", "message"),
    [
        ("nowhere::op", print, "torch knows no operator 'nowhere::op'"),
        ("relu", print, "torch knows no operator 'relu'"),
        ("aten::relu.Tensor", print, "'aten::relu.Tensor' is no overload; there are default, out"),
        (3, print, "an operator must be a name such as 'own::scaled'"),
        ("aten::relu", 3, "the converter of aten::relu must be a function, got 3"),
    ],
)
def test_a_wrong_row_is_refused(operator: Any, converter: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        Dispatcher({operator: converter})


# ---------------------------------------------------------------------------------------------------- decompositions


class Activated(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x) + 1


def node_types(model: Any) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(model.to_bytes()).graph.node]


@pytest.mark.parametrize(
    "chosen",
    [["aten::gelu"], [torch.ops.aten.gelu], {"aten::gelu": lambda x, approximate="none": x * torch.sigmoid(1.702 * x)}],
    ids=["name", "operator", "function"],
)
def test_an_operator_is_taken_apart_by_choice(chosen: Any) -> None:
    x = torch.randn(2, 3)
    plain, apart = (
        to_onnx(Activated(), (x,), dynamic_shapes=({0: "batch"},), optimize=False, decompositions=which)
        for which in ((), chosen)
    )
    assert "Gelu" in node_types(plain)
    assert "Gelu" not in node_types(apart)
    y = torch.randn(5, 3)
    (got,) = apart.run({apart.inputs[0].name: y}).values()
    expected = y * torch.sigmoid(1.702 * y) + 1 if isinstance(chosen, dict) else Activated()(y)
    torch.testing.assert_close(torch.as_tensor(got), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("aten::gelu", "decompositions must be operators"),
        (["aten::nothing"], "torch knows no operator"),
        (["aten::convolution"], "torch has no decomposition of aten.convolution.default"),
        ({"aten::gelu": 5}, "the decomposition of aten.gelu.default must be a function"),
    ],
)
def test_a_wrong_decomposition_is_refused(chosen: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        to_onnx(Activated(), (torch.zeros(2),), decompositions=chosen)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: None, "cannot be traced: TypeError"),
        (lambda x, approximate="none": x.sum(), "returns .*, and the operator "),
        (lambda x, approximate="none": x.double(), "returns .*float64, .*, and the operator .*float32"),
        (lambda x, approximate="none": x * torch.arange(int(x.shape[0]))[:, None].float(), "fixes a size"),
    ],
    ids=["raises", "another rank", "another dtype", "one size"],
)
def test_a_decomposition_that_is_none_of_its_operator_is_refused(given: Any, message: str) -> None:
    inputs, shapes = (torch.randn(2, 3),), ({0: "batch"},)
    with pytest.raises(InvalidArgumentError, match=f"the decomposition of aten.gelu.default that was given {message}"):
        to_onnx(Activated(), inputs, dynamic_shapes=shapes, decompositions={"aten::gelu": given})


# ---------------------------------------------------------------------------------------------------- module classes


class Gate(torch.nn.Module):
    def __init__(self, width: int, power: int = 1) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.register_buffer("shift", torch.full((), 0.5))
        self.power = power

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        gate = torch.sigmoid(self.linear(x)) * scale
        return x * gate + self.shift, gate


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = torch.nn.ModuleList(Gate(4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for gate in self.gates:
            x, other = gate(x, scale=2.0)
            x = x + other
        return x


def gate_converter(g: Any, weights: Any, x: Any, scale: float = 1.0) -> Any:
    product = g.op.Add(g.op.MatMul(x, g.op.Transpose(weights["linear.weight"])), weights["linear.bias"])
    gate = g.op.Mul(g.op.Sigmoid(product), scale)
    return g.op.Add(g.op.Mul(x, gate), weights["shift"]), gate


def test_a_class_of_modules_is_translated_as_a_whole() -> None:
    seen: list[str] = []

    def converter(g: Any, weights: Any, *args: Any, **kwargs: Any) -> Any:
        seen.extend(weights)
        return gate_converter(g, weights, *args, **kwargs)

    model = Gated().eval()
    made = to_onnx(
        model, (torch.randn(2, 4),), dynamic_shapes=({0: "batch"},), dispatcher=Dispatcher({Gate: converter})
    )
    assert seen == ["linear.weight", "linear.bias", "shift"] * 3
    for rows in (1, 5):
        x = torch.randn(rows, 4)
        (got,) = made.run({made.inputs[0].name: x}).values()
        torch.testing.assert_close(torch.as_tensor(got), model(x), rtol=1e-4, atol=1e-5)
    assert Gate.forward.__qualname__ == "Gate.forward"


def test_a_class_of_modules_needs_the_guard() -> None:
    from exportguard import ExportOptions

    dispatcher = Dispatcher({Gate: gate_converter})
    with pytest.raises(InvalidArgumentError, match="needs the guard"):
        to_onnx(Gated(), (torch.zeros(2, 4),), dispatcher=dispatcher, options=ExportOptions(guard=None))


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.view(2, 2)[0].add_(1.0)
        return x + self.count


class Writes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x[:, :1].add_(1.0)
        return x * 2


class Around(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x * 1)


@pytest.mark.parametrize(("inner", "name"), [(Counts(), "count"), (Writes(), "argument 0")])
def test_a_module_that_writes_is_not_translated_as_a_whole(inner: torch.nn.Module, name: str) -> None:
    dispatcher = Dispatcher({type(inner): lambda g, weights, x: x})
    with pytest.raises(InvalidArgumentError, match=f"{type(inner).__name__} writes into {name}, so it cannot be"):
        to_onnx(Around(inner).eval(), (torch.zeros(2, 4),), dispatcher=dispatcher)


def test_a_module_that_writes_into_values_of_its_own_is_translated() -> None:
    class Own(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            y.mul_(2)
            return y

    dispatcher = Dispatcher({Own: lambda g, weights, x: g.op.Mul(g.op.Add(x, 1.0), 2.0)})
    made = to_onnx(Around(Own()), (torch.zeros(2, 4),), dispatcher=dispatcher)
    (got,) = made.run({made.inputs[0].name: torch.ones(2, 4)}).values()
    torch.testing.assert_close(torch.as_tensor(got), torch.full((2, 4), 4.0))


def test_a_class_of_modules_in_a_branch_of_the_program_is_told() -> None:
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = Writes()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: self.own(x * 1), lambda x: x * 3, (x,))  # type: ignore[no-any-return]

    dispatcher = Dispatcher({Writes: lambda g, weights, x: x})
    with pytest.raises(ExportError, match="translated as a whole is called in a body of"):
        to_onnx(Branches(), (torch.ones(2, 4),), dispatcher=dispatcher)
