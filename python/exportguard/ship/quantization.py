"""Weights in 4 or 8 bits: the matrices that a written file multiplies by are quantized by blocks, one after the other.

Symmetric, each block of a column with a scale of its own, with the bits that onnxruntime's own quantizer gives
(`MatMulNBits` of onnxruntime 1.17 and later, 8 bits of 1.22 and later).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy

from exportguard.errors import InvalidArgumentError
from exportguard.optional import OptionalModule

from .weights import Array, Weights, WeightsInMemory, WeightsOnDisk, graphs_of, tensor_bytes

onnx: Any = OptionalModule("onnx")

Form = Literal["MatMulNBits", "DequantizeLinear", "MatMulInteger"]
_LEAST_OPSET = 21  # of DequantizeLinear by blocks, and of 4 bits
_CHUNK = 1 << 18  # elements that are worked on at a time, so that they stay in the cache


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """`bits` of a weight, elements of a `block`, and the operators that the file has for it.

    "MatMulNBits" is onnxruntime's, "DequantizeLinear" the standard's, "MatMulInteger" (8 bits, one scale a column)
    multiplies integers and quantizes the other side when it is run.
    """

    bits: int = 4
    block: int = 32
    form: Form = "MatMulNBits"

    def __post_init__(self) -> None:
        """Refuses what no runtime has.

        Raises:
            InvalidArgumentError: naming the field.
        """
        if self.bits not in (4, 8):
            raise InvalidArgumentError(f"bits must be 4 or 8, got {self.bits}")
        if self.block < 16 or self.block & (self.block - 1):
            raise InvalidArgumentError(f"block must be a power of two of at least 16, got {self.block}")
        if self.form == "MatMulInteger" and self.bits != 8:
            raise InvalidArgumentError(f"MatMulInteger multiplies 8 bits; got bits={self.bits}")


#: By the words of the command line.
QUANTIZATIONS: Mapping[str, Quantization] = {
    "int4": Quantization(bits=4),
    "int8": Quantization(bits=8),
    "int4-onnx": Quantization(bits=4, form="DequantizeLinear"),
    "int8-onnx": Quantization(bits=8, form="DequantizeLinear"),
    "int8-dynamic": Quantization(bits=8, form="MatMulInteger"),
}


@dataclass(frozen=True, kw_only=True)
class QuantizationReport:
    """How many products by a constant of how many have quantized weights, and the bytes of all weights before and
    after."""

    quantized: int
    products: int
    bytes_before: int
    bytes_after: int


def quantize_file(file: Path, how: Quantization) -> QuantizationReport:
    """Quantizes the weights of a file in place; its data file is written anew.

    Raises:
        InvalidArgumentError: the form needs a newer opset than the file's.
        PackageError: onnx is not installed.
    """
    model = onnx.load(str(file), load_external_data=False)
    weights = WeightsOnDisk(file)
    report = quantize_model(model, how, weights)
    weights.finish(model)
    return report


def quantize_model(model: Any, how: Quantization, weights: Weights | None = None) -> QuantizationReport:
    """Quantizes the weights of a ModelProto in place; without `weights` it holds them itself."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if how.form == "DequantizeLinear" and opset < _LEAST_OPSET:
        raise InvalidArgumentError(
            f"DequantizeLinear by blocks is of opset {_LEAST_OPSET}, and the file has {opset}; pass --opset "
            f"{_LEAST_OPSET}, or another quantization"
        )
    return _Quantizer(model.graph, how, weights or WeightsInMemory()).run(model)


class _Quantizer:
    """Replaces products by a constant matrix, in the main graph and in the bodies of its nodes."""

    def __init__(self, graph: Any, how: Quantization, store: Weights) -> None:
        self._graph, self._how, self._store = graph, how, store
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._added: set[str] = set()
        self._products = self._replaced = 0

    def run(self, model: Any) -> QuantizationReport:
        before = sum(tensor_bytes(tensor) for tensor in self._graph.initializer)
        self._replace_in(self._graph, {})
        self._drop_unused_weights()
        if self._replaced and self._how.form == "MatMulNBits":
            _import(model, "com.microsoft", 1)
        after = sum(tensor_bytes(tensor) for tensor in self._graph.initializer)
        return QuantizationReport(
            quantized=self._replaced, products=self._products, bytes_before=before, bytes_after=after
        )

    def _replace_in(self, graph: Any, around: Mapping[str, Any]) -> None:
        """`around` has the nodes that the graph can read from outside, by the names of their outputs."""
        visible = {**around, **{name: node for node in graph.node for name in node.output}}
        for node in graph.node:
            for attribute in node.attribute:
                for inner in graphs_of(attribute):
                    self._replace_in(inner, visible)

        replaced: list[Any] = []
        for node in graph.node:
            is_product = node.op_type in ("MatMul", "Gemm") and node.domain in ("", "ai.onnx")
            replaced += self._replacement(node, visible) if is_product else [node]
        kept = _without_unused(replaced, {value.name for value in graph.output})
        del graph.node[:]
        graph.node.extend(kept)

    def _replacement(self, node: Any, visible: Mapping[str, Any]) -> list[Any]:
        """The nodes that stand for a product; itself where its second factor is no matrix of numbers."""
        name, turned = self._weight(node, visible)
        self._products += name in self._weights
        found = self._matrix(node, name, turned)
        if found is None:
            return [node]
        self._replaced += 1
        name, matrix = found
        product = {"MatMulNBits": self._by_blocks, "DequantizeLinear": self._standard, "MatMulInteger": self._integer}
        bias = node.input[2] if len(node.input) > 2 else ""
        result = f"{node.output[0]}_product" if bias else node.output[0]
        nodes = product[self._how.form](node.input[0], name, matrix, result)
        if bias:
            nodes.append(onnx.helper.make_node("Add", [result, bias], [node.output[0]], name=f"{node.name}_bias"))
        for new in nodes:
            new.name = new.name or f"{node.name}_{new.op_type}_{new.output[0]}"
            new.metadata_props.extend(node.metadata_props)
        return nodes

    def _weight(self, node: Any, visible: Mapping[str, Any]) -> tuple[str, bool]:
        """The name of the second factor, and whether it is used transposed."""
        attributes = _attributes(node)
        name, turned = node.input[1], bool(attributes.get("transB", 0))
        source = visible.get(name)
        if source is not None and source.op_type == "Transpose":
            return source.input[0], not turned
        return name, turned

    def _matrix(self, node: object, name: str, turned: bool) -> tuple[str, Array] | None:
        """The constant factor as (K, N), under a name that is the same for the same numbers."""
        attributes, weight = _attributes(node), self._weights.get(name)
        if attributes.get("transA", 0) or {attributes.get("alpha", 1.0), attributes.get("beta", 1.0)} != {1.0}:
            return None
        if weight is None or len(weight.dims) != 2:
            return None
        if weight.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16) or 0 in weight.dims:
            return None
        array = self._store.array(weight)
        return f"{name}{'_T' if turned else ''}", array.T if turned else array

    def _by_blocks(self, x: str, name: str, matrix: Array, result: str) -> list[Any]:
        rows, columns = matrix.shape
        quantized, scales = blocks(matrix, self._how.bits, self._how.block)
        packed = packed_bits(quantized, self._how.bits, rows)
        inputs = [
            x,
            self._add(f"{name}_q{self._how.bits}", packed),
            self._add(f"{name}_scales", scales.reshape(-1).astype(matrix.dtype)),
        ]
        settings = {"K": rows, "N": columns, "bits": self._how.bits, "block_size": self._how.block}
        return [onnx.helper.make_node("MatMulNBits", inputs, [result], domain="com.microsoft", **settings)]

    def _standard(self, x: str, name: str, matrix: Array, result: str) -> list[Any]:
        rows, columns = matrix.shape
        quantized, scales = blocks(matrix, self._how.bits, self._how.block)
        zero = 1 << (self._how.bits - 1)
        signed = (quantized.reshape(columns, -1)[:, :rows].astype(numpy.int16) - zero).astype(numpy.int8).T
        values = self._add_integers(f"{name}_q{self._how.bits}", signed)
        scale = self._add(f"{name}_scales", numpy.ascontiguousarray(scales.T).astype(matrix.dtype))
        dense = f"{result}_weight"
        return [
            onnx.helper.make_node("DequantizeLinear", [values, scale], [dense], axis=0, block_size=self._how.block),
            onnx.helper.make_node("MatMul", [x, dense], [result]),
        ]

    def _integer(self, x: str, name: str, matrix: Array, result: str) -> list[Any]:
        most = numpy.abs(matrix.astype(numpy.float32)).max(axis=0)
        scales = numpy.where(most > 0, most / 127, 1).astype(numpy.float32)
        values = self._add(f"{name}_q8", numpy.rint(matrix / scales).astype(numpy.int8))
        scale = self._add(f"{name}_scales", scales)
        node, part = onnx.helper.make_node, f"{result}_"
        is_half = matrix.dtype == numpy.float16
        wide = f"{part}float" if is_half else x
        product = f"{part}float_product" if is_half else result
        nodes = [node("Cast", [x], [wide], to=onnx.TensorProto.FLOAT)] if is_half else []
        nodes += [
            node("DynamicQuantizeLinear", [wide], [f"{part}x", f"{part}x_scale", f"{part}x_zero"]),
            node("MatMulInteger", [f"{part}x", values, f"{part}x_zero"], [f"{part}sums"]),
            node("Cast", [f"{part}sums"], [f"{part}sums_float"], to=onnx.TensorProto.FLOAT),
            node("Mul", [f"{part}x_scale", scale], [f"{part}scale"]),
            node("Mul", [f"{part}sums_float", f"{part}scale"], [product]),
        ]
        return nodes + ([node("Cast", [product], [result], to=onnx.TensorProto.FLOAT16)] if is_half else [])

    def _add(self, name: str, array: Array) -> str:
        if name not in self._added:
            self._added.add(name)
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            self._graph.initializer.append(self._store.tensor(name, kind, array.shape, array))
        return name

    def _add_integers(self, name: str, signed: Array) -> str:
        if self._how.bits == 8:
            return self._add(name, signed)
        if name not in self._added:
            self._added.add(name)
            flat = signed.reshape(-1).view(numpy.uint8) & 15
            flat = numpy.append(flat, numpy.zeros(len(flat) % 2, numpy.uint8))
            packed = flat[0::2] | flat[1::2] << 4
            self._graph.initializer.append(self._store.tensor(name, onnx.TensorProto.INT4, signed.shape, packed))
        return name

    def _drop_unused_weights(self) -> None:
        used = {name for node in _nodes_below(self._graph) for name in node.input}
        used.update(_outputs_below(self._graph))
        kept = [tensor for tensor in self._graph.initializer if tensor.name in used]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)


def blocks(matrix: Array, bits: int, block: int) -> tuple[Array, Array]:
    """Quantizes (K, N) by blocks of a column: values of (N, blocks, block) from 0 to 2**bits - 1, scales (N, blocks).

    The number of largest magnitude of a block becomes 0, the end that has one step more; 2**(bits - 1) is zero. A last
    block that is not full is filled with zeros.

    >>> values, scales = blocks(numpy.array([[-8.0], [4.0]], numpy.float32), 4, 16)
    >>> values[0, 0, :3].tolist(), scales.tolist()
    ([0, 12, 8], [[1.0]])
    """
    rows, columns = matrix.shape
    count = math.ceil(rows / block)
    quantized = numpy.empty((columns, count, block), numpy.uint8)
    scales = numpy.empty((columns, count), numpy.float32)
    step = max(1, _CHUNK // max(1, count * block))
    for start in range(0, columns, step):
        padded = numpy.zeros((min(step, columns - start), count * block), numpy.float32)
        padded[:, :rows] = matrix.T[start : start + step]
        _quantize(padded.reshape(-1, count, block), bits, quantized[start : start + step], scales[start : start + step])
    return quantized, scales


def _quantize(parts: Array, bits: int, quantized: Array, scales: Array) -> None:
    """Writes the values and scales of blocks, (n, blocks, block), whose memory is used up."""
    low, high = parts.min(axis=2), parts.max(axis=2)
    zero = numpy.float32(1 << (bits - 1))
    numpy.divide(numpy.where(numpy.abs(high) > numpy.abs(low), high, low), -zero, out=scales)
    with numpy.errstate(divide="ignore"):
        inverse = numpy.where(scales != 0, numpy.float32(1) / scales, numpy.float32(0)).astype(numpy.float32)
    parts *= inverse[..., None]
    parts += zero
    whole = numpy.floor(parts)
    parts -= whole
    whole += parts >= 0.5  # halves go up, not to the even number
    numpy.clip(whole, 0, 2 * zero - 1, out=whole)
    quantized[...] = whole


def packed_bits(values: Array, bits: int, rows: int) -> Array:
    """The blocks with two values of 4 bits to a byte, the first one in its lower half; 8 bits as they are.

    Bytes behind the last of `rows` are 0, as onnxruntime leaves them.
    """
    packed: Array = values.copy() if bits == 8 else values[..., 0::2] | values[..., 1::2] << 4
    packed.reshape(len(packed), -1)[:, math.ceil(rows * bits / 8) :] = 0
    return packed


def _attributes(node: Any) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def _nodes_below(graph: Any) -> Iterator[Any]:
    """Every node, those of graphs inside of others too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in graphs_of(attribute):
                yield from _nodes_below(inner)


def _outputs_below(graph: Any) -> Iterator[str]:
    """What the graph and those inside of it return, which may be values of the graphs around them."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in graphs_of(attribute):
                yield from _outputs_below(inner)


def _without_unused(nodes: list[Any], outputs: set[str]) -> list[Any]:
    """Without what nobody reads any more, the Transpose of a weight for example."""
    used = set(outputs)
    kept = []
    for node in reversed(nodes):
        if used.intersection(node.output):
            used.update(node.input)
            for attribute in node.attribute:
                for inner in graphs_of(attribute):
                    used.update(name for below in _nodes_below(inner) for name in below.input)
                    used.update(_outputs_below(inner))
            kept.append(node)
    return kept[::-1]


def _import(model: Any, domain: str, version: int) -> None:
    if all(entry.domain != domain for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))
