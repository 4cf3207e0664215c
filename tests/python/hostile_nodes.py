"""Nodes that no exporter writes: every operator of ONNX, and of com.microsoft, with random inputs and attributes.

python tests/python/hostile_nodes.py --rounds 1000 --seed 1      # more than the test does
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from onnx import TensorProto, defs, helper

from exportguard.errors import ExportGuardError
from exportguard.runners.evaluator import EvaluatorSession

NEWEST_OPSET = 25
DTYPES = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.INT64: torch.int64,
    TensorProto.INT32: torch.int32,
    TensorProto.UINT8: torch.uint8,
    TensorProto.INT8: torch.int8,
    TensorProto.UINT64: torch.uint64,
    TensorProto.BOOL: torch.bool,
    TensorProto.FLOAT8E4M3FN: torch.float8_e4m3fn,
    TensorProto.COMPLEX64: torch.complex64,
}
INTEGERS = [-(2**63), -5, -2, -1, 0, 1, 2, 3, 7, 2**31, 2**62, 2**63 - 1]
FLOATS = [-1.0, 0.0, 0.5, 1.0, 2.0, 1e30, float("inf"), float("nan")]
TEXTS = [
    "",
    "linear",
    "nearest",
    "cubic",
    "SAME_UPPER",
    "max",
    "none",
    "LEFT",
    "bidirectional",
    "ij,jk->ik",
    "i...",
    "(",
]
SIZES = [0, 1, 1, 2, 2, 3, 4]


_KINDS = defs.OpSchema.AttrType
MICROSOFT = "com.microsoft"

#: Operators of onnxruntime's own that an optimizer writes: their inputs at the most, and their attributes.
MICROSOFT_OPERATORS: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "SkipLayerNormalization": (5, {"epsilon": _KINDS.FLOAT}),
    "SkipSimplifiedLayerNormalization": (4, {"epsilon": _KINDS.FLOAT}),
    "BiasGelu": (2, {}),
    "FastGelu": (2, {}),
    "BiasSoftmax": (2, {"axis": _KINDS.INT, "is_inner_broadcast": _KINDS.INT}),
    "BiasAdd": (3, {}),
    "QuantizeLinear": (3, {"axis": _KINDS.INT}),
    "DequantizeLinear": (3, {"axis": _KINDS.INT}),
    "Gelu": (1, {}),
    "QuickGelu": (1, {"alpha": _KINDS.FLOAT}),
    "FusedMatMul": (2, dict.fromkeys(("transA", "transB", "transBatchA", "transBatchB"), _KINDS.INT)),
    "MatMulNBits": (6, dict.fromkeys(("K", "N", "bits", "block_size", "accuracy_level"), _KINDS.INT)),
    "RotaryEmbedding": (4, dict.fromkeys(("interleaved", "num_heads", "rotary_embedding_dim"), _KINDS.INT)),
    "GroupQueryAttention": (
        9,
        dict.fromkeys(("num_heads", "kv_num_heads", "do_rotary", "local_window_size", "smooth_softmax"), _KINDS.INT),
    ),
    "MultiHeadAttention": (10, {"num_heads": _KINDS.INT, "unidirectional": _KINDS.INT, "scale": _KINDS.FLOAT}),
}


@dataclass(frozen=True)
class Operator:
    """What of an operator's schema is drawn from."""

    name: str
    domain: str
    inputs: range
    outputs: int
    attributes: Mapping[str, Any]


def operators() -> list[Operator]:
    """The operators of ONNX without graphs among their attributes, and those of onnxruntime."""
    own = [
        Operator(
            schema.name,
            "",
            range(min(schema.min_input, 8), min(schema.max_input, 8) + 1),
            min(max(schema.min_output, 1), 4),
            {name: one.type for name, one in schema.attributes.items()},
        )
        for schema in schemas()
    ]
    others = MICROSOFT_OPERATORS.items()
    return [*own, *(Operator(name, MICROSOFT, range(1, most + 1), 1, kinds) for name, (most, kinds) in others)]


def schemas() -> list[defs.OpSchema]:
    """The operators of ONNX without graphs among their attributes."""
    names = sorted({schema.name for schema in defs.get_all_schemas() if schema.domain == ""})
    found = [defs.get_schema(name, NEWEST_OPSET, "") for name in names if has_schema(name)]
    return [schema for schema in found if not any(is_graph(one) for one in schema.attributes.values())]


def has_schema(name: str) -> bool:
    """Whether the operator is in the newest opset that is supported."""
    return defs.has(name, NEWEST_OPSET, "")


def is_graph(attribute: Any) -> bool:
    """Whether it is a body."""
    return attribute.type in (defs.OpSchema.AttrType.GRAPH, defs.OpSchema.AttrType.GRAPHS)


def random_tensor(draw: random.Random) -> tuple[int, torch.Tensor]:
    """Small, of any rank up to 5, with numbers that are far out now and then."""
    kind = draw.choice([TensorProto.FLOAT, TensorProto.INT64, draw.choice(list(DTYPES))])
    shape = [draw.choice(SIZES) for _ in range(draw.randint(0, 5))]
    dtype = DTYPES[kind]
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    if dtype.is_floating_point or dtype.is_complex:
        numbers = torch.randn(shape, generator=generator)
        return kind, numbers.to(dtype)
    if draw.random() < 0.2 and dtype == torch.int64:
        count = torch.Size(shape).numel()
        return kind, torch.tensor([draw.choice(INTEGERS) for _ in range(count)]).reshape(shape).to(torch.int64)
    return kind, torch.randint(-2, 4, shape, generator=generator).to(dtype)


def random_attribute(draw: random.Random, kind: Any) -> Any:
    """A value of that kind, nothing for those that are not drawn."""
    types = defs.OpSchema.AttrType
    draws = {
        types.INT: lambda: draw.choice(INTEGERS[1:9]) if draw.random() < 0.9 else draw.choice(INTEGERS),
        types.FLOAT: lambda: draw.choice(FLOATS),
        types.STRING: lambda: draw.choice(TEXTS),
        types.INTS: lambda: [draw.choice(INTEGERS[1:8]) for _ in range(draw.randint(1, 4))],
        types.FLOATS: lambda: [draw.choice(FLOATS) for _ in range(draw.randint(1, 4))],
        types.STRINGS: lambda: [draw.choice(TEXTS) for _ in range(draw.randint(1, 3))],
    }
    return draws[kind]() if kind in draws else None


def random_model(draw: random.Random, operator: Operator) -> tuple[bytes, dict[str, torch.Tensor]]:
    """One node of that operator, and what it is given."""
    count = draw.choice(operator.inputs) if draw.random() < 0.8 else draw.randint(0, 8)
    tensors = {f"x{i}": random_tensor(draw) for i in range(count)}
    given = {name: value for name, value in tensors.items() if draw.random() < 0.9}
    attributes = {}
    for name, kind in operator.attributes.items():
        value = random_attribute(draw, kind) if draw.random() < 0.4 else None
        if value is not None:
            attributes[name] = value
    outputs = [f"y{i}" for i in range(operator.outputs)]
    names = [name if name in given else "" for name in tensors]
    node = helper.make_node(operator.name, names, outputs, domain=operator.domain, **attributes)
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, (kind, _) in given.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    imports = [helper.make_opsetid("", NEWEST_OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(helper.make_graph([node], "main", inputs, results), opset_imports=imports)
    return model.SerializeToString(), {name: value for name, (_, value) in given.items()}


def run_all(rounds: int, seed: int) -> Iterator[tuple[str, bool]]:
    """Each operator and whether it ran; whatever is not an error of this library passes on."""
    draw = random.Random(seed)
    for operator in operators():
        for _ in range(rounds):
            model, inputs = random_model(draw, operator)
            try:
                EvaluatorSession(model).run(inputs)
                yield operator.name, True
            except ExportGuardError:
                yield operator.name, False


def main() -> None:
    """Prints how many nodes ran and how many were refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ran = refused = 0
    for _, is_run in run_all(options.rounds, options.seed):
        ran += is_run
        refused += not is_run
    print(f"{ran} nodes ran, {refused} were refused")


if __name__ == "__main__":
    main()
