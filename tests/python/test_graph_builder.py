"""Models built by hand: types as they are built, calls held against ONNX's definitions, results run in onnxruntime."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from exportguard import GraphBuilder, GraphError, InvalidArgumentError, OnnxModel

ROOT = Path(__file__).resolve().parents[2]


def run(model: OnnxModel, **feeds: Any) -> list[np.ndarray[Any, Any]]:
    model.check(full=True)
    session = onnxruntime.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, {name: np.asarray(feed) for name, feed in feeds.items()})]


def test_shapes_and_dtypes_are_known_as_they_are_built() -> None:
    g = GraphBuilder(20)
    x = g.input("x", torch.float32, ["batch", "seq", 64])
    heads = g.op.Reshape(g.op.MatMul(x, torch.ones(64, 32)), [0, 0, 4, -1])
    assert (heads.dtype, heads.shape) == ("f32", ["batch", "seq", 4, 8])
    mask = g.op.Less(g.op.ReduceSum(heads, [-1], keepdims=0), 0)
    assert (mask.dtype, mask.shape) == ("bool", ["batch", "seq", 4])
    assert g.elements(g.op.Shape(x)) == ["batch", "seq", 64]
    assert g.op.Cast(x, to="float16").dtype == g.op.Cast(x, to=torch.float16).dtype == "f16"


def test_a_model_runs() -> None:
    g = GraphBuilder(20)
    x = g.input("x", "f32", ["n", 3])
    weight = g.constant(torch.arange(12.0).reshape(3, 4), name="weight")
    g.output(g.op.Add(g.op.MatMul(x, weight), 1), "y")
    (y,) = run(g.to_model(), x=np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(y, np.array([[13, 16, 19, 22]] * 2, np.float32))


def test_a_number_takes_the_dtype_that_it_meets() -> None:
    g = GraphBuilder(20)
    half = g.input("half", "f16", [2])
    integer = g.input("integer", "i32", [2])
    assert g.op.Add(half, 1).dtype == "f16"
    assert g.op.Mul(2, integer).dtype == "i32"
    assert g.op.Pow(half, 2).dtype == "f16"
    assert g.op.Where(g.op.Equal(integer, 0), 1.5, half).dtype == "f16"


def test_several_results_are_a_tuple() -> None:
    g = GraphBuilder(20)
    x = g.input("x", "f32", ["n", 6])
    values, indices = g.op.TopK(x, [2])
    assert (values.type, indices.type) == ("f32[n,2]", "i64[n,2]")
    assert [part.shape for part in g.op.Split(x, axis=1, num_outputs=3)] == [["n", 2]] * 3
    _, mask = g.op.Dropout(x, outputs=2)
    assert mask.dtype == "bool"


def test_a_branch_reads_what_is_around_it() -> None:
    g = GraphBuilder(20)
    x = g.input("x", "f32", ["n"])
    flag = g.input("flag", "bool", [])
    with g.subgraph("then") as on_true:
        on_true.output(on_true.op.Mul(x, 2))
    with g.subgraph("else") as on_false:
        on_false.output(on_false.op.Neg(x))
    y = g.op.If(flag, then_branch=on_true, else_branch=on_false)
    assert y.type == "f32[n]"
    g.output(y, "y")
    model = g.to_model()
    assert run(model, x=np.float32([1, 2]), flag=True)[0].tolist() == [2, 4]
    assert run(model, x=np.float32([1, 2]), flag=False)[0].tolist() == [-1, -2]


def test_a_loop_has_the_types_of_its_body() -> None:
    g = GraphBuilder(20)
    x = g.input("x", "f32", ["n"])
    with g.subgraph() as body:
        body.input("i", "i64", [])
        go = body.input("go", "bool", [])
        state = body.input("state", "f32", ["n"])
        body.output(body.op.Identity(go))
        body.output(body.op.Add(state, 1))
        body.output(body.op.Mul(state, 2))
    last, all_ = g.op.Loop(3, True, x, body=body)
    assert last.shape == ["n"]
    assert len(all_.shape or []) == 2
    g.output(last, "last")
    g.output(all_, "all")
    last_value, every = run(g.to_model(), x=np.float32([0, 10]))
    assert last_value.tolist() == [3, 13]
    assert every.tolist() == [[0, 20], [2, 22], [4, 24]]


def test_a_scan_cuts_and_collects() -> None:
    g = GraphBuilder(20)
    x = g.input("x", "f32", ["steps", "n"])
    start = g.op.ConstantOfShape(g.op.Shape(x, start=1), value=torch.zeros(1))
    with g.subgraph() as body:
        total = body.input("total", "f32", ["n"])
        row = body.input("row", "f32", ["n"])
        added = body.op.Add(total, row)
        body.output(added)
        body.output(body.op.Identity(added))
    total, running = g.op.Scan(start, x, body=body, num_scan_inputs=1)
    assert (total.shape, running.shape) == (["n"], ["steps", "n"])
    g.output(running, "y")
    (y,) = run(g.to_model(), x=np.float32([[1, 2], [3, 4]]))
    assert y.tolist() == [[1, 2], [4, 6]]


def test_a_function_keeps_its_constants_and_is_inferred_for_each_call() -> None:
    g = GraphBuilder(20)
    with g.function("own", "Shifted") as f:
        x = f.input("x")
        f.output(f.op.Add(x, f.constant(torch.tensor([1.0, 2.0]))))
    own = g.domain("own")
    a = own.Shifted(g.input("a", "f32", ["n", 2]))
    b = own.Shifted(g.input("b", "f32", [2]))
    assert (a.shape, b.shape) == (["n", 2], [2])
    g.output(a, "y")
    g.output(b, "z")
    y, z = run(g.to_model(), a=np.zeros((1, 2), np.float32), b=np.float32([10, 10]))
    assert y.tolist() == [[1, 2]]
    assert z.tolist() == [11, 12]


def test_another_domain_is_imported() -> None:
    g = GraphBuilder(20)
    a = g.input("a", "f32", ["n", 4])
    b = g.input("b", "f32", [3, 4])
    y = g.domain("com.microsoft").FusedMatMul(a, b, transB=1)
    assert y.shape == ["n", 3]
    g.output(y, "y")
    (value,) = run_unchecked(g.to_model(), a=np.ones((2, 4), np.float32), b=np.ones((3, 4), np.float32))
    assert value.tolist() == [[4, 4, 4]] * 2


def run_unchecked(model: OnnxModel, **feeds: Any) -> list[Any]:
    """onnx's checker does not know the operators of other domains."""
    return list(onnxruntime.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"]).run(None, feeds))


def test_building_goes_on_behind_a_model() -> None:
    g = GraphBuilder(20)
    x = g.input("x", "f32", [2])
    g.output(g.op.Relu(x), "y")
    first = g.to_model()
    g.output(g.op.Neg(x), "z")
    assert [value.name for value in first.outputs] == ["y"]
    assert [value.name for value in g.to_model().outputs] == ["y", "z"]


def wrong_calls() -> dict[str, tuple[Any, str]]:
    return {
        "an operator that is not there": (
            lambda g, x, n: g.op.MatMull(x, x),
            "ONNX has no operator MatMull in opset 20; did you mean MatMul",
        ),
        "an operator of a later opset": (
            lambda g, x, n: g.op.RMSNormalization(x, x),
            "ONNX has no operator RMSNormalization in opset 20",
        ),
        "an unknown attribute": (
            lambda g, x, n: g.op.Softmax(x, axes=1),
            "Softmax: there is no attribute axes; did you mean axis?",
        ),
        "an attribute of another kind": (
            lambda g, x, n: g.op.Softmax(x, axis="last"),
            "Softmax: attribute axis must be an integer, got 'last'",
        ),
        "a list for a number": (
            lambda g, x, n: g.op.Softmax(x, axis=[1]),
            "Softmax: attribute axis must be an integer, got [1]",
        ),
        "a missing attribute": (
            lambda g, x, n: g.op.Concat(x, x),
            "Concat: attribute axis must be given, an integer",
        ),
        "a missing operand": (
            lambda g, x, n: g.op.MatMul(x),
            "MatMul: input B is missing; it takes at least 2 inputs",
        ),
        "an operand left out that must be there": (
            lambda g, x, n: g.op.MatMul(x, None),
            "MatMul: input B must be given, got None",
        ),
        "too many operands": (
            lambda g, x, n: g.op.Relu(x, x),
            "Relu: takes at most 1 inputs (X)",
        ),
        "two dtypes": (
            lambda g, x, n: g.op.Add(x, n),
            "Add: inputs A and B must have one dtype, got f32 and i64",
        ),
        "a dtype that is not taken": (
            lambda g, x, n: g.op.Erf(g.op.Cast(x, to="bool")),
            "Erf: input input must be one of bf16, f16, f32, f64, got bool",
        ),
        "an object": (lambda g, x, n: g.op.Relu(object()), "Relu: an operand must be a value, a tensor"),
        "too many results": (
            lambda g, x, n: g.op.Relu(x, outputs=2),
            "Relu: outputs must be between 1 and 1, got 2",
        ),
        "shapes that cannot be": (
            lambda g, x, n: g.op.MatMul(x, x),
            "MatMul: the inner sizes must be equal, got 3 and 2",
        ),
        "an axis out of range": (
            lambda g, x, n: g.op.Concat(x, x, axis=2),
            "Concat: axis must be between -2 and 1 for rank 2, got 2",
        ),
        "a value of another model": (
            lambda g, x, n: GraphBuilder(20).op.Relu(x),
            "Relu: an operand is of another model",
        ),
        "an input without a dtype": (lambda g, x, n: g.input("y"), "input 'y' needs a dtype"),
        "an input twice": (lambda g, x, n: g.input("x", "f32", [2]), "there is an input 'x' already"),
        "an unknown dtype": (lambda g, x, n: g.input("y", "float31", [2]), "dtype must be a torch.dtype or one of"),
        "a kind of input": (lambda g, x, n: g.input("y", "f32", kind="map"), "kind must be 'tensor', 'sequence'"),
        "a model without outputs": (lambda g, x, n: g.to_model(), "the model has no output"),
        "a body that is nowhere": (lambda g, x, n: unused_body(g), "the body 'lost' is part of no node"),
        "a function in ONNX's domain": (lambda g, x, n: g.function("", "F").__enter__(), "needs a domain of its own"),
    }


def unused_body(g: GraphBuilder) -> None:
    with g.subgraph("lost") as body:
        body.output(body.constant(1.0))
    g.to_model()


@pytest.mark.parametrize("name", wrong_calls())
def test_a_wrong_call_says_what_is_wrong(name: str) -> None:
    call, message = wrong_calls()[name]
    g = GraphBuilder(20)
    x = g.input("x", "f32", [2, 3])
    n = g.input("n", "i64", [2, 3])
    with pytest.raises((InvalidArgumentError, GraphError), match=re.escape(message)):
        call(g, x, n)


def test_names_of_operators_complete() -> None:
    assert {"MatMul", "Loop", "Gelu"} <= set(dir(GraphBuilder(20).op))
    assert "Gelu" not in dir(GraphBuilder(19).op)


def test_the_example_runs() -> None:
    example = ROOT / "examples" / "python" / "build_a_model.py"
    result = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "start: f32 ['batch', 'n', 1]" in result.stdout
