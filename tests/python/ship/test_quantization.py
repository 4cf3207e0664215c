"""Weights in few bits: the bits of onnxruntime's own quantizer, and files that compute nearly the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from exportguard import InvalidArgumentError, to_onnx
from exportguard.models import build_model
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship.decoder import decoder_to_onnx, plain_cache
from exportguard.ship.quantization import (
    QUANTIZATIONS,
    Quantization,
    blocks,
    packed_bits,
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
    report = quantize_file(file, QUANTIZATIONS[name])
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


@pytest.mark.parametrize("name", QUANTIZATIONS)
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


def elements(packed: Any, bits: int, rows: int) -> Any:
    """The values of each column, (N, rows)."""
    flat = packed.reshape(len(packed), -1)
    return (flat if bits == 8 else numpy.stack([flat & 15, flat >> 4], axis=-1).reshape(len(flat), -1))[:, :rows]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", [(64, 48), (80, 33), (7, 5)])
def test_the_bits_are_those_of_onnxruntimes_quantizer(bits: int, shape: tuple[int, int]) -> None:
    random = numpy.random.default_rng(bits)
    matrix = random.standard_normal(shape).astype(numpy.float32)
    matrix[:, 0] = 0
    matrix[: shape[0] // 2, 1] = -3
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [value("x", 1, ["n", shape[0]])],
        [value("y", 1, ["n", shape[1]])],
        [onnx.numpy_helper.from_array(matrix, "w")],
    )
    theirs = MatMulNBitsQuantizer(onnx.helper.make_model(graph), bits=bits, block_size=32, is_symmetric=True)
    theirs.process()
    expected = [onnx.numpy_helper.to_array(one) for one in theirs.model.model.graph.initializer]
    quantized, scales = blocks(matrix, bits, 32)
    packed = packed_bits(quantized, bits, len(matrix))
    assert numpy.array_equal(elements(packed, bits, len(matrix)), elements(expected[0], bits, len(matrix)))
    if len(matrix) * bits % 8 == 0:  # else theirs has what lies behind the matrix in half of a byte
        assert numpy.array_equal(packed, expected[0])
    assert numpy.array_equal(scales.reshape(-1), expected[1].reshape(-1))


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


def test_a_weight_that_is_looked_up_too_stays_beside_its_quantized_form(written: Path) -> None:
    model = onnx.load(str(written))
    quantize_model(model, Quantization(bits=4))
    tables = [one for one in model.graph.initializer if list(one.dims) == [70, 96]]
    assert [one.data_type for one in tables] == [onnx.TensorProto.FLOAT]


@pytest.mark.parametrize(
    ("fields", "text"),
    [({"bits": 3}, "bits must be 4 or 8"), ({"block": 24}, "a power of two"), ({"form": "MatMulInteger"}, "8 bits")],
)
def test_what_no_runtime_has_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Quantization(**fields)


def test_an_opset_without_blocks_is_refused() -> None:
    model = onnx.load_from_string(to_onnx(Net().eval(), (IDS,), opset=18).to_bytes())
    with pytest.raises(InvalidArgumentError, match="pass --opset 21"):
        quantize_model(model, QUANTIZATIONS["int4-onnx"])
