"""Sizes that files of others have: names that mean nothing, numbers that no tensor has, slices that reach far."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import exportguard

Shape = list[str | int | None]
LEAST, MOST = -(2**63), 2**63 - 1


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Shape],
    output: tuple[int, Shape],
    constants: dict[str, list[int]] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    """A model of floats, whose last node has the output `y`."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", *output)],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions or [], ir_version=10)


def run(content: bytes, **inputs: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def optimized(given: onnx.ModelProto) -> bytes:
    loaded = exportguard.load(given.SerializeToString())
    loaded.optimize()
    return loaded.to_bytes()


def zeros(size: int) -> np.ndarray:
    return np.zeros(size, np.float32)


NAMES = ["past-seq", "past+seq", "past* seq", "past/seq", "max(past,seq)", "seq+0", "batch size", "3", "_unknown.0"]


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_size_is_no_arithmetic_and_stays(name: str) -> None:
    inputs: dict[str, Shape] = {"x": [name], "past": ["past"], "seq": ["seq"], "none": [None], "other": [None]}
    of_sizes = [helper.make_node("Shape", [given], [f"of_{given}"]) for given in inputs]
    feeds = {given: zeros(size) for given, size in zip(inputs, (7, 5, 4, 2, 3), strict=True)}
    for op in ("Sub", "Add", "Mul", "Div", "Max"):
        nodes = [
            *of_sizes,
            helper.make_node(op, ["of_past", "of_seq"], ["of_both"]),
            helper.make_node("Sub", ["of_both", "of_x"], ["difference"]),
            helper.make_node("Sub", ["of_none", "of_other"], ["of_unnamed"]),
            helper.make_node("Concat", ["difference", "of_unnamed", "of_x"], ["y"], axis=0),
        ]
        given = model(nodes, inputs, (TensorProto.INT64, [3]))
        made = optimized(given)
        assert run(made, **feeds).tolist() == run(given.SerializeToString(), **feeds).tolist()
        assert [*onnx.load_from_string(made).graph.input] == [*given.graph.input]


def test_a_sum_as_it_is_written_is_one() -> None:
    inputs: dict[str, Shape] = {"x": ["past + seq"], "past": ["past"], "seq": ["seq"]}
    of_sizes = [helper.make_node("Shape", [given], [f"of_{given}"]) for given in inputs]
    nodes = [
        *of_sizes,
        helper.make_node("Add", ["of_past", "of_seq"], ["both"]),
        helper.make_node("Sub", ["both", "of_x"], ["y"]),
    ]
    made = onnx.load_from_string(optimized(model(nodes, inputs, (TensorProto.INT64, [1]))))
    assert not {"Add", "Sub"} & {node.op_type for node in made.graph.node}


def slices() -> list[tuple[int, int, int]]:
    positions = (LEAST, LEAST + 1, -9, -5, -4, -1, 0, 1, 3, 4, 9, MOST - 1, MOST)
    steps = (LEAST, LEAST + 1, -(2**31), -3, -1, 1, 2, 2**31, MOST)
    return [*itertools.product(positions, positions, steps)]


def test_slices_have_the_elements_and_sizes_of_the_runtime(request: pytest.FixtureRequest) -> None:
    """An end beyond the largest int32 with a negative step is left out: the runtime takes it for the other end."""
    x = np.arange(4, dtype=np.float32)
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(x))
    names = ["starts", "ends", "axes", "steps"]
    others = []
    for start, end, step in slices()[:: 1 if request.config.getoption("--every") else 7]:
        if step < 0 and end >= 2**31 - 1:
            continue
        constants = {"starts": [start], "ends": [end], "axes": [0], "steps": [step]}
        nodes = [
            constant,
            helper.make_node("Slice", ["x", *names], ["of_input"]),
            helper.make_node("Slice", ["k", *names], ["of_constant"]),
            helper.make_node("Shape", ["of_input"], ["size"]),
            helper.make_node("Cast", ["size"], ["as_float"], to=TensorProto.FLOAT),
            helper.make_node("Concat", ["as_float", "of_input", "of_constant"], ["y"], axis=0),
        ]
        for size in (4, "n"):
            given = model(nodes, {"x": [size]}, (TensorProto.FLOAT, [None]), constants)
            if run(optimized(given), x=x).tolist() != run(given.SerializeToString(), x=x).tolist():
                others.append((start, end, step, size))
    assert not others


def test_a_call_keeps_the_outputs_that_it_leaves_out() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Neg", ["a"], ["s"])]
    two = helper.make_function("local", "two", ["a"], ["r", "s"], nodes, [helper.make_opsetid("", 23)])
    call = helper.make_node("two", ["x"], ["y", ""], domain="local")
    given = model([call], {"x": ["n"]}, (TensorProto.FLOAT, ["n"]), functions=[two])
    for content in (exportguard.load(given.SerializeToString()).to_bytes(), optimized(given)):
        onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
        assert run(content, x=zeros(2)).tolist() == [0, 0]


def test_what_a_file_says_of_itself_stays() -> None:
    given = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n"]}, (TensorProto.FLOAT, ["n"]))
    given.doc_string, given.domain, given.model_version, given.graph.doc_string = "a model", "org.example", 7, "a graph"
    made = onnx.load_from_string(optimized(given))
    assert (made.doc_string, made.domain, made.model_version, made.graph.doc_string) == (
        "a model",
        "org.example",
        7,
        "a graph",
    )


def test_the_same_bytes_are_read_as_the_same() -> None:
    given = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [None, None]}, (TensorProto.FLOAT, [None, None]))
    first, second = (exportguard.load(given.SerializeToString()).to_bytes() for _ in range(2))
    assert first == second


def test_sizes_beyond_all_numbers_are_left_to_the_runtime() -> None:
    squared = [helper.make_node("Mul", [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(70)]
    nodes = [helper.make_node("Shape", ["x"], ["v0"]), *squared, helper.make_node("Identity", ["v70"], ["y"])]
    assert run(optimized(model(nodes, {"x": ["n"]}, (TensorProto.INT64, [1]))), x=zeros(1)).tolist() == [1]
    joined = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(64)]
    nodes = [helper.make_node("Relu", ["x"], ["v0"]), *joined, helper.make_node("Identity", ["v64"], ["y"])]
    assert run(optimized(model(nodes, {"x": ["n"]}, (TensorProto.FLOAT, [None]))), x=zeros(0)).tolist() == []


def swapped(name: str, result: str) -> onnx.NodeProto:
    return helper.make_node("Transpose", [name], [result], perm=[0, 2, 1, 3])


#: Files that no runtime takes, of nodes that patterns look at.
BROKEN = {
    "an axis from the end in a permutation": model(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
            helper.make_node("Transpose", ["t"], ["y"], perm=[0, -1]),
        ],
        {"x": [2, 3]},
        (TensorProto.FLOAT, [None, None]),
    ),
    "an axis that is not there": model(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 7]),
            helper.make_node("Transpose", ["t"], ["y"], perm=[1, 0]),
        ],
        {"x": ["n", "m"]},
        (TensorProto.FLOAT, [None, None]),
    ),
    "a pad that cuts off more than there is": model(
        [
            helper.make_node("Pad", ["x", "pads"], ["t"]),
            helper.make_node("Slice", ["t", "zero", "two", "one"], ["y"]),
        ],
        {"x": [2, 4]},
        (TensorProto.FLOAT, [None, None]),
        {"pads": [0, -9, 0, 0], "zero": [0], "one": [1], "two": [2]},
    ),
    "several open sizes": model(
        [
            helper.make_node("Reshape", ["x", "to"], ["t"]),
            helper.make_node("Slice", ["t", "zero", "two", "three"], ["y"]),
        ],
        {"x": ["b", "s"]},
        (TensorProto.FLOAT, [None] * 4),
        {"to": [-1, -1, -1, -1], "zero": [0], "two": [2], "three": [3]},
    ),
    "values of three axes in an attention of four": model(
        [
            swapped("q", "a"),
            swapped("k", "b"),
            swapped("v", "c"),
            helper.make_node("Attention", ["a", "b", "c"], ["o"]),
            swapped("o", "y"),
        ],
        {"q": ["b", "s", 2, 8], "k": ["b", "t", 2, 8], "v": ["b", "t", 2]},
        (TensorProto.FLOAT, [None] * 4),
    ),
    "a weight that does not fit": model(
        [
            helper.make_node("Reshape", ["x", "rows"], ["t"]),
            helper.make_node("Gemm", ["t", "w"], ["g"], transB=1),
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Slice", ["s", "zero", "two"], ["h"]),
            helper.make_node("Concat", ["h", "four"], ["j"], axis=0),
            helper.make_node("Reshape", ["g", "j"], ["y"]),
        ],
        {"x": ["b", 3, 4], "w": [1, 16]},
        (TensorProto.FLOAT, [None] * 3),
        {"rows": [-1, 4], "zero": [0], "two": [2], "four": [4]},
    ),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("given", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_or_left_to_the_runtime(given: onnx.ModelProto) -> None:
    """Each of them was the end of the process."""
    loaded = exportguard.load(given.SerializeToString())
    with contextlib.suppress(exportguard.ExportGuardError):
        loaded.optimize()
    assert loaded.to_bytes()
