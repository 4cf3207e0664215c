"""`exportguard optimize`: files of any producer, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import exportguard
from exportguard.command_line import main


def save(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], **options: object) -> Path:
    """A file with one input x and one output y, without types in between, as many producers write them."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, **options)
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location=f"{path.name}.data")
    return path


def projections(path: Path) -> Path:
    """Two products of one value, with weights that lie the other way round, and their sum."""
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal((6, 8), np.float32) for name in ("q", "k")}
    nodes = [
        helper.make_node("Transpose", ["q"], ["qt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "qt"], ["a"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "kt"], ["b"]),
        helper.make_node("Identity", ["b"], ["c"]),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    return save(path, nodes, weights)


def output_of(path: Path) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((2, 3, 8), np.float32)
    result: np.ndarray = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    return result


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


@pytest.mark.parametrize("said", [[1, 4], ["N", 4]], ids=["stale", "right"])
def test_a_size_that_the_file_says_is_not_believed_where_the_input_tells_it(said: list[int | str]) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Reshape", ["n", "to"], ["r"]),
        helper.make_node("Exp", ["r"], ["y"]),
    ]
    kind = TensorProto.FLOAT
    info = helper.make_tensor_value_info
    to = helper.make_tensor("to", TensorProto.INT64, [2], [1, -1])
    between = [info("n", kind, said), info("r", kind, [1, 4] if said == [1, 4] else None)]
    graph = helper.make_graph(
        nodes, "g", [info("x", kind, ["N", 4])], [info("y", kind, [1, "M"])], [to], value_info=between
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    loaded = exportguard.load(model.SerializeToString())
    loaded.optimize()
    got = loaded.run({"x": torch.zeros(2, 4)})
    assert next(iter(got.values())).shape == (1, 8)


def test_a_file_without_types_is_optimized(tmp_path: Path) -> None:
    source, target = projections(tmp_path / "in.onnx"), tmp_path / "out.onnx"
    assert main(["optimize", str(source), "-o", str(target)]) == 0
    assert operators(target) == ["MatMul", "MatMul", "Add"]
    np.testing.assert_allclose(output_of(target), output_of(source), rtol=1e-5)


def test_for_onnxruntime_weights_are_packed(tmp_path: Path) -> None:
    source, target = projections(tmp_path / "in.onnx"), tmp_path / "out.onnx"
    assert main(["optimize", str(source), "-o", str(target), "--for", "onnxruntime"]) == 0
    assert operators(target) == ["MatMul", "Split", "Add"]
    np.testing.assert_allclose(output_of(target), output_of(source), rtol=1e-5)


def test_a_file_may_take_its_own_place(tmp_path: Path) -> None:
    source = projections(tmp_path / "model.onnx")
    expected = output_of(source)
    assert main(["optimize", str(source), "-o", str(source)]) == 0
    assert operators(source) == ["MatMul", "MatMul", "Add"]
    np.testing.assert_allclose(output_of(source), expected, rtol=1e-5)


def test_local_functions_are_written_out_if_asked(tmp_path: Path) -> None:
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 23)])
    nodes = [helper.make_node("Twice", ["x"], ["y"], domain="own")]
    source, target = save(tmp_path / "in.onnx", nodes, {}, functions=[twice]), tmp_path / "out.onnx"
    assert main(["optimize", str(source), "-o", str(target)]) == 0
    assert operators(target) == ["Twice"]
    assert main(["optimize", str(source), "-o", str(target), "--inline"]) == 0
    assert operators(target) == ["Add"]
    assert not onnx.load(target).functions
    np.testing.assert_array_equal(output_of(target), output_of(source))


def test_the_report_tells_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = projections(tmp_path / "in.onnx")
    assert main(["optimize", str(source), "-o", str(tmp_path / "out.onnx"), "--report"]) == 0
    printed = capsys.readouterr().out
    assert "transposed_weight: 2 times" in printed
    assert "6 nodes before, 3 after" in printed


def test_what_stood_there_stays_if_the_file_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = projections(tmp_path / "in.onnx"), tmp_path / "out.onnx"
    target.write_bytes(b"before")
    source.write_bytes(source.read_bytes()[:-40])
    assert main(["optimize", str(source), "-o", str(target)]) == 1
    assert "are they cut short?" in capsys.readouterr().err
    assert target.read_bytes() == b"before"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.onnx", "in.onnx.data", "out.onnx"]


def test_data_that_is_cut_short_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = projections(tmp_path / "in.onnx")
    data = tmp_path / "in.onnx.data"
    data.write_bytes(data.read_bytes()[:10])
    assert main(["optimize", str(source), "-o", str(tmp_path / "out.onnx")]) == 1
    assert str(source) in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(["nowhere.onnx", "-o", "out.onnx"], 1, "nowhere.onnx", id="no file"),
        pytest.param(["in.onnx", "-o", "no/out.onnx"], 1, "the folder", id="no folder"),
        pytest.param(["in.onnx"], 2, "Missing option", id="no output"),
        pytest.param(["in.onnx", "-o", "out.onnx", "--for", "cuda"], 2, "is not one of", id="unknown runtime"),
    ],
)
def test_a_wrong_call_is_one_clear_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    text: str,
) -> None:
    projections(tmp_path / "in.onnx")
    monkeypatch.chdir(tmp_path)
    assert main(["optimize", *arguments]) == code
    assert text in capsys.readouterr().err
