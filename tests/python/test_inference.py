"""Types and shapes that are inferred hold for what operators give.

onnx's own node tests have operands and results: each is built with the sizes of its operands, and again with symbols in
their place. Whatever is inferred must agree with the results, for sizes that the test has.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.backend.test.case.node import collect_testcases
from onnx.defs import SchemaError, get_all_schemas_with_history, get_schema

from exportguard import GraphBuilder, _core
from exportguard.errors import ExportGuardError
from exportguard.onnx_types import SHORT_NAMES

OPSETS = range(18, 26)


def operators_in_force() -> set[str]:
    versions: dict[str, list[tuple[int, bool]]] = {}
    for schema in get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, []).append((schema.since_version, schema.deprecated))
    return {
        name
        for name, known in versions.items()
        for opset in OPSETS
        for since, deprecated in [max((row for row in known if row[0] <= opset), default=(0, True))]
        if not deprecated
    }


def test_every_operator_is_inferred() -> None:
    assert sorted(operators_in_force() - set(_core.inferred_operators())) == []


@dataclass(frozen=True)
class Case:
    """One node of ONNX's domain, whose operands and results are tensors."""

    name: str
    model: onnx.ModelProto
    opset: int
    operands: Sequence[Any]
    results: Sequence[Any]


def fitting_opset(model: onnx.ModelProto) -> int | None:
    """An opset of ours in which the node's operator is defined as in the model's."""
    version = next((entry.version for entry in model.opset_import if entry.domain == ""), 0)
    ours = min(max(version, OPSETS[0]), OPSETS[-1])
    operator = model.graph.node[0].op_type
    try:
        is_same = get_schema(operator, ours).since_version == get_schema(operator, version).since_version
    except SchemaError:
        return None
    return ours if is_same else None


@functools.cache
def cases() -> list[Case]:
    """Made when a test asks: whoever lists the tests has no use for them, and onnx computes them all."""
    return [*_cases()]


def _cases() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = collect_testcases(None)
    for test in tests:
        nodes = test.model.graph.node
        is_single = len(nodes) == 1 and nodes[0].domain == "" and nodes[0].op_type not in WITHOUT
        opset = fitting_opset(test.model) if is_single else None
        if opset is None or not test.data_sets:
            continue
        operands, results = test.data_sets[0]
        if all(isinstance(value, np.ndarray) for value in [*operands, *results]):
            yield Case(test.name, test.model, opset, operands, results)


# Operands of ImageDecoder are files of pictures, and bodies are tested with the builder.
WITHOUT = {"ImageDecoder", "If", "Loop", "Scan", "SequenceMap"}


def element_type(code: int) -> str:
    return SHORT_NAMES[onnx.helper.tensor_dtype_to_string(code).removeprefix("TensorProto.").lower()]


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return torch.from_numpy(onnx.numpy_helper.to_array(value).copy())
    if isinstance(value, bytes):
        return value.decode()
    return [item.decode() if isinstance(item, bytes) else item for item in value] if isinstance(value, list) else value


def operand(g: GraphBuilder, case: Case, i: int, way: str, sizes: dict[str, int]) -> _core.GraphValue:
    declared = case.model.graph.input[i]
    array = case.operands[i]
    if way == "constants" and array.dtype.kind in "iu" and array.dtype.itemsize >= 4 and array.ndim <= 1:
        return g.constant(torch.from_numpy(array.copy()))
    names = [f"{declared.name}_{axis}".replace(".", "_") for axis in range(array.ndim)]
    sizes.update(zip(names, array.shape, strict=True))
    shape = names if way == "symbols" else list(array.shape)
    return g.input(declared.name, element_type(declared.type.tensor_type.elem_type), shape)


def inferred(case: Case, way: str) -> tuple[list[_core.GraphValue], dict[str, int]]:
    """What is inferred of the node's results, and the size that each symbol stands for."""
    node = case.model.graph.node[0]
    g = GraphBuilder(case.opset)
    sizes: dict[str, int] = {}
    values: dict[str, Any] = {"": None}
    for i, declared in enumerate(case.model.graph.input):
        values[declared.name] = operand(g, case, i, way, sizes)
    attributes = {attribute.name: attribute_value(attribute) for attribute in node.attribute}
    operands = [values[name] for name in node.input]
    results = getattr(g.op, node.op_type)(*operands, outputs=len(node.output), **attributes)
    return list(results) if isinstance(results, tuple) else [results], sizes


FUNCTIONS: dict[str, Any] = {
    "FloorDiv": lambda a, b: a // b,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": lambda a, b: a % b,
    "Max": max,
    "Min": min,
    "__builtins__": {},
}


def agrees(size: int | str, actual: int, sizes: dict[str, int]) -> bool:
    """A size of its own may be anything."""
    if isinstance(size, int) or "_d" not in size:
        return bool(actual == (size if isinstance(size, int) else eval(size, {**FUNCTIONS, **sizes})))
    return True


def disagreements(case: Case, way: str) -> Iterator[str]:
    results, sizes = inferred(case, way)
    names = [name for name in case.model.graph.node[0].output if name]
    declared = {value.name: value.type.tensor_type.elem_type for value in case.model.graph.output}
    given = [value for value, name in zip(results, case.model.graph.node[0].output, strict=True) if name]
    for value, name, actual in zip(given, names, case.results, strict=True):
        if value.dtype != element_type(declared[name]):
            yield f"{name} has dtype {element_type(declared[name])}, inferred {value.type}"
        if value.shape is None:
            continue
        if len(value.shape) != actual.ndim or not all(map(agrees, value.shape, actual.shape, [sizes] * actual.ndim)):
            yield f"{name} has shape {actual.shape}, inferred {value.type} ({sizes})"


def test_there_are_cases_of_most_operators() -> None:
    assert len(cases()) > 800
    assert len({case.model.graph.node[0].op_type for case in cases()}) > 140


@pytest.mark.parametrize("way", ["sizes", "symbols", "constants"])
def test_what_is_inferred_holds(way: str) -> None:
    wrong = [f"{case.name}: {text}" for case in cases() for text in disagreements(case, way)]
    assert wrong == []


def test_shapes_are_known_where_they_do_not_depend_on_data() -> None:
    """With constants for lists of sizes and axes, most shapes are known to the last size."""
    shapes = [value.shape for case in cases() for value in inferred(case, "constants")[0]]
    complete = [shape for shape in shapes if shape is not None and all(isinstance(size, int) for size in shape)]
    assert len(complete) / len(shapes) > 0.9


@pytest.mark.parametrize("operator", ["DepthToSpace", "SpaceToDepth"])
@pytest.mark.parametrize("size", [0, -1, 1 << 31, 1 << 62], ids=str)
def test_a_block_whose_square_is_no_size_is_refused(operator: str, size: int) -> None:
    builder = GraphBuilder(opset=20)
    x = builder.input("x", "float32", ("batch", 8, 4, 4))
    with pytest.raises(ExportGuardError, match=f"blocksize must be at least 1 and at most 2147483647, got {size}"):
        getattr(builder.op, operator)(x, blocksize=size)
