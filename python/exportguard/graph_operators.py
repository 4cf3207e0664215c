"""Operators as methods of a graph under construction: `g.op.MatMul(x, y)`.

Calls are held against onnx's own definition of the operator in the model's opset; an error names the operator, the
argument, what was expected and what came.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from . import _core
from .errors import InvalidArgumentError
from .onnx_types import ONNX_NAMES, dtype_name, short_type

Value: TypeAlias = _core.GraphValue
Operand: TypeAlias = Value | torch.Tensor | np.ndarray[Any, Any] | int | float | bool | Sequence[Any] | None


class Operators:
    """The operators of one domain, each a method of the name that ONNX gives it."""

    def __init__(self, scope: _core.GraphScope, domain: str, version: int | None) -> None:
        self._scope = scope
        self._domain = domain
        self._version = version

    def __getattr__(self, name: str) -> _Operator:
        if name.startswith("_"):
            raise AttributeError(name)
        schema = None if self._version is None else find_schema(self._domain, name, self._version)
        if schema is None and self._domain in ("", "ai.onnx.ml"):
            raise InvalidArgumentError(self._unknown(name))
        return _Operator(self._scope, self._domain, name, schema)

    def _unknown(self, name: str) -> str:
        known = _core.operator_names(self._domain, self._version or 1)
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        domain = f" {self._domain}" if self._domain else ""
        return f"ONNX{domain} has no operator {name} in opset {self._version}{hint}"

    def __dir__(self) -> list[str]:
        return _core.operator_names(self._domain, self._version or 1)


@functools.lru_cache(maxsize=1024)
def find_schema(domain: str, name: str, version: int) -> _core.OperatorSchema | None:
    """The definition of an operator; None if onnx has none."""
    return _core.find_schema(domain, name, version)


@dataclass(frozen=True)
class _Operator:
    """One operator, to be called."""

    scope: _core.GraphScope
    domain: str
    name: str
    schema: _core.OperatorSchema | None

    def __call__(self, *inputs: Operand, outputs: int | None = None, **attributes: Any) -> Any:
        """Appends a node; its output, or a tuple if it has several.

        Operands are values, None for one that is left out, and constants: a number takes the dtype of the operands that
        it must agree with. `outputs` says how many results there are where the operator leaves that open.

        Raises:
            InvalidArgumentError: for operands and attributes that the operator's definition does not take.
            GraphError: for shapes that cannot be.
        """
        operands = self._operands(inputs)
        count = self._output_count(outputs, attributes)
        given = [self._attribute(name, value) for name, value in attributes.items() if value is not None]
        self._require_attributes(attributes)
        results = self.scope.node(self.domain, self.name, operands, count, given)
        return results[0] if count == 1 else tuple(results)

    def _fail(self, reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self.domain + '::' if self.domain else ''}{self.name}: {reason}")

    # ------------------------------------------------------------------------------------------------ operands

    def _operands(self, inputs: Sequence[Operand]) -> list[Value | None]:
        if self.schema is None:
            return [self._constant(operand, None) for operand in inputs]
        parameters = [self._parameter(i) for i in range(len(inputs))]
        self._require_inputs(inputs, parameters)
        known = self._known_types(inputs, parameters)
        operands = [
            self._constant(operand, self._wanted(operand, parameter, known))
            for operand, parameter in zip(inputs, parameters, strict=True)
        ]
        for operand, parameter in zip(operands, parameters, strict=True):
            self._check_type(operand, parameter)
        return operands

    def _parameter(self, i: int) -> _core.SchemaParameter:
        assert self.schema is not None
        parameters = self.schema.inputs
        if i < len(parameters):
            return parameters[i]
        if parameters and parameters[-1].count == "many":
            return parameters[-1]
        raise self._fail(f"takes at most {len(parameters)} inputs ({', '.join(p.name for p in parameters)})")

    def _require_inputs(self, inputs: Sequence[Operand], parameters: Sequence[_core.SchemaParameter]) -> None:
        assert self.schema is not None
        if len(inputs) < self.schema.least_inputs:
            missing = self.schema.inputs[min(len(inputs), len(self.schema.inputs) - 1)]
            raise self._fail(f"input {missing.name} is missing; it takes at least {self.schema.least_inputs} inputs")
        for operand, parameter in zip(inputs, parameters, strict=True):
            if operand is None and parameter.count == "one":
                raise self._fail(f"input {parameter.name} must be given, got None")

    def _known_types(
        self, inputs: Sequence[Operand], parameters: Sequence[_core.SchemaParameter]
    ) -> dict[str, tuple[str, str]]:
        """The dtype of each type variable, and which input has it."""
        known: dict[str, tuple[str, str]] = {}
        for operand, parameter in zip(inputs, parameters, strict=True):
            if not isinstance(operand, Value) or operand.dtype == "undefined" or parameter.count == "many":
                continue
            dtype, first = known.setdefault(parameter.type, (operand.dtype, parameter.name))
            if operand.dtype != dtype:
                raise self._fail(
                    f"inputs {first} and {parameter.name} must have one dtype, got {dtype} and {operand.dtype}"
                )
        for operand, parameter in zip(inputs, parameters, strict=True):
            if isinstance(operand, Value) and operand.dtype != "undefined":
                known.setdefault(parameter.type, (operand.dtype, parameter.name))
        return known

    def _wanted(
        self, operand: Operand, parameter: _core.SchemaParameter, known: dict[str, tuple[str, str]]
    ) -> str | None:
        """The dtype that a constant is given; None for the one that it has."""
        if isinstance(operand, (Value, torch.Tensor, np.ndarray)) or operand is None:
            return None
        if parameter.type in known:
            return known[parameter.type][0]
        allowed = [short_type(text) for text in parameter.types]
        return allowed[0] if len(allowed) == 1 else None

    def _constant(self, operand: Operand, dtype: str | None) -> Value | None:
        if operand is None or isinstance(operand, Value):
            return operand
        if isinstance(operand, (bool, int, float)):
            return self.scope.number(operand, dtype or dtype_name(torch.tensor(operand).dtype))
        is_integers = isinstance(operand, (list, tuple)) and all(type(item) is int for item in operand)
        if is_integers and dtype in (None, "i64"):
            return self.scope.integers(list(operand))
        try:
            tensor = torch.as_tensor(operand)
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._fail(f"an operand must be a value, a tensor, a number or a list, got {operand!r}") from error
        return self.scope.constant(tensor.detach() if dtype is None else tensor.to(_core.torch_dtype(dtype)), "")

    def _check_type(self, operand: Value | None, parameter: _core.SchemaParameter) -> None:
        if operand is None or operand.dtype == "undefined":
            return
        name = f"tensor({ONNX_NAMES.get(operand.dtype, operand.dtype)})"
        prefix = _WRITTEN[operand.kind]
        written = prefix.format(name)
        if written not in parameter.types and not operand.kind.startswith("optional"):
            allowed = ", ".join(sorted(short_type(text) for text in parameter.types))
            raise self._fail(f"input {parameter.name} must be one of {allowed}, got {short_type(written)}")

    # ------------------------------------------------------------------------------------------------ attributes

    def _attribute(self, name: str, value: object) -> tuple[str, str, Any]:
        kind = self._kind(name, value)
        try:
            return name, kind, _converted(kind, value)
        except (TypeError, ValueError) as error:
            raise self._fail(f"attribute {name} must be {_ARTICLES[kind]}, got {value!r}") from error

    def _kind(self, name: str, value: object) -> str:
        if self.schema is None:
            return _natural_kind(value)
        kinds = {attribute.name: attribute.kind for attribute in self.schema.attributes}
        if name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(sorted(kinds)) or 'none'}"
            raise self._fail(f"there is no attribute {name}; {hint}")
        return kinds[name]

    def _require_attributes(self, given: dict[str, Any]) -> None:
        for attribute in self.schema.attributes if self.schema else ():
            if attribute.is_required and given.get(attribute.name) is None:
                raise self._fail(f"attribute {attribute.name} must be given, {_ARTICLES[attribute.kind]}")

    # ------------------------------------------------------------------------------------------------ outputs

    def _output_count(self, asked: int | None, attributes: dict[str, Any]) -> int:
        if self.schema is None:
            return asked or self.scope.function_outputs(self.domain, self.name) or 1
        most = None if self.schema.outputs and self.schema.outputs[-1].count == "many" else len(self.schema.outputs)
        if asked is None:
            return self._natural_outputs(attributes)
        if asked < 1 or (most is not None and asked > most):
            raise self._fail(f"outputs must be between 1 and {most or 'any number'}, got {asked}")
        return asked

    def _natural_outputs(self, attributes: dict[str, Any]) -> int:
        """Those that the definition requires; of Split and of control flow, those that the call tells."""
        assert self.schema is not None
        if self.name == "Split" and attributes.get("num_outputs"):
            return int(attributes["num_outputs"])
        bodies = [value for value in attributes.values() if _is_graph(value)]
        if bodies:
            outputs: int = bodies[0]._scope.output_count
            return max(1, outputs - (1 if self.name == "Loop" else 0))
        return max(1, self.schema.least_outputs)


#: How the schemas of ONNX write a type of each kind.
_WRITTEN = {
    "tensor": "{}",
    "sequence": "seq({})",
    "optional": "optional({})",
    "optional sequence": "optional(seq({}))",
}
_ARTICLES = {
    "int": "an integer",
    "float": "a number",
    "string": "a text",
    "tensor": "a tensor",
    "graph": "a subgraph",
    "ints": "a list of integers",
    "floats": "a list of numbers",
    "strings": "a list of texts",
    "type_proto": "a type",
    "sparse_tensor": "a sparse tensor",
}


def _is_graph(value: object) -> bool:
    return isinstance(getattr(value, "_scope", None), _core.GraphScope)


def _natural_kind(value: object) -> str:
    """The kind of an attribute that no definition tells."""
    if _is_graph(value):
        return "graph"
    if isinstance(value, (bool, int, torch.dtype)):
        return "int"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (list, tuple)) and value:
        return _natural_kind(value[0]) + "s" if not any(isinstance(item, float) for item in value) else "floats"
    return "ints" if isinstance(value, (list, tuple)) else "tensor"


def _converted(kind: str, value: Any) -> Any:
    """What `_core` takes for an attribute of that kind.

    Raises:
        TypeError, ValueError: for a value of another kind.
    """
    if kind == "int":
        return _integer(value)
    if kind in ("ints", "floats", "strings"):
        if isinstance(value, str):
            raise TypeError(value)
        return [_converted(kind[:-1], item) for item in value]
    if kind == "float" and isinstance(value, (bool, int, float)):
        return float(value)
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "tensor":
        return torch.as_tensor(value).detach()
    if kind == "graph" and _is_graph(value):
        return value._scope
    raise TypeError(value)


def _integer(value: object) -> int:
    """An integer, or the code of a dtype: `to=torch.float16`, `to="f16"`."""
    if isinstance(value, (str, torch.dtype)):
        return _core.dtype_code(dtype_name(value))
    if isinstance(value, (bool, int, np.integer)):
        return int(value)
    raise TypeError(value)
