"""Weights in few bits: the bits of onnxruntime's own quantizer, and files that compute nearly the same."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
import torch
from onnxruntime.capi import _pybind_state as ort_state
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from exportguard import InvalidArgumentError, _core, to_onnx
from exportguard.models import build_model
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship.decoder import decoder_to_onnx, plain_cache
from exportguard.ship.quantization import (
    QUANTIZATIONS,
    Quantization,
    blocks,
    quantize_file,
    quantize_model,
)


class Net(torch.nn.Module):
    """A plain product, one with a bias, a table that is also multiplied by, and a product of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(70, 96)
        self.first = torch.nn.Linear(96, 64, bias=False)
        self.second = torch.nn.Linear(64, 96)

    def forward(self, ids: torch.Tensor) -> Any:
        x = self.second(torch.relu(self.first(self.table(ids))))
        return x @ self.table.weight.T, x @ x.mT


WITHOUT_EXAMPLES = [name for name, how in QUANTIZATIONS.items() if how.form != "QDQ"]
IDS = torch.arange(20).reshape(2, 10)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    to_onnx(Net().eval(), (IDS,), dynamic_shapes=({0: "b", 1: "n"},), output=path)
    return path


def outputs(file: Path) -> list[torch.Tensor]:
    return OrtSession(file).run({"ids": IDS})


@pytest.mark.parametrize("name", QUANTIZATIONS)
def test_a_quantized_file_computes_nearly_the_same(name: str, written: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(written.read_bytes())
    report = quantize_file(file, QUANTIZATIONS[name], [{"ids": IDS}])
    assert (report.quantized, report.products) == (3, 3)  # the fourth has no constant
    assert report.bytes_after < report.bytes_before
    onnx.checker.check_model(str(file))
    for got, expected in zip(outputs(file), outputs(written), strict=True):
        error = (got - expected).norm() / expected.norm()
        assert 0 < error < (0.03 if QUANTIZATIONS[name].bits == 8 else 0.25)


class Wide(torch.nn.Module):
    """Enough weights to lie beside the file before and after, one of which is not multiplied by."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(600, 512)
        self.layer = torch.nn.Linear(512, 4096)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.table(ids))


@pytest.mark.parametrize("name", WITHOUT_EXAMPLES)
@pytest.mark.parametrize("net", [Net, Wide], ids=["small", "large"])
def test_weights_beside_the_file_become_what_they_become_in_memory(
    net: type[torch.nn.Module], name: str, tmp_path: Path
) -> None:
    file = to_onnx(net().eval(), (IDS,), dynamic_shapes=({0: "b", 1: "n"},)).save(tmp_path / "m.onnx", "always")
    in_memory = onnx.load(str(file))
    expected = quantize_model(in_memory, QUANTIZATIONS[name])
    assert quantize_file(file, QUANTIZATIONS[name]) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == (["m.onnx"] if net is Net else ["m.onnx", "m.onnx.data"])
    onnx.checker.check_model(str(file))
    on_disk = onnx.load(str(file))
    for ours, theirs in zip(on_disk.graph.initializer, in_memory.graph.initializer, strict=True):
        assert (ours.name, ours.data_type, ours.dims) == (theirs.name, theirs.data_type, theirs.dims)
        assert numpy.array_equal(onnx.numpy_helper.to_array(ours), onnx.numpy_helper.to_array(theirs))


def theirs(matrix: Any, how: Quantization) -> tuple[Any, Any, Any]:
    """What onnxruntime's own kernels make of a matrix: values, scales and zero points, flat."""
    rows, columns = matrix.shape
    count = -(-rows // how.block)
    if how.form == "DequantizeLinear":
        values = numpy.zeros((rows * columns + 1) // 2, numpy.uint8)
        scales = numpy.zeros((count, columns), matrix.dtype)
        zero_points = numpy.zeros((count * columns + 1) // 2, numpy.uint8)
        ort_state.quantize_qdq_matmul_4bits(
            values, matrix, scales, zero_points, how.block, columns, rows, how.symmetric
        )
    else:
        values = numpy.zeros((columns, count, how.block * how.bits // 8), numpy.uint8)
        scales = numpy.zeros((columns, count), matrix.dtype)
        zero_points = numpy.zeros((columns, -(-count * how.bits // 8)), numpy.uint8)
        padded = numpy.pad(matrix, ((0, count * how.block - rows), (0, 0)))
        kernel = ort_state.quantize_matmul_4bits if how.bits == 4 else ort_state.quantize_matmul_8bits
        kernel(values, padded, scales, zero_points, how.block, columns, rows, how.symmetric)
    return values.reshape(-1), scales.reshape(-1), zero_points.reshape(-1)


def hard_matrix(random: numpy.random.Generator, rows: int, columns: int, dtype: Any) -> Any:
    """Random numbers, whole columns of zeros, of one sign, of one number, of halves, and of very different sizes."""
    matrix = random.standard_normal((rows, columns)) * 10.0 ** random.integers(-4, 4, columns)
    kinds = random.integers(0, 8, columns)
    matrix[:, kinds == 1] = 0
    matrix[:, kinds == 2] = numpy.abs(matrix[:, kinds == 2])
    matrix[:, kinds == 3] = -numpy.abs(matrix[:, kinds == 3])
    matrix[:, kinds == 4] = -3
    matrix[:, kinds == 5] = random.integers(-16, 17, (rows, (kinds == 5).sum())) / 2
    matrix[random.random((rows, columns)) < 0.05] = 0
    return matrix.astype(dtype)


FORMS = {
    "int4": Quantization(bits=4),
    "int4 asymmetric": Quantization(bits=4, symmetric=False),
    "int8": Quantization(bits=8),
    "int8 asymmetric": Quantization(bits=8, symmetric=False),
    "int4 of the standard": Quantization(bits=4, form="DequantizeLinear"),
    "int4 of the standard, asymmetric": Quantization(bits=4, form="DequantizeLinear", symmetric=False),
}


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16])
@pytest.mark.parametrize("form", FORMS)
def test_the_bits_are_those_of_onnxruntimes_kernels(form: str, dtype: Any) -> None:
    """Of any shape and block, from memory in any order."""
    random = numpy.random.default_rng(zlib.crc32(form.encode()))
    for _ in range(60):
        how = dataclasses.replace(FORMS[form], block=int(random.choice([16, 32, 64, 128, 256])))
        rows, columns = int(random.integers(1, 3 * how.block)), int(random.integers(1, 50))
        matrix = hard_matrix(random, rows, columns, dtype)
        in_memory = matrix if random.random() < 0.5 else numpy.ascontiguousarray(matrix.T).T
        ours = blocks(in_memory, how)
        assert ours is not None
        expected = theirs(matrix, how)
        if how.form == "MatMulNBits" and how.bits == 4 and rows % 2:
            # Theirs has in half of a byte what lies behind the matrix in memory, which stands for nothing.
            last = (rows // how.block * how.block + rows % how.block) // 2
            expected[0].reshape(columns, -1)[:, last] &= 15
            ours[0].reshape(columns, -1)[:, last] &= 15
        if how.form == "DequantizeLinear" and -(-rows // how.block) * columns % 2:  # the same of zero points
            expected[2][-1] &= 15
            if ours[2] is not None:
                ours[2][-1] &= 15
        for got, other, part in zip(ours, expected, ("values", "scales", "zero points"), strict=True):
            if got is not None:
                assert numpy.array_equal(got, other), f"{part} of {how} of {rows} x {columns}"


def test_threads_write_the_same_bits() -> None:
    matrix = numpy.random.default_rng(0).standard_normal((700, 1501)).astype(numpy.float32)
    for layout in ("columns", "rows"):
        alone, together = (
            _core.quantize_blocks(matrix, layout=layout, symmetric=False, threads=threads) for threads in (1, 5)
        )
        assert alone is not None
        assert together is not None
        for one, other in zip(alone, together, strict=True):
            assert numpy.array_equal(one, other)


@pytest.mark.parametrize("name", WITHOUT_EXAMPLES)
@pytest.mark.parametrize("number", [numpy.nan, numpy.inf, -numpy.inf])
def test_a_weight_with_a_number_that_is_none_stays_as_it_is(
    name: str, number: float, caplog: pytest.LogCaptureFixture
) -> None:
    layer = torch.nn.Linear(40, 24)
    with torch.no_grad():
        layer.weight[3, 33] = number
    model = onnx.load_from_string(to_onnx(layer.eval(), (torch.rand(2, 40),)).to_bytes())
    report = quantize_model(model, QUANTIZATIONS[name])
    assert (report.quantized, report.products) == (0, 1)
    assert "not all of its numbers are finite" in caplog.text


def test_onnxruntimes_own_quantizers_find_every_product_with_a_weight(tmp_path: Path) -> None:
    """A decoder's: 7 in each of two layers, and the head."""
    case = build_model("llama")
    written = tmp_path / "model.onnx"
    decoder_to_onnx(case.model, plain_cache(case.model), opset=None).save(written)
    nbits = MatMulNBitsQuantizer(onnx.load(str(written)), bits=4, block_size=32, is_symmetric=True)
    nbits.process()
    assert [node.op_type for node in nbits.model.model.graph.node].count("MatMulNBits") == 15
    quantize_dynamic(str(written), str(tmp_path / "dynamic.onnx"), weight_type=QuantType.QInt8)
    kinds = [node.op_type for node in onnx.load(str(tmp_path / "dynamic.onnx")).graph.node]
    assert kinds.count("MatMulInteger") == 15


@pytest.mark.parametrize("name", ["int8-dynamic", "int8-static"])
def test_sums_of_large_bytes_do_not_overflow(name: str, tmp_path: Path) -> None:
    """Two products of bytes, one of them with a sign, are more than kernels without VNNI have room for."""
    model, x = torch.nn.Linear(64, 32, bias=False).eval(), torch.linspace(0.9, 1, 256).reshape(4, 64)
    torch.nn.init.ones_(model.weight)
    file = tmp_path / "model.onnx"
    to_onnx(model, (x,), input_names=["x"]).save(file)
    report = quantize_file(file, QUANTIZATIONS[name], [{"x": x}])
    assert report.quantized == 1
    (got,) = OrtSession(file).run({"x": x})
    torch.testing.assert_close(got, model(x).detach(), rtol=0.01, atol=0)


def test_a_weight_that_is_looked_up_too_stays_beside_its_quantized_form(written: Path) -> None:
    model = onnx.load(str(written))
    quantize_model(model, Quantization(bits=4))
    tables = [one for one in model.graph.initializer if list(one.dims) == [70, 96]]
    assert [one.data_type for one in tables] == [onnx.TensorProto.FLOAT]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"bits": 3}, "bits must be 4 or 8"),
        ({"block": 24}, "a power of two"),
        ({"block": 512}, "block of MatMulNBits must be at most 256, got 512"),
        ({"block": 2**40, "form": "DequantizeLinear"}, "must be at most 65536"),
        ({"form": "MatMulInteger"}, "8 bits"),
        ({"accuracy_level": 5}, "between 0 and 4"),
    ],
)
def test_what_no_runtime_has_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Quantization(**fields)


def test_an_opset_without_blocks_is_refused() -> None:
    model = onnx.load_from_string(to_onnx(Net().eval(), (IDS,), opset=18).to_bytes())
    with pytest.raises(InvalidArgumentError, match="pass --opset 21"):
        quantize_model(model, QUANTIZATIONS["int4-onnx"])


def test_calibrated_products_are_as_near_as_those_of_onnxruntimes_static_quantizer(
    written: Path, tmp_path: Path
) -> None:
    """Both with the ranges of the same examples, weights by columns."""
    examples = [{"ids": torch.randint(0, 70, (2, 10))} for _ in range(4)]
    file = tmp_path / "model.onnx"
    file.write_bytes(written.read_bytes())
    report = quantize_file(file, QUANTIZATIONS["int8-static"], examples)
    assert (report.quantized, report.products) == (3, 3)
    onnx.checker.check_model(str(file))
    kinds = [node.op_type for node in onnx.load(str(file)).graph.node]
    assert (kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear")) == (3, 6)

    theirs = tmp_path / "theirs.onnx"
    feeds = iter([{"ids": example["ids"].numpy()} for example in examples])
    reader = type("Reader", (CalibrationDataReader,), {"get_next": lambda self: next(feeds, None)})()
    quantize_static(str(written), str(theirs), reader, per_channel=True, op_types_to_quantize=["MatMul", "Gemm"])
    for got, other, expected in zip(outputs(file), outputs(theirs), outputs(written), strict=True):
        error = (got - expected).norm() / expected.norm()
        assert 0 < error <= 1.2 * (other - expected).norm() / expected.norm() + 0.002


def test_calibration_without_examples_is_refused(written: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="takes the ranges of values from examples"):
        quantize_file(written, QUANTIZATIONS["int8-static"])


def test_values_without_a_range_are_not_quantized(tmp_path: Path) -> None:
    """An example in which a value is infinite says nothing of it."""
    file = to_onnx(torch.nn.Linear(8, 4).eval(), (torch.rand(3, 8),)).save(tmp_path / "m.onnx")
    report = quantize_file(file, QUANTIZATIONS["int8-static"], [{"input": torch.full((3, 8), torch.inf)}])
    assert (report.quantized, report.products) == (0, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]


@pytest.mark.parametrize("form", ["MatMulNBits", "DequantizeLinear"])
def test_the_largest_block_of_each_form_runs(form: Any, tmp_path: Path) -> None:
    how = Quantization(block=256 if form == "MatMulNBits" else 65536, form=form)
    torch.manual_seed(0)
    layer = torch.nn.Linear(300, 8).eval()
    file = to_onnx(layer, (torch.rand(3, 300),)).save(tmp_path / "m.onnx")
    assert quantize_file(file, how).quantized == 1
    x = torch.rand(3, 300)
    (got,) = OrtSession(file).run({"input": x})
    torch.testing.assert_close(got, layer(x).detach(), atol=0.2, rtol=0)
