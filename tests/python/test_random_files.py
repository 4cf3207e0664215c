"""Random ONNX files keep their outputs and their names; `python tests/python/random_files.py` runs more."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import exportguard
from file_steps import random_file
from random_files import session_of, verdict_of

FILES = 160
CHUNK = 20


@pytest.mark.parametrize("first", range(0, FILES, CHUNK))
def test_random_files_keep_their_outputs(first: int) -> None:
    verdicts = {seed: verdict_of(random_file(seed), seed) for seed in range(first, first + CHUNK)}
    assert {seed: verdict for seed, verdict in verdicts.items() if verdict.is_wrong} == {}
    assert sum(verdict.kind == "right" for verdict in verdicts.values()) > CHUNK / 2


def model_of(
    nodes: list[onnx.NodeProto], outputs: list[str], defaults: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """From x of four numbers, with inputs that have a default."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", *(defaults or {}))]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [numpy_helper.from_array(value, name) for name, value in (defaults or {}).items()]
    graph = helper.make_graph(nodes, "g", given, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def optimized(model: onnx.ModelProto) -> bytes:
    loaded = exportguard.load(model.SerializeToString())
    loaded.optimize()
    return loaded.to_bytes()


def test_an_output_that_is_an_input_keeps_its_name() -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], ["y", "x", "d"], {"d": np.ones((1, 4), np.float32)})
    session = session_of(optimized(model))
    assert [value.name for value in session.get_outputs()] == ["y", "x", "d"]
    x = np.float32([[1, 2, 3, 4]])
    given = session.run(["d", "x"], {"x": x, "d": 2 * x})
    np.testing.assert_array_equal(given, [2 * x, x])
    np.testing.assert_array_equal(session.run(["d"], {"x": x})[0], np.ones((1, 4), np.float32))


def test_an_input_with_a_default_that_nothing_reads_stays() -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], ["y"], {"d": np.ones((1, 4), np.float32)})
    session = session_of(optimized(model))
    assert [value.name for value in session.get_overridable_initializers()] == ["d"]


def test_a_branch_may_give_one_value_twice() -> None:
    inner = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)] * 2
    graphs = [helper.make_graph([helper.make_node(op, ["x"], ["z"])], op, [], inner) for op in ("Neg", "Exp")]
    nodes = [
        helper.make_node("ReduceMin", ["x"], ["low"], keepdims=0),
        helper.make_node("Cast", ["low"], ["p"], to=TensorProto.BOOL),
        helper.make_node("If", ["p"], ["a", "b"], then_branch=graphs[0], else_branch=graphs[1]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    session = session_of(optimized(model_of(nodes, ["a", "y"])))
    x = np.float32([[1, 2, 3, 4]])
    np.testing.assert_array_equal(session.run(None, {"x": x}), [-x, np.zeros_like(x)])


def test_sizes_of_which_one_operator_could_be_given_no_input_are_not_believed() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Custom", ["x"], ["b"], domain="com.example"),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Shape", ["b"], ["s"]),
        helper.make_node("Expand", ["a", "s"], ["y"]),
    ]
    model = model_of(nodes, ["y", "c"])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    model.graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 5]))
    loaded = exportguard.load(model.SerializeToString())
    loaded.optimize()
    assert "Shape(%b)" in loaded.text()
