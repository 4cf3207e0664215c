"""Converters of one's own: for operators of `torch.library`, and instead of those that exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload, OpOverloadPacket

from . import _core
from .errors import InvalidArgumentError
from .graph_builder import Subgraph
from .module_calls import TARGET, call_of

Converter: TypeAlias = Callable[..., Any]
Operator: TypeAlias = str | OpOverload | OpOverloadPacket | Any


class Dispatcher:
    """Which function converts which torch operator, for `to_onnx(…, dispatcher=…)`.

    A converter is called as the operator is, the graph under construction first: tensors and symbolic numbers are
    values, everything else is as torch has it. It returns a value for each of the operator's results. An operator that
    writes into arguments gives what they hold afterwards behind its results. An onnxscript function will do as well.

    A class of modules is translated as a whole when a module is exported: its converter is called with the graph, the
    module's parameters and buffers by name, and the arguments of `forward`; it returns a value for each tensor that
    `forward` returns.

    Operators are named as torch does, `"own::scaled"` (all overloads), `"own::scaled.Tensor"`, or given as
    `torch.ops.own.scaled`; what `torch.library.custom_op` returns will do as well.

    >>> dispatcher = Dispatcher()
    >>> @dispatcher.register("aten::relu")
    ... def relu(g, x):
    ...     return g.op.Max(x, 0.0)
    >>> "aten.relu.default" in dispatcher.targets
    True
    """

    def __init__(self, converters: Mapping[Operator, Converter] | None = None) -> None:
        self._converters: dict[str, Converter] = {}
        self._modules: dict[type[torch.nn.Module], Converter] = {}
        for operator, converter in (converters or {}).items():
            self.add(operator, converter)

    def register(self, operator: Operator) -> Callable[[Converter], Converter]:
        """Adds the function that it decorates."""

        def add(converter: Converter) -> Converter:
            self.add(operator, converter)
            return converter

        return add

    def add(self, operator: Operator, converter: Converter) -> None:
        """Adds a converter; the last one given for an operator counts.

        Raises:
            InvalidArgumentError: torch knows no such operator, or `converter` cannot be called.
        """
        if not callable(converter):
            raise InvalidArgumentError(f"the converter of {operator} must be a function, got {converter!r}")
        if isinstance(operator, type) and issubclass(operator, torch.nn.Module):
            self._modules[operator] = converter
            return
        for target in operator_targets(operator):
            self._converters[target] = converter

    @property
    def targets(self) -> frozenset[str]:
        """The operators that have a converter here: `own.scaled.default`."""
        return frozenset(self._converters)

    def rows(self) -> dict[str, Callable[[_core.GraphScope, list[Any]], Any]]:
        """What the conversion calls: with a graph and the arguments in the order of the operator's schema."""
        rows = {target: _row(target, converter) for target, converter in self._converters.items()}
        return {**rows, TARGET: self._convert_call} if self._modules else rows

    @property
    def modules(self) -> Mapping[type[torch.nn.Module], Converter]:
        """The classes of modules that are translated as a whole."""
        return dict(self._modules)

    def _convert_call(self, scope: _core.GraphScope, arguments: list[Any]) -> Any:
        tensors, sizes, number = arguments
        call = call_of(number)
        converter = next(self._modules[cls] for cls in type(call.module).__mro__ if cls in self._modules)
        args, kwargs = call.given(tensors, sizes)
        graph = Subgraph(scope, {"": scope.opset, "com.microsoft": 1})
        made = converter(graph, call.weights(tensors), *args, **kwargs)
        _require_made(made, f"the module {type(call.module).__qualname__}", call.count)
        return made


def _row(target: str, converter: Converter) -> Callable[[_core.GraphScope, list[Any]], Any]:
    if hasattr(converter, "to_function_proto"):
        from .onnxscript_functions import onnxscript_converter  # needs onnx, which not everybody has

        converter = onnxscript_converter(converter)
    keywords = _keywords(target)
    operator = _find_overload(target)
    wanted = (
        0 if operator is None else len(operator._schema.returns) + sum(map(_is_written, operator._schema.arguments))
    )

    def convert(scope: _core.GraphScope, arguments: list[Any]) -> Any:
        by_position = [value for i, value in enumerate(arguments) if i not in keywords]
        by_keyword = {name: arguments[i] for i, name in keywords.items() if i < len(arguments)}
        made = converter(Subgraph(scope, {"": scope.opset, "com.microsoft": 1}), *by_position, **by_keyword)
        _require_made(made, target, wanted)
        return made

    return convert


def _require_made(made: object, what: str, count: int) -> None:
    """A result that nobody uses may be None; a converter that returns nothing at all forgot to."""
    if made is None and count:
        values = "a value" if count == 1 else f"{count} values"
        raise InvalidArgumentError(f"the converter of {what} returned None; return {values} of the graph")


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _keywords(target: str) -> dict[int, str]:
    """Positions and names of the arguments that go by keyword alone."""
    operator = _find_overload(target)
    parameters = operator._schema.arguments if operator is not None else []
    return {i: parameter.name for i, parameter in enumerate(parameters) if parameter.kwarg_only}


def _find_overload(target: str) -> OpOverload | None:
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    found = getattr(packet, overload or "default", None)
    return found if isinstance(found, OpOverload) else None


def operator_targets(operator: Operator) -> list[str]:
    """The overloads that an operator stands for, by the names that the conversion has for them.

    Raises:
        InvalidArgumentError: torch knows no such operator.
    """
    operator = getattr(
        operator, "_opoverload", operator
    )  # what `torch.library.custom_op` returns (torch 2.4 and later)
    if isinstance(operator, OpOverload):
        return [str(operator)]
    if isinstance(operator, OpOverloadPacket):
        return [str(getattr(operator, overload)) for overload in _overloads(operator)]
    if isinstance(operator, str):
        return _named_targets(operator)
    raise InvalidArgumentError(
        f"an operator must be a name such as 'own::scaled', or one of torch.ops, got {operator!r}"
    )


def _named_targets(name: str) -> list[str]:
    """Overloads by name: `own::scaled`, `own::scaled.Tensor` and `own.scaled.Tensor`."""
    namespace, separator, rest = name.partition("::" if "::" in name else ".")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None) if separator and base else None
    if not isinstance(packet, OpOverloadPacket):
        raise InvalidArgumentError(f"torch knows no operator '{name}'; import what defines it, or look at torch.ops")
    if not overload:
        return [str(getattr(packet, known)) for known in _overloads(packet)]
    if overload not in _overloads(packet):
        raise InvalidArgumentError(f"'{name}' is no overload; there are {', '.join(_overloads(packet))}")
    return [str(getattr(packet, overload))]


def _overloads(packet: OpOverloadPacket) -> list[str]:
    return list(packet.overloads())  # type: ignore[no-untyped-call]
