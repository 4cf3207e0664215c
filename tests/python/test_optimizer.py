"""The optimizer changes no answer: random graphs, with sizes that change, before and after."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import exportguard
from exportguard import _core
from exportguard.errors import InvalidArgumentError
from exportguard.runners.evaluator import EvaluatorSession

Shape = tuple[int | str, ...]
SIZES = ({"b": 2, "s": 3}, {"b": 1, "s": 1}, {"b": 3, "s": 1}, {"b": 1, "s": 4}, {"b": 0, "s": 2})
FUSED = ("RMSNormalization", "LayerNormalization", "RotaryEmbedding", "Attention", "Gelu", "MatMul")
LOWEST = -3.4028234663852886e38


@dataclass(frozen=True)
class Operand:
    """A value of the graph under construction."""

    name: str
    dtype: str
    shape: Shape

    @property
    def type(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass
class GraphText:
    """Writes a graph in the text format, choosing what comes next with `draw`."""

    draw: Callable[[Any], Any]
    lines: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    values: list[Operand] = field(default_factory=list)

    def pick(self, wanted: Callable[[Operand], bool] = lambda _: True) -> Operand:
        return self.draw(st.sampled_from([value for value in self.values if wanted(value)]))

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def constant(self, dtype: str, shape: Shape, *elements: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = f"%{name}: {dtype}[{','.join(map(str, shape))}] = {{{', '.join(map(str, elements))}}}"
        return f"%{name}"

    def ints(self, *elements: int) -> str:
        return self.constant("i64", (len(elements),), *elements)

    def op(self, call: str, dtype: str, shape: Shape) -> Operand:
        value = Operand(f"%v{len(self.lines)}", dtype, shape)
        self.lines.append(f"  {value.name}: {value.type} = {call}")
        self.values.append(value)
        return value

    def sizes(self, value: Operand, shape: Shape) -> str:
        """int64[n] with these sizes: what changes is read off `value`, which has it."""
        parts = [
            self.op(
                f"Shape({value.name}) {{start={value.shape.index(d)}, end={value.shape.index(d) + 1}}}", "i64", (1,)
            ).name
            if isinstance(d, str)
            else self.ints(d)
            for d in shape
        ]
        return self.op(f"Concat({', '.join(parts)}) {{axis=0}}", "i64", (len(parts),)).name

    def text(self, outputs: int) -> str:
        inputs = ["%x: f32[b,s,4]", "%y: f32[b,s,4]", "%n: i64[b,s]", *self.constants.values()]
        kept = ", ".join(value.name for value in self.values[-outputs:])
        return "\n".join(["opset 25", f"graph({', '.join(inputs)}):", *self.lines, f"  return ({kept})", ""])


def is_float(value: Operand) -> bool:
    return value.dtype == "f32"


def unary(graph: GraphText) -> None:
    x = graph.pick(is_float)
    graph.op(f"{graph.choose('Neg', 'Abs', 'Sigmoid', 'Cos', 'Sin', 'Identity')}({x.name})", x.dtype, x.shape)


def with_number(graph: GraphText) -> None:
    x = graph.pick(lambda value: value.dtype in ("f32", "i64"))
    number = graph.choose("0", "1", "2") if x.dtype == "i64" else graph.choose("0.0", "-0.0", "1.0", "-1.0", "2.0")
    shape: Shape = graph.choose((), (1,), (1,) * len(x.shape))
    operands = [x.name, graph.constant(x.dtype, shape, number)]
    operators = ("Add", "Sub", "Mul") if x.dtype == "i64" or number in ("0.0", "-0.0") else ("Add", "Sub", "Mul", "Div")
    if graph.choose(False, True):
        operands.reverse()
    rank = max(len(x.shape), len(shape))
    graph.op(f"{graph.choose(*operators)}({', '.join(operands)})", x.dtype, (1,) * (rank - len(x.shape)) + x.shape)


def binary(graph: GraphText) -> None:
    a = graph.pick()
    b = graph.pick(lambda value: (value.dtype, value.shape) == (a.dtype, a.shape))
    operators = ("And", "Or") if a.dtype == "bool" else ("Add", "Sub", "Mul")
    graph.op(f"{graph.choose(*operators)}({a.name}, {b.name})", a.dtype, a.shape)


def cast(graph: GraphText) -> None:
    x = graph.pick(lambda value: value.dtype in ("f32", "f16", "bool"))
    number, dtype = (
        graph.choose((1, "f32"), (10, "f16"), (9, "bool"))
        if x.dtype != "bool"
        else graph.choose((1, "f32"), (7, "i64"))
    )
    graph.op(f"Cast({x.name}) {{to={number}}}", dtype, x.shape)


def transpose(graph: GraphText) -> None:
    x = graph.pick(lambda value: len(value.shape) > 1)
    order = graph.choose(*itertools.permutations(range(len(x.shape))))
    graph.op(f"Transpose({x.name}) {{perm={list(order)}}}", x.dtype, tuple(x.shape[i] for i in order))


def unsqueeze(graph: GraphText) -> None:
    x = graph.pick(lambda value: len(value.shape) < 5)
    axis = graph.choose(*range(len(x.shape) + 1))
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    written = graph.choose(axis, axis - len(shape))
    graph.op(f"Unsqueeze({x.name}, {graph.ints(written)})", x.dtype, shape)


def squeeze(graph: GraphText) -> None:
    if not any(1 in value.shape and len(value.shape) > 1 for value in graph.values):
        return
    x = graph.pick(lambda value: 1 in value.shape and len(value.shape) > 1)
    axis = graph.choose(*(i for i, size in enumerate(x.shape) if size == 1))
    graph.op(f"Squeeze({x.name}, {graph.ints(axis)})", x.dtype, x.shape[:axis] + x.shape[axis + 1 :])


def reshape(graph: GraphText) -> None:
    x = graph.pick(lambda value: 4 in value.shape or 2 in value.shape)
    axis = graph.choose(*(i for i, size in enumerate(x.shape) if size in (2, 4)))
    parts: Shape = graph.choose((2, 2), (1, 4), (4, 1)) if x.shape[axis] == 4 else (2, 1)
    target = (*x.shape[:axis], *parts, *x.shape[axis + 1 :])
    split = graph.op(f"Reshape({x.name}, {graph.sizes(x, target)}) {{allowzero=1}}", x.dtype, target)
    if graph.choose(False, True):
        graph.op(f"Reshape({split.name}, {graph.sizes(split, x.shape)}) {{allowzero=1}}", x.dtype, x.shape)


def expand(graph: GraphText) -> None:
    x = graph.pick(lambda value: value.dtype != "bool")
    target: Shape = tuple(graph.choose(1, size) for size in x.shape)
    graph.op(f"Expand({x.name}, {graph.sizes(x, target)})", x.dtype, x.shape)


def halves(graph: GraphText) -> None:
    x = graph.pick(lambda value: value.dtype == "f32" and value.shape[-1:] in ((4,), (2,)))
    size = int(x.shape[-1])
    axis, last = len(x.shape) - 1, graph.choose(2**63 - 1, size)
    start, end = graph.choose((0, size // 2), (size // 2, last), (0, last))
    count = min(end, size) - start
    part = graph.op(
        f"Slice({x.name}, {graph.ints(start)}, {graph.ints(end)}, {graph.ints(axis)}, {graph.ints(1)})",
        "f32",
        (*x.shape[:-1], count),
    )
    graph.op(f"Concat({part.name}, {part.name}) {{axis=-1}}", "f32", (*x.shape[:-1], 2 * count))


def norm(graph: GraphText) -> None:
    x = graph.pick(lambda value: value.dtype == "f32" and value.shape[-1:] == (4,))
    square = graph.op(f"Mul({x.name}, {graph.choose(x, graph.pick(lambda v: v.type == x.type)).name})", "f32", x.shape)
    axis = graph.choose(len(x.shape) - 1, -1, 0)
    shape = tuple(1 if i == axis % len(x.shape) else size for i, size in enumerate(x.shape))
    mean = graph.op(f"ReduceMean({square.name}, {graph.ints(axis)}) {{keepdims=1}}", "f32", shape)
    absolute = (
        graph.op(f"Abs({mean.name})", "f32", shape)
        if square.name != x.name and graph.choose(False, False, True)
        else mean
    )
    shifted = graph.op(f"Add({absolute.name}, {graph.constant('f32', (), 0.25)})", "f32", shape)
    root = graph.op(f"Sqrt({shifted.name})", "f32", shape)
    normed = graph.op(f"Div({x.name}, {root.name})", "f32", x.shape)
    weight = graph.constant("f32", graph.choose((4,), (1, 4)), 1.0, 2.0, -0.5, 0.25)
    if len(x.shape) > 1 and graph.choose(False, True):
        graph.op(f"Mul({weight}, {normed.name})", "f32", x.shape)


def rotation(graph: GraphText) -> None:
    if not any(value.type == "f32[b,s,2,2]" for value in graph.values):
        x = graph.pick(lambda value: value.type == "f32[b,s,4]")
        graph.op(f"Reshape({x.name}, {graph.sizes(x, ('b', 's', 2, 2))})", "f32", ("b", "s", 2, 2))
    x = graph.pick(lambda value: value.type == "f32[b,s,2,2]")
    x = graph.op(f"Transpose({x.name}) {{perm=[0, 2, 1, 3]}}", "f32", ("b", 2, "s", 2))
    table = graph.pick(lambda value: value.type == "f32[b,s,4]")
    first = graph.op(f"Slice({table.name}, {graph.ints(0)}, {graph.ints(1)}, {graph.ints(2)})", "f32", ("b", "s", 1))
    whole = graph.op(f"Concat({first.name}, {first.name}) {{axis=-1}}", "f32", ("b", "s", 2))
    wide = graph.op(f"Unsqueeze({whole.name}, {graph.ints(1)})", "f32", ("b", 1, "s", 2))
    cos, sin = (graph.op(f"{name}({wide.name})", "f32", wide.shape) for name in ("Cos", graph.choose("Sin", "Cos")))
    low, high = (
        graph.op(f"Slice({x.name}, {graph.ints(i)}, {graph.ints(i + 1)}, {graph.ints(-1)})", "f32", ("b", 2, "s", 1))
        for i in range(2)
    )
    negated = graph.op(f"Neg({graph.choose(high, high, low).name})", "f32", low.shape)
    turned = graph.op(f"Concat({negated.name}, {graph.choose(low, low, high).name}) {{axis=3}}", "f32", x.shape)
    straight = graph.op(f"Mul({x.name}, {cos.name})", "f32", x.shape)
    crossed = graph.op(f"Mul({sin.name}, {turned.name})", "f32", x.shape)
    graph.op(f"Add({straight.name}, {crossed.name})", "f32", x.shape)


def gelu(graph: GraphText) -> None:
    x = graph.pick(is_float)
    other = graph.choose(x, x, graph.pick(lambda value: value.type == x.type))
    scaled = graph.op(f"Div({x.name}, {graph.constant('f32', (), graph.choose(2**0.5, 2**0.5, 1.5))})", "f32", x.shape)
    curve = graph.op(f"Erf({scaled.name})", "f32", x.shape)
    moved = graph.op(f"Add({curve.name}, {graph.constant('f32', (), 1.0)})", "f32", x.shape)
    half = graph.constant("f32", graph.choose((), (1,)), 0.5)
    first, last = graph.choose((moved.name, half), (half, moved.name))
    product = graph.op(f"Mul({other.name}, {first})", "f32", x.shape or ((1,) if first == half else ()))
    graph.op(f"Mul({last}, {product.name})", "f32", product.shape)


def layer_norm(graph: GraphText) -> None:
    x = graph.pick(lambda value: value.dtype == "f32" and value.shape[-1:] == (4,))
    axis, shape = graph.ints(graph.choose(-1, len(x.shape) - 1)), (*x.shape[:-1], 1)
    mean = graph.op(f"ReduceMean({x.name}, {axis}) {{keepdims=1}}", "f32", shape)
    from_other = graph.choose(x, x, graph.pick(lambda value: value.type == x.type))
    centered = graph.op(f"Sub({from_other.name}, {mean.name})", "f32", x.shape)
    square = graph.op(f"Mul({centered.name}, {centered.name})", "f32", x.shape)
    variance = graph.op(f"ReduceMean({square.name}, {axis}) {{keepdims=1}}", "f32", shape)
    shifted = graph.op(f"Add({variance.name}, {graph.constant('f32', (), 0.25)})", "f32", shape)
    root = graph.op(f"Sqrt({shifted.name})", "f32", shape)
    normed = graph.op(f"Div({centered.name}, {root.name})", "f32", x.shape)
    weighted = graph.op(f"Mul({normed.name}, {graph.constant('f32', (4,), 1.0, 2.0, -0.5, 0.25)})", "f32", x.shape)
    if graph.choose(False, True):
        graph.op(f"Add({weighted.name}, {graph.constant('f32', (4,), 0.0, 1.0, 2.0, 3.0)})", "f32", x.shape)


def by_heads(graph: GraphText) -> Operand:
    """[b, 2, s, 2] of something that is [b, s, 4]."""
    x = graph.pick(lambda value: value.type == "f32[b,s,4]")
    split = graph.op(f"Reshape({x.name}, {graph.ints(0, 0, 2, 2)})", "f32", ("b", "s", 2, 2))
    return graph.op(f"Transpose({split.name}) {{perm=[0, 2, 1, 3]}}", "f32", ("b", 2, "s", 2))


def attention(graph: GraphText) -> None:
    query, key, value = (by_heads(graph) for _ in range(3))
    swapped = graph.op(f"Transpose({key.name}) {{perm=[0, 1, 3, 2]}}", "f32", ("b", 2, 2, "s"))
    shape: Shape = ("b", 2, "s", "s")
    scores = graph.op(f"MatMul({query.name}, {swapped.name})", "f32", shape)
    scale = graph.constant("f32", (), graph.choose(0.5, -0.5, 2.0))
    scores = graph.op(f"{graph.choose('Mul', 'Div')}({scores.name}, {scale})", "f32", shape)
    if graph.choose(False, True):
        cap = graph.constant("f32", (), 3.0)
        inner = graph.op(f"Tanh({graph.op(f'Div({scores.name}, {cap})', 'f32', shape).name})", "f32", shape)
        scores = graph.op(f"Mul({inner.name}, {cap})", "f32", shape)
    seen = graph.op(f"Greater(%n, {graph.constant('i64', (), graph.choose(-2, 0, 2))})", "bool", ("b", "s"))
    seen = graph.op(f"Unsqueeze({seen.name}, {graph.ints(1, 2)})", "bool", ("b", 1, 1, "s"))
    low, zero = graph.constant("f32", (), graph.choose(LOWEST, LOWEST, "-inf", -2.0)), graph.constant("f32", (), 0.0)
    kind = graph.choose("none", "added", "chosen")
    if kind == "added":
        mask = graph.op(f"Where({seen.name}, {zero}, {low})", "f32", seen.shape)
        scores = graph.op(f"Add({scores.name}, {mask.name})", "f32", shape)
    if kind == "chosen":
        scores = graph.op(f"Where({seen.name}, {scores.name}, {low})", "f32", shape)
    weights = graph.op(f"Softmax({scores.name}) {{axis={graph.choose(-1, 3, 3, 2)}}}", "f32", shape)
    result = graph.op(f"MatMul({weights.name}, {value.name})", "f32", ("b", 2, "s", 2))
    if graph.choose(False, True):
        graph.op(f"Transpose({result.name}) {{perm=[0, 2, 1, 3]}}", "f32", ("b", "s", 2, 2))


def slices(graph: GraphText) -> None:
    x = graph.pick(lambda value: value.dtype == "f32" and value.shape[-1:] == (4,))
    for start, end in graph.choose(((0, 1), (1, 4)), ((2, 4), (0, 2)), ((0, 2), (1, 4)), ((0, 1), (1, 3), (3, 4))):
        bounds = f"{graph.ints(start)}, {graph.ints(end)}, {graph.ints(-1)}"
        graph.op(f"Slice({x.name}, {bounds})", "f32", (*x.shape[:-1], end - start))


def linear(graph: GraphText) -> None:
    x = graph.pick(lambda value: value.type == "f32[b,s,4]")
    rows = graph.op(f"Reshape({x.name}, {graph.ints(-1, 4)})", "f32", ("b*s", 4))
    weight = graph.constant("f32", (4, 4), *range(-8, 8))
    bias = graph.constant("f32", (4,), 1.0, 2.0, 3.0, 4.0)
    product = graph.op(f"Gemm({rows.name}, {weight}, {bias}) {{transB={graph.choose(0, 1)}}}", "f32", ("b*s", 4))
    graph.op(f"Reshape({product.name}, {graph.sizes(x, x.shape)})", "f32", x.shape)


def pairs(graph: GraphText) -> None:
    """A rotation of neighbours, or nearly one."""
    x = by_heads(graph)
    table = graph.pick(lambda value: value.type == "f32[b,s,4]")
    first = graph.op(f"Slice({table.name}, {graph.ints(0)}, {graph.ints(1)}, {graph.ints(2)})", "f32", ("b", "s", 1))
    column = graph.op(f"Unsqueeze({first.name}, {graph.ints(1, 4)})", "f32", ("b", 1, "s", 1, 1))
    twice = graph.op(f"Expand({column.name}, {graph.ints(1, 1, 1, 1, 2)})", "f32", ("b", 1, "s", 1, 2))
    width = ("b", 1, "s", 2)
    whole = graph.op(f"Reshape({twice.name}, {graph.sizes(first, width)}) {{allowzero=1}}", "f32", width)
    cos, sin = (graph.op(f"{name}({whole.name})", "f32", whole.shape) for name in ("Cos", graph.choose("Sin", "Cos")))
    even, odd = (
        graph.op(
            f"Slice({x.name}, {graph.ints(i)}, {graph.ints(2)}, {graph.ints(3)}, {graph.ints(2)})",
            "f32",
            ("b", 2, "s", 1),
        )
        for i in range(2)
    )
    negated = graph.op(f"Neg({graph.choose(odd, odd, even).name})", "f32", odd.shape)
    columns = [
        graph.op(f"Unsqueeze({part.name}, {graph.ints(4)})", "f32", ("b", 2, "s", 1, 1)).name
        for part in (negated, graph.choose(even, even, odd))
    ]
    stacked = graph.op(f"Concat({', '.join(columns)}) {{axis=-1}}", "f32", ("b", 2, "s", 1, 2))
    turned = graph.op(f"Reshape({stacked.name}, {graph.sizes(x, x.shape)}) {{allowzero=1}}", "f32", x.shape)
    straight = graph.op(f"Mul({x.name}, {cos.name})", "f32", x.shape)
    crossed = graph.op(f"Mul({turned.name}, {sin.name})", "f32", x.shape)
    graph.op(f"Add({straight.name}, {crossed.name})", "f32", x.shape)


STEPS = (
    unary, with_number, binary, cast, transpose, unsqueeze, squeeze, reshape, expand, halves, norm, rotation, gelu,
    layer_norm, attention, slices, linear, pairs,
)  # fmt: skip


@st.composite
def graphs(draw: Callable[[Any], Any]) -> str:
    graph = GraphText(draw)
    graph.values += [
        Operand("%x", "f32", ("b", "s", 4)),
        Operand("%y", "f32", ("b", "s", 4)),
        Operand("%n", "i64", ("b", "s")),
    ]
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=14)):
        step(graph)
    return graph.text(min(4, len(graph.lines)) or 1)


def run(model: _core.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    if any(value.size == 0 for value in feeds.values()):  # onnxruntime's Attention fails then, and Reshape with -1
        outputs = EvaluatorSession(model).run({name: torch.from_numpy(value) for name, value in feeds.items()})
        return [output.numpy() for output in outputs]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(_core.to_bytes(model), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})


def feeds_of(sizes: dict[str, int], *, finite: bool = True) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    b, s = sizes["b"], sizes["s"]
    x = random.standard_normal((b, s, 4), np.float32)
    x.flat[::5] = 0.0
    x.flat[2::7] = -0.0
    if not finite:
        x.flat[1::9], x.flat[3::8], x.flat[4::11] = np.nan, np.inf, -np.inf
    return {"x": x, "y": random.standard_normal((b, s, 4), np.float32), "n": random.integers(-3, 4, (b, s))}


def assert_unchanged(text: str, sizes: dict[str, int], target: str, *, finite: bool) -> None:
    before, after = _core.Model.parse(text), _core.Model.parse(text)
    _core.optimize(after, target=target)
    after.verify()
    text = after.text()
    is_hidden = "Attention(" in text and "Where(" in text  # a score that is no number shows where a key is hidden
    feeds = feeds_of(sizes, finite=finite or is_hidden)
    is_fused = any(name in text for name in FUSED)
    for expected, got in zip(run(before, feeds), run(after, feeds), strict=True):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-3 if got.dtype == np.float16 else 1e-5, atol=1e-6)
        if not is_fused and got.dtype.kind == "f":
            is_number = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(got[is_number]), np.signbit(expected[is_number]))


@given(
    text=graphs(),
    sizes=st.sampled_from(SIZES),
    target=st.sampled_from(["portable", "onnxruntime"]),
    finite=st.booleans(),
)
@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_random_graph_keeps_its_outputs(text: str, sizes: dict[str, int], target: str, finite: bool) -> None:
    assert_unchanged(text, sizes, target, finite=finite)


class Block(torch.nn.Module):
    """Attention with a cache, grouped heads, a bool mask and a norm, as language models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.Parameter(torch.rand(16))
        self.query, self.key, self.value = (torch.nn.Linear(16, n, bias=False) for n in (16, 8, 8))

    def forward(self, x: torch.Tensor, mask: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor]) -> object:
        y = self.norm * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        batch, seq, _ = y.shape
        q = self.query(y).view(batch, seq, 4, 4).transpose(1, 2)
        key = torch.cat([past[0], self.key(y).view(batch, seq, 2, 4).transpose(1, 2)], 2)
        value = torch.cat([past[1], self.value(y).view(batch, seq, 2, 4).transpose(1, 2)], 2)
        shape = (batch, 2, 2, key.shape[2], 4)
        keys, values = (t[:, :, None].expand(shape).reshape(batch, 4, key.shape[2], 4) for t in (key, value))
        z = torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return z.transpose(1, 2).reshape(batch, seq, 16), key, value


def block_inputs(
    batch: int, seq: int, past: int
) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    mask = torch.ones(seq, past + seq, dtype=torch.bool).tril(past).repeat(batch, 1, 1, 1)
    mask[0, :, 0] = False  # a query that sees no key
    return torch.randn(batch, seq, 16), mask, (torch.randn(batch, 2, past, 4), torch.randn(batch, 2, past, 4))


BLOCK_SHAPES = ({0: "batch", 1: "seq"}, {0: "batch", 2: "seq", 3: "total"}, {0: "batch", 2: "past"})


@pytest.fixture(scope="module")
def block() -> tuple[Block, exportguard.OnnxModel]:
    module = Block().eval()
    return module, exportguard.to_onnx(module, block_inputs(2, 3, 5), dynamic_shapes=BLOCK_SHAPES, opset=23)


@pytest.mark.parametrize(("batch", "seq", "past"), [(2, 3, 5), (1, 1, 7), (3, 4, 0), (1, 2, 1)])
def test_a_block_of_a_language_model_is_fused_and_right(
    block: tuple[Block, exportguard.OnnxModel], batch: int, seq: int, past: int
) -> None:
    module, model = block
    assert model.text().count("Attention(") == 1
    assert "RMSNormalization" in model.text()
    assert not any(name in model.text() for name in ("Softmax", "Transpose", "Concat", "Expand"))
    x, mask, cache = block_inputs(batch, seq, past)
    expected = module(x, mask, cache)
    names = [value.name for value in model.inputs]
    got = model.run(dict(zip(names, (x, mask, *cache), strict=True)))
    for one, reference in zip(got.values(), expected, strict=True):
        torch.testing.assert_close(one, reference, rtol=1e-4, atol=1e-5)


def test_a_head_of_keys_that_torch_broadcasts_is_shared() -> None:
    class Shared(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    module = Shared().eval()
    mask = torch.rand(2, 1, 3, 5) > 0.5
    mask[0, :, 1] = False  # a query that sees no key
    args = (torch.randn(2, 4, 3, 8), torch.randn(2, 1, 5, 8), torch.randn(2, 1, 5, 8), mask)
    model = exportguard.to_onnx(module, args, opset=23)
    assert "Attention(" in model.text()
    got = model.run(dict(zip([value.name for value in model.inputs], args, strict=True)))
    torch.testing.assert_close(next(iter(got.values())), module(*args), rtol=1e-4, atol=1e-5)


def test_without_optimization_nothing_is_fused() -> None:
    model = exportguard.to_onnx(
        Block().eval(), block_inputs(2, 3, 5), dynamic_shapes=BLOCK_SHAPES, opset=23, optimize=False
    )
    assert "Softmax" in model.text()
    assert model.report() is None
    report = model.optimize()
    assert model.report() is report
    assert report.nodes_after == model.node_count < report.nodes_before
    assert "rms_norm: 1 times" in str(report)


def test_a_wrong_word_for_optimize_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError, match="optimize must be True, False, 'onnxruntime' or 'onnxruntime-genai', got 'fast'"
    ):
        exportguard.to_onnx(torch.nn.ReLU(), (torch.rand(2),), optimize="fast")  # type: ignore[arg-type]


def test_an_unknown_pattern_is_refused() -> None:
    model = exportguard.to_onnx(torch.nn.ReLU(), (torch.rand(2),))
    with pytest.raises(InvalidArgumentError, match="no pattern or pass is named 'everything'"):
        model.optimize(patterns=["everything"])


def test_a_tied_weight_is_written_once(tmp_path: Path) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(1000, 64)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.embedding(ids) @ self.embedding.weight.T

    model = exportguard.to_onnx(Tied().eval(), (torch.zeros(1, 3, dtype=torch.int64),))
    assert model.save(tmp_path / "tied.onnx", external_data="never").stat().st_size < 1000 * 64 * 4 * 1.1


def test_what_many_layers_do_not_need_is_left_out() -> None:
    layers = 10000
    lines = ["opset 25", "graph(%x: f32[b,4]):"]
    for i in range(layers):
        source = f"%v{i - 1}" if i else "%x"
        lines.append(f"  %s{i}: i64[1] = Shape({source}) {{start=0, end=1}}")
        lines.append(f"  %i{i}: f32[b,4] = Identity({source})")
        lines.append(f"  %v{i}: f32[b,4] = Exp(%i{i})")
    model = _core.Model.parse("\n".join([*lines, f"  return (%v{layers - 1}, %s{layers - 1})", ""]))
    report = _core.optimize(model)
    assert report["nodes_after"] == layers + 1


def test_the_document_has_every_pattern() -> None:
    document = (Path(__file__).parents[2] / "docs" / "optimizer.md").read_text(encoding="utf-8")
    for name, matches, makes, *_ in _core.optimizer_patterns():
        assert f"| `{name}` | {matches} | {makes} |" in document, "run tools/optimizer_document.py"
