"""Weights in 4 or 8 bits: the matrices that a written file multiplies by are quantized by blocks, one after the other.

Each block of a column has a scale of its own, with the bits that onnxruntime's own quantizers give (`MatMulNBits` of
onnxruntime 1.17 and later, 8 bits of 1.22 and later).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy
import torch

from exportguard import _core
from exportguard.arguments import require_choice, require_count, require_flags
from exportguard.errors import InvalidArgumentError
from exportguard.optional import OptionalModule

from .calibration import Ranges, ranges_of
from .weights import Array, Weights, WeightsInMemory, WeightsOnDisk, graphs_of, tensor_bytes

onnx: Any = OptionalModule("onnx")
logger = logging.getLogger(__name__)

Form = Literal["MatMulNBits", "DequantizeLinear", "MatMulInteger", "QDQ"]
_STEPS = 255  # of 8 bits
#: Those of onnxruntime's kernels (1.17 to 1.31), and what a thread has room for.
_LARGEST_BLOCK = {"MatMulNBits": 256, "DequantizeLinear": 65536}
_LEAST_OPSET = 21  # of DequantizeLinear by blocks, and of 4 bits

#: Values, scales and, unless symmetric, zero points.
Parts = tuple[Array, Array, Array | None]


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """`bits` of a weight, elements of a `block`, and the operators that the file has for it.

    A block is `symmetric` around zero, or has a zero point of its own.

    "MatMulNBits" is onnxruntime's, "DequantizeLinear" the standard's, "MatMulInteger" (8 bits, one scale a column)
    multiplies integers and quantizes the other side when it is run; with "QDQ" the other side has the scale that it
    needs for the examples of a call, which runtimes fuse to products of integers. `accuracy_level` is that of
    MatMulNBits: with 4 it may multiply in 8 bits, with 1 in floats alone.
    """

    bits: int = 4
    block: int = 32
    form: Form = "MatMulNBits"
    symmetric: bool = True
    accuracy_level: int = 4

    def __post_init__(self) -> None:
        """Refuses what no runtime has.

        Raises:
            InvalidArgumentError: naming the field.
        """
        require_count("bits", self.bits)
        require_count("block", self.block)
        require_count("accuracy_level", self.accuracy_level)
        require_choice("form", self.form, get_args(Form))
        require_flags(symmetric=self.symmetric)
        if self.bits not in (4, 8):
            raise InvalidArgumentError(f"bits must be 4 or 8, got {self.bits}")
        if self.block < 16 or self.block & (self.block - 1):
            raise InvalidArgumentError(f"block must be a power of two of at least 16, got {self.block}")
        if self.form in _LARGEST_BLOCK and self.block > _LARGEST_BLOCK[self.form]:
            raise InvalidArgumentError(
                f"block of {self.form} must be at most {_LARGEST_BLOCK[self.form]}, got {self.block}"
            )
        if self.accuracy_level not in range(5):
            raise InvalidArgumentError(f"accuracy_level must be between 0 and 4, got {self.accuracy_level}")
        if self.form in ("MatMulInteger", "QDQ") and (self.bits != 8 or not self.symmetric):
            raise InvalidArgumentError(
                f"{self.form} is of 8 bits and symmetric weights; got bits={self.bits}, symmetric={self.symmetric}"
            )


#: By the words of the command line.
QUANTIZATIONS: Mapping[str, Quantization] = {
    "int4": Quantization(bits=4),
    "int4-asymmetric": Quantization(bits=4, symmetric=False),
    "int8": Quantization(bits=8),
    "int4-onnx": Quantization(bits=4, form="DequantizeLinear"),
    "int8-onnx": Quantization(bits=8, form="DequantizeLinear"),
    "int8-dynamic": Quantization(bits=8, form="MatMulInteger"),
    "int8-static": Quantization(bits=8, form="QDQ"),
}


@dataclass(frozen=True, kw_only=True)
class QuantizationReport:
    """How many products by a constant of how many have quantized weights, and the bytes of all weights before and
    after."""

    quantized: int
    products: int
    bytes_before: int
    bytes_after: int


def require_possible(how: Quantization, opset: int, *, has_examples: bool = True) -> None:
    """Found out before a model is loaded.

    Raises:
        InvalidArgumentError: the form needs a newer opset, or examples.
    """
    if how.form == "DequantizeLinear" and opset < _LEAST_OPSET:
        raise InvalidArgumentError(
            f"DequantizeLinear by blocks is of opset {_LEAST_OPSET}, and the file has {opset}; pass --opset "
            f"{_LEAST_OPSET}, or another quantization"
        )
    if how.form == "QDQ" and not has_examples:
        raise InvalidArgumentError("QDQ takes the ranges of values from examples; pass some, or int8-dynamic")


def _opset_of(model: Any) -> int:
    opset: int = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    return opset


def quantize_file(
    file: Path, how: Quantization, calls: Sequence[Mapping[str, torch.Tensor]] = ()
) -> QuantizationReport:
    """Quantizes the weights of a file in place; its data file is written anew. `calls` has examples of its inputs by
    name, for "QDQ".

    Raises:
        InvalidArgumentError: the form needs a newer opset than the file's, or examples.
        PackageError: onnx is not installed.
    """
    model = onnx.load(str(file), load_external_data=False)
    ranges: Ranges = {}
    if how.form == "QDQ":
        require_possible(how, _opset_of(model), has_examples=len(calls) > 0)
        ranges = ranges_of(file, _multiplied(model.graph), calls)
    weights = WeightsOnDisk(file)
    report = quantize_model(model, how, weights, ranges)
    weights.finish(model)
    return report


def quantize_model(
    model: Any, how: Quantization, weights: Weights | None = None, ranges: Ranges = MappingProxyType({})
) -> QuantizationReport:
    """Quantizes the weights of a ModelProto in place; without `weights` it holds them itself. `ranges` are those of the
    values that are multiplied by them; "QDQ" leaves products without one as they are."""
    require_possible(how, _opset_of(model))
    return _Quantizer(model.graph, how, weights or WeightsInMemory(), ranges).run(model)


class _Quantizer:
    """Replaces products by a constant matrix, in the main graph and in the bodies of its nodes."""

    def __init__(self, graph: Any, how: Quantization, store: Weights, ranges: Ranges) -> None:
        self._graph, self._how, self._store, self._ranges = graph, how, store, ranges
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._added: set[str] = set()
        self._made: dict[str, list[str] | None] = {}
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
            replaced += self._replacement(node, visible) if _is_product(node) else [node]
        kept = _without_unused(replaced, {value.name for value in graph.output})
        del graph.node[:]
        graph.node.extend(kept)

    def _replacement(self, node: Any, visible: Mapping[str, Any]) -> list[Any]:
        """The nodes that stand for a product; itself where its second factor is no matrix of numbers."""
        name, turned = self._weight(node, visible)
        self._products += name in self._weights
        found = self._matrix(node, name, turned)
        if found is None or (self._how.form == "QDQ" and node.input[0] not in self._ranges):
            return [node]
        name, matrix = found
        bias = node.input[2] if len(node.input) > 2 else ""
        result = f"{node.output[0]}_product" if bias else node.output[0]
        nodes = self._product(node.input[0], name, matrix, result)
        if nodes is None:
            logger.warning("%s is not quantized: not all of its numbers are finite", name)
            return [node]
        self._replaced += 1
        if bias:
            nodes.append(onnx.helper.make_node("Add", [result, bias], [node.output[0]], name=f"{node.name}_bias"))
        for new in nodes:
            new.name = new.name or f"{node.name}_{new.op_type}_{new.output[0]}"
            new.metadata_props.extend(node.metadata_props)
        return nodes

    def _product(self, x: str, name: str, matrix: Array, result: str) -> list[Any] | None:
        """The product of `x` and a quantized matrix; None where not all of its numbers are finite."""
        if self._how.form in ("MatMulInteger", "QDQ"):
            write = self._integer if self._how.form == "MatMulInteger" else self._calibrated
            return write(x, name, matrix, result) if numpy.isfinite(matrix).all() else None
        weight = self._quantized(name, matrix)
        if weight is None:
            return None
        how, (rows, columns) = self._how, matrix.shape
        if how.form == "MatMulNBits":
            settings = {"K": rows, "N": columns, "bits": how.bits, "block_size": how.block}
            settings |= {"accuracy_level": how.accuracy_level} if how.accuracy_level else {}
            return [onnx.helper.make_node("MatMulNBits", [x, *weight], [result], domain="com.microsoft", **settings)]
        dense = f"{result}_weight"
        return [
            onnx.helper.make_node("DequantizeLinear", weight, [dense], axis=0, block_size=how.block),
            onnx.helper.make_node("MatMul", [x, dense], [result]),
        ]

    def _quantized(self, name: str, matrix: Array) -> list[str] | None:
        """The names of the values, the scales and the zero points of a matrix, which are made once."""
        if name not in self._made:
            parts = blocks(matrix, self._how)
            self._made[name] = None if parts is None else self._stored(name, matrix, parts)
        return self._made[name]

    def _stored(self, name: str, matrix: Array, parts: Parts) -> list[str]:
        how, (rows, columns), (values, scales, zero_points) = self._how, matrix.shape, parts
        count = math.ceil(rows / how.block)
        # The standard's operator has values and zero points of a type of their own, onnxruntime's bytes.
        is_standard = how.form == "DequantizeLinear"
        kind = _integer_type(how) if is_standard else onnx.TensorProto.UINT8
        shape = (rows, columns) if is_standard else (columns, count, how.block * how.bits // 8)
        each_block = (count, columns) if is_standard else None
        names = [
            self._add(f"{name}_q{how.bits}", values, shape, kind),
            self._add(f"{name}_scales", scales, each_block),
        ]
        if zero_points is not None:
            names.append(self._add(f"{name}_zero_points", zero_points, each_block, kind))
        return names

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

    def _integer(self, x: str, name: str, matrix: Array, result: str) -> list[Any]:
        values, scale, zeros = self._columns(name, matrix, numpy.dtype(numpy.float32))
        node, part = onnx.helper.make_node, f"{result}_"
        is_half = matrix.dtype == numpy.float16
        wide = f"{part}float" if is_half else x
        product = f"{part}float_product" if is_half else result
        nodes = [node("Cast", [x], [wide], to=onnx.TensorProto.FLOAT)] if is_half else []
        nodes += [
            node("DynamicQuantizeLinear", [wide], [f"{part}x", f"{part}x_scale", f"{part}x_zero"]),
            node("MatMulInteger", [f"{part}x", values, f"{part}x_zero", zeros], [f"{part}sums"]),
            node("Cast", [f"{part}sums"], [f"{part}sums_float"], to=onnx.TensorProto.FLOAT),
            node("Mul", [f"{part}x_scale", scale], [f"{part}scale"]),
            node("Mul", [f"{part}sums_float", f"{part}scale"], [product]),
        ]
        return nodes + ([node("Cast", [product], [result], to=onnx.TensorProto.FLOAT16)] if is_half else [])

    def _calibrated(self, x: str, name: str, matrix: Array, result: str) -> list[Any]:
        """Both sides in 8 bits, the other one with one scale for all of its numbers, that of the examples."""
        low, high = self._ranges[x]
        step = (high - low) / _STEPS or 1.0
        scale = self._add(f"{x}_scale", numpy.array(step, matrix.dtype))
        zero = self._add(f"{x}_zero", numpy.array(min(max(round(-low / step), 0), _STEPS), numpy.uint8))
        values, scales, zeros = self._columns(name, matrix, matrix.dtype)
        node, part = onnx.helper.make_node, f"{result}_"
        return [
            node("QuantizeLinear", [x, scale, zero], [f"{part}x"]),
            node("DequantizeLinear", [f"{part}x", scale, zero], [f"{part}x_near"]),
            node("DequantizeLinear", [values, scales, zeros], [f"{part}weight"], axis=1),
            node("MatMul", [f"{part}x_near", f"{part}weight"], [result]),
        ]

    def _columns(self, name: str, matrix: Array, dtype: Any) -> tuple[str, str, str]:
        """The names of the values, the scales and the zero points of a matrix whose columns have one scale each.

        The values have no sign, and 128 stands for zero: sums of two products of bytes with and without one overflow in
        onnxruntime's kernels where the processor has no VNNI.
        """
        most = numpy.abs(matrix.astype(numpy.float32)).max(axis=0)
        scales = numpy.where(most > 0, most / 127, 1).astype(numpy.float32)
        values = self._add(f"{name}_q8", (numpy.rint(matrix / scales) + 128).astype(numpy.uint8))
        zeros = self._add(f"{name}_zeros", numpy.full(len(scales), 128, numpy.uint8))
        return values, self._add(f"{name}_scales", scales.astype(dtype)), zeros

    def _add(self, name: str, array: Array, dims: tuple[int, ...] | None = None, kind: int | None = None) -> str:
        if name not in self._added:
            self._added.add(name)
            stored = onnx.helper.np_dtype_to_tensor_dtype(array.dtype) if kind is None else kind
            self._graph.initializer.append(self._store.tensor(name, stored, dims or array.shape, array))
        return name

    def _drop_unused_weights(self) -> None:
        used = {name for node in _nodes_below(self._graph) for name in node.input}
        used.update(_outputs_below(self._graph))
        kept = [tensor for tensor in self._graph.initializer if tensor.name in used]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)


def blocks(matrix: Array, how: Quantization) -> Parts | None:
    """Values, scales and zero points of (K, N), flat and packed as the operator of that form reads them; None where a
    number is not finite.

    A block is one of a column. The number of largest magnitude becomes the end that has one step more, 0 for values
    from 0 to 2**bits - 1; a last block that is not full is filled up.

    >>> values, scales, _ = blocks(numpy.array([[-8.0], [4.0]], numpy.float32), Quantization(block=16))
    >>> values[:2].tolist(), scales.tolist()
    ([192, 0], [1.0])
    """
    return _core.quantize_blocks(
        matrix,
        bits=how.bits,
        block=how.block,
        symmetric=how.symmetric,
        layout="rows" if how.form == "DequantizeLinear" else "columns",
        threads=torch.get_num_threads(),
    )


def _integer_type(how: Quantization) -> int:
    kinds = onnx.TensorProto
    signed, unsigned = (kinds.INT4, kinds.UINT4) if how.bits == 4 else (kinds.INT8, kinds.UINT8)
    kind: int = signed if how.symmetric else unsigned
    return kind


def _is_product(node: Any) -> bool:
    return node.op_type in ("MatMul", "Gemm") and node.domain in ("", "ai.onnx")


def _multiplied(graph: Any) -> list[str]:
    """The first factors of the products of a graph, each once."""
    return list(dict.fromkeys(node.input[0] for node in graph.node if _is_product(node)))


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
