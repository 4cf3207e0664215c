"""Nodes that their operator does not allow are refused where a file is read: a runtime refuses them as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from exportguard import load
from exportguard.command_line import main
from exportguard.errors import FileError
from exportguard.runners.onnxruntime import OrtSession

VERSION = 20


def node(op: str, inputs: str = "x", outputs: str = "y", **attributes: object) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name="odd", **attributes)


def _graph(nodes: Sequence[NodeProto], name: str, inputs: Sequence[str] = ("x",)) -> onnx.GraphProto:
    values = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, 3, 8, 8]) for value in inputs]
    weight = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_graph(nodes, name, values, [output], [weight] if inputs else [])


def plain(odd: NodeProto) -> onnx.ModelProto:
    return helper.make_model(_graph([odd], "main"), opset_imports=[helper.make_opsetid("", VERSION)], ir_version=9)


def nested(odd: NodeProto) -> onnx.ModelProto:
    flag = helper.make_node("Constant", [], ["p"], value=helper.make_tensor("p", TensorProto.BOOL, [], [True]))
    bodies = [_graph([one], "body", ()) for one in (odd, helper.make_node("Neg", ["x"], ["y"]))]
    branch = helper.make_node("If", ["p"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    graph = _graph([flag, branch], "main")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", VERSION)], ir_version=9)


def in_a_function(odd: NodeProto) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", VERSION)]
    function = helper.make_function("own", "Odd", ["x", "w"], ["y"], [odd], imports)
    call = helper.make_node("Odd", ["x", "w"], ["y"], domain="own")
    imports = [*imports, helper.make_opsetid("own", 1)]
    return helper.make_model(_graph([call], "main"), functions=[function], opset_imports=imports, ir_version=9)


ODD = {
    "another attribute": (node("Relu", foo=1), "foo"),
    "a misspelled one": (node("Conv", "x w", stride=[2, 2]), "stride"),
    "one of an older operator": (node("ReduceMean", axes=[1]), "axes"),
    "of another type": (node("Softmax", axis=1.5), "axis"),
    "none that is needed": (node("Cast"), "to"),
    "too many operands": (node("Relu", "x x"), "input"),
    "too few": (node("Unsqueeze"), "input"),
    "too many results": (node("Relu", "x", "y z"), "output"),
}
PLACES = {"plain": plain, "nested": nested, "in a function": in_a_function}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(("odd", "word"), ODD.values(), ids=ODD)
@pytest.mark.thinned(1)
def test_an_odd_node_is_named(odd: NodeProto, word: str, place: Callable[[NodeProto], onnx.ModelProto]) -> None:
    content = place(odd).SerializeToString()
    with pytest.raises(FileError, match=rf"node odd \({odd.op_type}\): .*{word}"):
        load(content)


@pytest.mark.parametrize(("odd", "word"), ODD.values(), ids=ODD)
def test_onnxruntime_refuses_it_as_well(odd: NodeProto, word: str) -> None:
    with pytest.raises(Exception, match=r"(?i)invalid"):
        OrtSession(plain(odd).SerializeToString())


FINE = [
    node("Relu"), node("Conv", "x w", strides=[2, 2]), node("Softmax", axis=-1), node("Dropout"), node("Identity"),
    node("Split", "x", "y", num_outputs=1), helper.make_node("Own", ["x"], ["y"], domain="com.own", foo=1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FINE)))
@pytest.mark.thinned(1)
def test_what_is_allowed_or_of_others_is_read(number: int) -> None:
    model = plain(FINE[number])
    model.opset_import.append(helper.make_opsetid("com.own", 1))
    assert load(model.SerializeToString()).node_count == 1


def test_the_command_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(plain(node("Conv", "x w", stride=[2, 2])).SerializeToString())
    assert main(["optimize", str(path), "-o", str(tmp_path / "out.onnx")]) != 0
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "node odd (Conv)" in line
    assert not (tmp_path / "out.onnx").exists()
