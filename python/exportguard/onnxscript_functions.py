"""onnxscript functions as converters: each call becomes the call of a local function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import torch

from . import _core
from .errors import InvalidArgumentError
from .graph_builder import Subgraph
from .onnx_types import dtype_name


def onnxscript_converter(function: Any) -> Callable[..., Any]:
    """A converter that calls the function in the model."""
    proto: onnx.FunctionProto = function.to_function_proto()

    def convert(g: Subgraph, *arguments: Any, **keywords: Any) -> Any:
        _require_opset(proto, g._scope.opset)
        inputs, attributes = _split(proto, arguments, keywords)
        model = _core.from_bytes(_calling_model(proto, inputs, attributes).SerializeToString())
        values = [_value(g, value) for value in inputs if value is not None]
        results = g._scope.inline(model, values)
        return results[0] if len(results) == 1 else tuple(results)

    return convert


def _require_opset(proto: onnx.FunctionProto, opset: int) -> None:
    """A model has one opset, which its functions share."""
    own = next((entry.version for entry in proto.opset_import if not entry.domain), opset)
    if own != opset:
        raise InvalidArgumentError(
            f"{proto.name} is written for opset {own} and the model has {opset}; pass opset={own}, or write the "
            f"function with the operators of onnxscript.opset{opset}"
        )


def _split(
    proto: onnx.FunctionProto, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments in the function's order: first its inputs, then its attributes."""
    names = [*proto.input, *proto.attribute, *(attribute.name for attribute in proto.attribute_proto)]
    if len(arguments) > len(names):
        raise InvalidArgumentError(
            f"{proto.name} takes {len(names)} arguments ({', '.join(names)}), got {len(arguments)}"
        )
    given = dict(zip(names, arguments, strict=False))
    unknown = sorted(keywords.keys() - set(names))
    if unknown:
        raise InvalidArgumentError(f"{proto.name} has no argument {', '.join(unknown)}; it has {', '.join(names)}")
    given.update(keywords)
    inputs = [given.pop(name, None) for name in proto.input]
    return inputs, {name: value for name, value in given.items() if value is not None}


def _value(g: Subgraph, value: object) -> _core.GraphValue:
    return value if isinstance(value, _core.GraphValue) else g.constant(value)


def _calling_model(proto: onnx.FunctionProto, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> onnx.ModelProto:
    """A model of one node that calls the function; its inputs are those that are given."""
    names = [f"input_{i}" if value is not None else "" for i, value in enumerate(inputs)]
    outputs = [f"output_{i}" for i in range(len(proto.output))]
    node = onnx.helper.make_node(proto.name, names, outputs, domain=proto.domain, **attributes)
    declared = [_declared(name, value) for name, value in zip(names, inputs, strict=True) if value is not None]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = onnx.helper.make_graph([node], proto.name, declared, results)
    imports = [*proto.opset_import, onnx.helper.make_opsetid(proto.domain, 1)]
    return onnx.helper.make_model(graph, functions=[proto], opset_imports=imports)


def _declared(name: str, value: object) -> onnx.ValueInfoProto:
    dtype = value.dtype if isinstance(value, _core.GraphValue) else dtype_name(_torch_dtype(value))
    return onnx.helper.make_tensor_value_info(name, _core.dtype_code(dtype), None)


def _torch_dtype(value: object) -> torch.dtype:
    return torch.as_tensor(value).dtype
