"""Random models of one operator for `random_nodes.py`, and what they are drawn with: what few users of ONNX write.

Attributes at and away from their defaults, inputs that are left out, empty tensors and sizes of 0 and 1, broadcasting,
negative axes, NaN and infinities, every dtype that the schema names, opsets 18 to 25.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, defs, helper

OPSETS = range(18, 26)
#: Of type strings in schemas.
DTYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(bfloat16)": ml_dtypes.bfloat16,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}
FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)")

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@dataclass
class Node:
    """An operator with its inputs, None where one is left out; inputs that graphs mostly know may be constants."""

    op: str
    inputs: list[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    constants: frozenset[int] = frozenset()  # positions of inputs that are initializers

    def __post_init__(self) -> None:
        self.inputs = [None if value is None else np.asarray(value) for value in self.inputs]

    def model(self, opset: int) -> onnx.ModelProto:
        names = ["" if value is None else f"x{i}" for i, value in enumerate(self.inputs)]
        while names and not names[-1]:
            names.pop()
        outputs = [f"y{i}" for i in range(self.outputs)]
        given = [i for i, value in enumerate(self.inputs) if value is not None]
        infos = [
            helper.make_tensor_value_info(f"x{i}", element_type(self.inputs[i]), list(np.shape(self.inputs[i])))
            for i in given
            if i not in self.constants
        ]
        fixed = [onnx.numpy_helper.from_array(self.inputs[i], f"x{i}") for i in given if i in self.constants]
        node = helper.make_node(self.op, names, outputs, **self.attributes)
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], "node", infos, results, fixed)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)

    def feeds(self) -> dict[str, Array]:
        return {f"x{i}": v for i, v in enumerate(self.inputs) if v is not None and i not in self.constants}

    def __str__(self) -> str:
        shown = [
            "_" if v is None else f"{v.dtype}{list(v.shape)}{'=' + str(v.tolist()) if v.size < 5 else ''}"
            for v in self.inputs
        ]
        return f"{self.op}({', '.join(shown)}) {self.attributes or ''}"


def is_float(value: Array | None) -> bool:
    return value is not None and not np.issubdtype(value.dtype, np.integer) and value.dtype != np.bool_


def element_type(value: Array | None) -> int:
    return TensorProto.UNDEFINED if value is None else int(helper.np_dtype_to_tensor_dtype(value.dtype))


class Draw:
    """Draws what an operator of one opset takes."""

    def __init__(self, op: str, opset: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.op = op
        self.schema = defs.get_schema(op, opset)
        self.is_special = self.random.random() < 0.2

    def chance(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def pick(self, *items: Any) -> Any:
        return self.random.choice(items)

    def dtype(self, constraint: str = "T", only: tuple[str, ...] = tuple(DTYPES)) -> Any:
        found = next((one for one in self.schema.type_constraints if one.type_param_str == constraint), None)
        if found is None:
            return np.float32
        usable = [name for name in found.allowed_type_strs if name in DTYPES and name in only]
        if not usable:
            raise NotDrawnError
        return DTYPES["tensor(float)" if "tensor(float)" in usable and self.chance(0.25) else self.pick(*usable)]

    def first_dtype(self) -> Any:
        return self.dtype(self.schema.inputs[0].type_str)

    def shape(self, least: int = 0, most: int = 4) -> Shape:
        sizes = [1, 2, 3, 4, 5] if self.chance(0.9) else [0, 1, 2]
        return tuple(self.pick(*sizes) for _ in range(self.random.randint(least, most)))

    def array(self, shape: Shape, dtype: Any, low: float = -4, high: float = 4) -> Array:
        kind = np.dtype(dtype)
        if kind == np.bool_:
            return np.asarray(self.numbers.random(shape) < 0.5)
        if np.issubdtype(kind, np.integer):
            least = max(low, 0) if np.issubdtype(kind, np.unsignedinteger) else low
            made = np.asarray(self.numbers.integers(int(least), int(high) + 1, shape)).astype(kind)
            if self.is_special and made.size and low < 0:
                limits = np.iinfo(kind)
                made.reshape(-1)[self.random.randrange(made.size)] = self.pick(limits.min, limits.max)
            return np.asarray(made)
        values = np.asarray(self.numbers.uniform(low, high, shape)).astype(kind)
        if self.chance(0.2):
            values = np.asarray(np.round(values.astype(np.float64) * 2) / 2).astype(kind)  # ties
        if self.is_special and values.size:
            for _ in range(2):
                place = self.random.randrange(values.size)
                values.reshape(-1)[place] = self.pick(np.nan, np.inf, -np.inf, 0.0, -0.0)
        return values

    def axis(self, rank: int) -> int:
        return self.random.randrange(-rank, rank) if rank else 0

    def axes(self, rank: int) -> list[int]:
        chosen = self.random.sample(range(rank), self.random.randint(0, rank))
        return [axis - rank if self.chance(0.4) else axis for axis in chosen]

    def smaller(self, shape: Shape) -> Shape:
        """What broadcasts with it."""
        kept = [1 if self.chance(0.3) else size for size in shape]
        return tuple(kept[self.random.randint(0, len(kept)) :])

    def some(self, **attributes: Any) -> dict[str, Any]:
        """Attributes that are left to their defaults half of the times."""
        return {name: value for name, value in attributes.items() if self.chance()}


class NotDrawnError(Exception):
    """The operator has nothing of that kind in this opset."""


Recipe = Callable[[Draw], Node]


def ints(*values: int) -> Array:
    return np.array(values, np.int64)
