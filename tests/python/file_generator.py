"""Random ONNX files for `random_files.py`: each of a seed, small, and as other producers might write them.

Inputs that have a default, outputs that are inputs or initializers, branches and loops that read what lies around them,
local functions with attributes of their own, narrow floats, small integers, opsets 18 to 25, sizes without a name or
with one name for what coincides, and `value_info` that was so for one example only, in functions as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dim = int | str
Shape = tuple[Dim, ...]

DTYPES: dict[str, tuple[int, Any]] = {
    "f32": (TensorProto.FLOAT, np.float32),
    "f16": (TensorProto.FLOAT16, np.float16),
    "f64": (TensorProto.DOUBLE, np.float64),
    "i64": (TensorProto.INT64, np.int64),
    "i32": (TensorProto.INT32, np.int32),
    "u8": (TensorProto.UINT8, np.uint8),
    "bool": (TensorProto.BOOL, np.bool_),
}
FLOATS, INTEGERS = ("f32", "f32", "f32", "f16", "f64"), ("i64", "i32")

#: Sizes of the axes b and s that the files are run at.
SIZES = ({"b": 2, "s": 3}, {"b": 1, "s": 1}, {"b": 4, "s": 4}, {"b": 3, "s": 1}, {"b": 1, "s": 5}, {"b": 0, "s": 2})


@dataclass(frozen=True)
class Tensor:
    """A value of the file that is being made; the axes b and s have their names, whatever the file says of them."""

    name: str
    dtype: str
    shape: Shape


@dataclass
class Scope:
    """A graph that is being made: what may be read in it, and its nodes."""

    values: list[Tensor]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    made: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class RandomFile:
    """A model that says nothing of what lies between inputs and outputs, and the same with what was so once."""

    plain: onnx.ModelProto
    told: onnx.ModelProto
    inputs: tuple[Tensor, ...]
    defaults: tuple[str, ...]  #: inputs that may be left out
    sizes: tuple[dict[str, int], ...]  #: those that the file is for
    is_narrow: bool  #: something is computed in float16
    steps: tuple[str, ...]  #: names of what it is made of


class Generator:
    """Makes the file of one seed out of steps, of which the later ones make nested graphs and functions."""

    def __init__(self, seed: int, plain_steps: Sequence[Step], nesting_steps: Sequence[Step]) -> None:
        self.draw = random.Random(seed)
        self._plain = tuple(plain_steps)
        self._all = (*plain_steps, *nesting_steps)
        self.opset = self.draw.choice((18, 19, 20, 21, 22, 23, 24, 25))
        self.initializers: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.steps: list[str] = []
        self.operators: set[str] = set()
        self.dtypes: set[str] = set()
        self._count = 0
        self._depth = 0

    # -------------------------------------------------------------------------------------------- values

    def name(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def pick(self, scope: Scope, *dtypes: str, rank: int | None = None) -> Tensor:
        """A value of one of the dtypes, mostly a late one; one is made if there is none."""
        fitting = [v for v in scope.values if v.dtype in dtypes and (rank is None or len(v.shape) == rank)]
        if not fitting:
            dtype = self.draw.choice(dtypes)
            x = next(v for v in scope.values if v.dtype in FLOATS and (rank is None or len(v.shape) == rank))
            return self.add(scope, "Cast", [x], dtype, x.shape, to=DTYPES[dtype][0])
        return self.draw.choice(fitting[-8:] if self.draw.random() < 0.7 else fitting)

    def constant(self, array: np.ndarray, stem: str = "c") -> Tensor:
        """An initializer; sometimes one whose content another one has as well."""
        dtype = next(key for key, (_, kind) in DTYPES.items() if array.dtype == kind)
        tensor = Tensor(self.name(stem), dtype, array.shape)
        self.initializers.append(numpy_helper.from_array(array, tensor.name))
        return tensor

    def ints(self, *numbers: int) -> Tensor:
        return self.constant(np.array(numbers, np.int64), "ints")

    def number(self, dtype: str, *choices: float) -> Tensor:
        shape = self.draw.choice(((), (1,), (1, 1)))
        return self.constant(np.full(shape, self.draw.choice(choices), DTYPES[dtype][1]), "number")

    def add(
        self, scope: Scope, op: str, inputs: Sequence[Tensor | None], dtype: str, shape: Shape, **attributes: Any
    ) -> Tensor:
        """A node with one output."""
        return self.add_many(scope, op, inputs, [(dtype, shape)], **attributes)[0]

    def add_many(
        self,
        scope: Scope,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[tuple[str, Shape]],
        **attributes: Any,
    ) -> list[Tensor]:
        tensors = [Tensor(self.name(), dtype, shape) for dtype, shape in outputs]
        self.operators.add(op)
        self.dtypes.update(dtype for dtype, _ in outputs)
        names = [value.name if value else "" for value in inputs]
        scope.nodes.append(helper.make_node(op, names, [value.name for value in tensors], **attributes))
        scope.values += tensors
        scope.made += tensors
        return tensors

    # -------------------------------------------------------------------------------------------- graphs

    def step(self, scope: Scope) -> None:
        """One of the steps; nested graphs are not nested deeper than twice."""
        chosen = self.draw.choice(self._all if self._depth < 2 else self._plain)
        self.steps.append(chosen.__name__)
        chosen(self, scope)

    def nested(self, outer: Scope, values: Sequence[Tensor], steps: int) -> Scope:
        """The inside of a branch or a body, which reads what lies around it."""
        self._depth += 1
        scope = Scope([*outer.values, *values])
        for _ in range(steps):
            self.step(scope)
        self._depth -= 1
        return scope

    def graph(self, scope: Scope, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> onnx.GraphProto:
        """A nested graph; its outputs are its own: what lies around comes through an Identity."""
        own = [*scope.made, *inputs]
        ends = [out if out in own else self.add(scope, "Identity", [out], out.dtype, out.shape) for out in outputs]
        return helper.make_graph(
            scope.nodes, self.name("graph"), [_info(v, None) for v in inputs], [_info(v, None) for v in ends]
        )

    # -------------------------------------------------------------------------------------------- files

    def file(self) -> RandomFile:
        inputs = [
            Tensor("x", "f32", ("b", "s", 4)), Tensor("y", "f32", ("b", "s", 4)), Tensor("h", "f16", ("b", "s", 4)),
            Tensor("d", "f64", ("s", 4)), Tensor("n", "i64", ("b", "s")), Tensor("k", "i32", ("b", "s")),
            Tensor("u", "u8", ("s",)), Tensor("m", "bool", ("b", "s")), Tensor("p", "bool", ()),
        ]  # fmt: skip
        scope = Scope([*inputs])
        defaults = [self._default(scope) for _ in range(self.draw.choice((0, 0, 1, 2)))]
        for _ in range(self.draw.randint(2, 12)):
            self.step(scope)

        outputs = self._outputs(scope, [*inputs, *defaults])
        names, sizes = self._naming()
        graph = helper.make_graph(
            scope.nodes,
            "random",
            [_info(value, names) for value in (*inputs, *defaults)],
            [_info(value, None) for value in outputs],
            self.initializers,
        )
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("own", 1)]
        plain = helper.make_model(graph, opset_imports=domains, ir_version=10, functions=self.functions)
        if any(op.startswith("Reduce") for op in self.operators):  # onnxruntime keeps the size of an axis of nothing
            sizes = tuple(one for one in sizes if one["b"])
        return RandomFile(
            plain,
            self._told(plain, scope),
            (*inputs, *defaults),
            defaults=tuple(value.name for value in defaults),
            sizes=sizes,
            is_narrow="f16" in self.dtypes,
            steps=tuple(self.steps),
        )

    def _default(self, scope: Scope) -> Tensor:
        """An initializer that is an input as well."""
        choices = (np.float32([1, 1, 1, 1]), np.float32(0.0), np.float32([[1.0]]), np.int64(1), np.int64([0, 0, 4]))
        made = self.constant(np.asarray(self.draw.choice(choices)), "default")
        scope.values.append(made)
        return made

    def _outputs(self, scope: Scope, inputs: list[Tensor]) -> list[Tensor]:
        """The last values, and sometimes an input or an initializer as it is."""
        outputs = scope.made[-3:] + self.draw.sample(scope.made, min(2, len(scope.made)))
        if self.draw.random() < 0.15:
            outputs.append(self.draw.choice(inputs))
        if self.draw.random() < 0.1 and self.initializers:
            chosen = self.draw.choice(self.initializers)
            outputs.append(Tensor(chosen.name, _key_of(chosen.data_type), tuple(chosen.dims)))
        return list(dict.fromkeys(outputs))

    def _naming(self) -> tuple[dict[str, Dim | None], tuple[dict[str, int], ...]]:
        """What the file calls the axes b and s of its inputs, and the sizes for which that is so."""
        kind = self.draw.choice(("names", "names", "names", "none", "coincide", "numbers"))
        if kind == "names":
            return {"b": "b", "s": "s"}, SIZES
        if kind == "none":
            return {"b": None, "s": None}, SIZES
        if kind == "coincide":
            return {"b": "n", "s": "n"}, tuple(sizes for sizes in SIZES if sizes["b"] == sizes["s"])
        sizes = self.draw.choice(SIZES[:5])
        return {"b": sizes["b"], "s": sizes["s"]}, (sizes,)

    def _told(self, plain: onnx.ModelProto, scope: Scope) -> onnx.ModelProto:
        """The model with `value_info` that one example had, or that is turned round, of some values."""
        told = onnx.ModelProto()
        told.CopyFrom(plain)
        if self.draw.random() < 0.4:
            return told
        names: dict[str, Dim | None] = dict(self.draw.choice((*SIZES[:4], {"b": "s", "s": "b"}, {"b": "n", "s": "n"})))
        shares = [value for value in scope.made if "?" not in value.shape and self.draw.random() < 0.6]
        told.graph.value_info.extend(_info(value, names) for value in shares)
        for function in told.functions:
            shape = self.draw.choice(([2, 3, 4], ["b", "s", 4], [1, 1, 4]))
            inner = [name for node in function.node for name in node.output if name not in ("sizes", "z")]
            function.value_info.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inner)
        return told


def _info(value: Tensor, names: dict[str, Dim | None] | None) -> onnx.ValueInfoProto:
    """Without names nothing but the dtype."""
    shape = None if names is None else [names.get(dim, dim) if isinstance(dim, str) else dim for dim in value.shape]
    return helper.make_tensor_value_info(value.name, DTYPES[value.dtype][0], shape)


def _key_of(data_type: int) -> str:
    return next(key for key, (number, _) in DTYPES.items() if number == data_type)


Step = Callable[[Generator, Scope], None]
