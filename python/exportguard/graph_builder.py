"""ONNX models written by hand, node by node: types and shapes are known as they are built."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import torch

from . import _core
from .errors import InvalidArgumentError
from .graph_operators import Operators
from .onnx_model import OnnxModel
from .onnx_types import dtype_name
from .opsets import checked_opset

Value: TypeAlias = _core.GraphValue
Shape: TypeAlias = Sequence[int | str | None]
DTypeLike: TypeAlias = str | torch.dtype


class Subgraph:
    """One graph under construction: the body of If, Loop or Scan, a local function, or the main graph of a model.

    A body may read the values of the graphs around it; a function reads its inputs alone.
    """

    def __init__(self, scope: _core.GraphScope, domains: Mapping[str, int]) -> None:
        self._scope = scope
        self._domains = domains
        self.op = self.domain("")

    def domain(self, name: str) -> Operators:
        """The operators of another domain, `com.microsoft`, or local functions: `g.domain("own").Scaled(x)`."""
        return Operators(self._scope, name, self._domains.get(name))

    def input(
        self, name: str, dtype: DTypeLike | None = None, shape: Shape | None = None, *, kind: str = "tensor"
    ) -> Value:
        """An input; `kind` may be `sequence` or `optional` (of tensors).

        Sizes are numbers, names that are equal where the sizes are (`"batch"`, `"past + seq"`), and None for one that
        is like no other; `shape=None` leaves the rank open. Only bodies and functions may leave the dtype out.
        """
        if dtype is None and self._needs_dtypes:
            raise InvalidArgumentError(f"input '{name}' needs a dtype, such as 'f32' or torch.float32")
        if kind not in ("tensor", "sequence", "optional"):
            raise InvalidArgumentError(f"kind must be 'tensor', 'sequence' or 'optional', got {kind!r}")
        sizes = None if shape is None else list(shape)
        return self._scope.input(name, "" if dtype is None else dtype_name(dtype), sizes, kind)

    def constant(self, value: object, dtype: DTypeLike | None = None, *, name: str = "") -> Value:
        """A tensor that is known now: a tensor (whose memory is shared), an array, a number or nested lists.

        A constant with a name is an initializer of that name; equal numbers without one are made once.
        """
        if isinstance(value, (bool, int, float)) and not name:
            default = torch.tensor(value).dtype
            return self._scope.number(value, dtype_name(dtype or default))
        tensor = torch.as_tensor(value)
        if dtype is not None:
            tensor = tensor.to(_core.torch_dtype(dtype_name(dtype)))
        return self._scope.constant(tensor.detach(), name)

    def sizes(self, sizes: Shape) -> Value:
        """int64[n] with these sizes: numbers, and names or expressions of sizes that inputs have (`"batch"`).

        Raises:
            GraphError: a name is that of no input's size.
        """
        return self._scope.sizes(list(sizes))

    def output(self, value: Value, name: str = "") -> Value:
        """Makes a value the next output, and gives it a name there."""
        self._scope.output(value, name)
        return value

    def elements(self, value: Value) -> list[int | str] | None:
        """The elements of a small integer tensor, as far as the sizes of inputs tell them: `["batch", 3]`."""
        return self._scope.elements(value)

    @contextlib.contextmanager
    def subgraph(self, name: str = "body") -> Iterator[Subgraph]:
        """A body, to be passed as the attribute of a node once it has its outputs."""
        yield Subgraph(self._scope.body(name), self._domains)

    @property
    def opset(self) -> int:
        return self._scope.opset

    _needs_dtypes = False


class GraphBuilder(Subgraph):
    """A model under construction.

    `domains` has the version of other domains that the model uses; `com.microsoft` is 1 if left out.

    >>> g = GraphBuilder(opset=20)
    >>> x = g.input("x", "f32", ["batch", 3])
    >>> y = g.op.MatMul(x, torch.ones(3, 4))
    >>> y.dtype, y.shape
    ('f32', ['batch', 4])
    >>> g.output(g.op.Relu(g.op.Add(y, 1)), "y").shape
    ['batch', 4]
    >>> [value.name for value in g.to_model().outputs]
    ['y']
    """

    _needs_dtypes = True

    def __init__(self, opset: int | None = None, *, domains: Mapping[str, int] | None = None) -> None:
        version = checked_opset(opset)
        versions = {"com.microsoft": 1, **(domains or {}), "": version}
        super().__init__(_core.GraphScope({"": version, **(domains or {})}), versions)

    @contextlib.contextmanager
    def function(self, domain: str, name: str) -> Iterator[Subgraph]:
        """A local function, called as `g.domain(domain).<name>(…)` once it has its outputs.

        Its inputs need neither dtype nor shape: a call infers the body with what it is given.

        Raises:
            InvalidArgumentError: if there is one of that name, or the domain is ONNX's own.
        """
        if domain in ("", "ai.onnx"):
            raise InvalidArgumentError(f"function {name} needs a domain of its own, got ONNX's")
        yield Subgraph(self._scope.function(domain, name), self._domains)

    def to_model(self) -> OnnxModel:
        """The model as it is now; weights are shared, and building may go on.

        Raises:
            GraphError: if it has no output, or a body is part of no node.
        """
        model = self._scope.model()
        model.verify()
        if not model.outputs:
            raise InvalidArgumentError("the model has no output; call output(value, name)")
        return OnnxModel(model, self.opset)
