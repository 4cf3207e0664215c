"""Files that are saved from Python, read by onnx and run by onnxruntime."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import onnx
import onnxruntime
import pytest
import torch

import exportguard
from exportguard import _core
from exportguard.errors import ExportGuardError, FileError, GraphError, InvalidArgumentError, ParseError

MATMUL = """
opset 22
graph(%x: f32[batch,2], %w: f32[2,3] = {1, 2, 3, 4, 5, 6}):
  %m: f32[batch,3] = MatMul(%x, %w)
  %y: f32[batch,3] = Relu(%m)
  return (%y as logits)
"""

BRANCHES = """
opset 22
graph(%p: bool[], %x: f32[n]):
  %h: f32[n] = Neg(%x)
  %y: f32[n] = If(%p) {then_branch=graph():
      %t: f32[n] = Relu(%h)
      return (%t), else_branch=graph():
      return (%h)}
  return (%y, %h as negative)
"""

UNKNOWN_SHAPE = """
opset 22
graph(%x: f32[n,2]):
  %a = Relu(%x)
  %y: f32[n,2] = Neg(%a)
  return (%y)
"""


def session(model: str | bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("external_data", ["auto", "always", "never"])
def test_a_saved_file_passes_the_checker_and_runs(tmp_path: Path, external_data: str) -> None:
    path = tmp_path / "model.onnx"
    _core.save(_core.Model.parse(MATMUL), path, external_data=external_data, min_external_bytes=1)
    assert sorted(file.name for file in tmp_path.iterdir()) == (
        ["model.onnx", "model.onnx.data"] if external_data == "always" else ["model.onnx"]
    )
    onnx.checker.check_model(str(path), full_check=True)
    _core.check_file(path, full=True)
    for rows in (1, 5, 0):
        x = numpy.arange(2 * rows, dtype=numpy.float32).reshape(rows, 2)
        (y,) = session(str(path)).run(["logits"], {"x": x})
        numpy.testing.assert_array_equal(y, x @ numpy.array([[1, 2, 3], [4, 5, 6]], numpy.float32))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_on_a_gpu_are_written_a_piece_at_a_time(tmp_path: Path, dtype: torch.dtype) -> None:
    """Transposed there, through one pinned buffer: the host never has them whole."""
    module = torch.nn.Linear(4096, 8192, bias=False, device="cuda", dtype=dtype)
    x = torch.rand(2, 4096, device="cuda", dtype=dtype)
    model = exportguard.to_onnx(module, (x,))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.save(tmp_path / "gpu.onnx")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < module.weight.nbytes // 2
    exportguard.to_onnx(module.cpu(), (x.cpu(),)).save(tmp_path / "cpu.onnx")
    assert (tmp_path / "gpu.onnx.data").read_bytes() == (tmp_path / "cpu.onnx.data").read_bytes()


def test_branches_see_an_outer_value_that_is_an_output_as_well() -> None:
    x = numpy.array([1, -2], numpy.float32)
    running = session(_core.to_bytes(_core.Model.parse(BRANCHES)))
    for p, expected in ((True, [0, 2]), (False, [-1, 2])):
        y, negative = running.run(None, {"p": numpy.array(p), "x": x})
        numpy.testing.assert_array_equal(y, expected)
        numpy.testing.assert_array_equal(negative, -x)


def test_inputs_and_outputs_are_described_with_their_own_names() -> None:
    model = _core.Model.parse(MATMUL)
    assert model.inputs == [("x", "f32[batch,2]", "f32", ["batch", 2])]
    assert model.outputs == [("logits", "f32[batch,3]", "f32", ["batch", 3])]
    assert model.node_count == 2
    assert model.opsets == {"": 22}


@pytest.mark.parametrize(("opset", "ir_version"), [(18, 10), (22, 10), (23, 11), (24, 12), (25, 13)])
def test_every_supported_opset_is_read_by_onnxruntime(opset: int, ir_version: int) -> None:
    model = _core.Model.parse(MATMUL)
    model.opsets = {"": opset}
    data = _core.to_bytes(model)
    assert onnx.load_from_string(data).ir_version == ir_version
    session(data)


def test_shape_inference_fills_in_what_is_not_known() -> None:
    model = _core.Model.parse(
        "opset 22\ngraph(%x: f32[n,2]):\n  %a = Relu(%x)\n  %y: f32[n,2] = Neg(%a)\n  return (%y)"
    )
    (value,) = onnx.load_from_string(_core.infer_shapes(_core.to_bytes(model))).graph.value_info
    assert [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim] == ["n", 2]


def test_the_errors_of_cpp_are_those_of_the_package(tmp_path: Path) -> None:
    model = _core.Model.parse(MATMUL)
    with pytest.raises(FileError, match="No such file or directory; create the folder first") as missing:
        _core.save(model, tmp_path / "no" / "model.onnx")
    assert isinstance(missing.value, ExportGuardError)
    assert isinstance(missing.value, OSError)
    with pytest.raises(InvalidArgumentError, match="must be 'auto', 'always' or 'never', got 'some'"):
        _core.save(model, tmp_path / "model.onnx", external_data="some")
    with pytest.raises(GraphError, match=r"torch-level nodes are left.*aten\.relu\.default"):
        _core.to_bytes(_core.Model.parse("opset 22\ngraph(%x: f32[2]):\n  %y = aten.relu.default(%x)\n  return (%y)"))
    assert list(tmp_path.iterdir()) == []


def test_a_parse_error_tells_line_and_column() -> None:
    with pytest.raises(ParseError, match="line 2") as error:
        _core.Model.parse("graph(%x: f32[2]):\n  return (%z)")
    assert error.value.line == 2
    assert error.value.column > 1


def test_models_can_be_saved_from_several_threads(tmp_path: Path) -> None:
    """Each looks for what dead saves left while the others are between closing their file and naming it."""
    model = _core.Model.parse(MATMUL)
    paths = [tmp_path / f"{i}.onnx" for i in range(400)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda path: _core.save(model, path), paths))
    assert {path.read_bytes() for path in paths} == {_core.to_bytes(model)}
    assert sorted(tmp_path.iterdir()) == sorted(paths)
