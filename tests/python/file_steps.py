"""What random ONNX files are made of: operators that move elements or compute, groups that are fused, nested graphs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from file_generator import DTYPES, FLOATS, INTEGERS, Generator, RandomFile, Scope, Shape, Step, Tensor

# ------------------------------------------------------------------------------------------------ single operators


def joined(a: Shape, b: Shape) -> Shape | None:
    """The shape of two that are stretched to each other at all sizes of the axes; None if they need not fit."""
    length = max(len(a), len(b))
    pairs = zip((1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b, strict=True)
    dims = [x if y == 1 else y if x in (1, y) else None for x, y in pairs]
    return None if None in dims else tuple(dim for dim in dims if dim is not None)


def unary(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, *FLOATS)
    op = g.draw.choice(("Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Floor", "Identity", "Sign", "Erf"))
    g.add(scope, op, [x], x.dtype, x.shape)


def flags(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, "bool")
    for _ in range(g.draw.choice((1, 2))):
        x = g.add(scope, "Not", [x], "bool", x.shape)


def binary(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, *FLOATS, *INTEGERS, "u8")
    y = g.draw.choice([v for v in scope.values if v.dtype == x.dtype][-6:])
    shape = joined(x.shape, y.shape)
    op = g.draw.choice(("Add", "Sub", "Mul", "Min", "Max") + (("Div",) if x.dtype in FLOATS else ()))
    if shape is not None and not (x.dtype == "u8" and op == "Sub"):
        g.add(scope, op, [x, y], x.dtype, shape)


def with_number(g: Generator, scope: Scope) -> None:
    """Neutral numbers among them, before and behind, which may add an axis."""
    x = g.pick(scope, *FLOATS, *INTEGERS)
    op = g.draw.choice(("Add", "Sub", "Mul", "Div", "Pow"))
    y = g.number(x.dtype, 1, 1, 2) if op in ("Div", "Pow") else g.number(x.dtype, 0, -0.0, 1, 2)
    pair = [x, y] if op in ("Div", "Pow") or g.draw.random() < 0.6 else [y, x]
    shape = joined(x.shape, y.shape)
    if shape is not None:
        g.add(scope, op, pair, x.dtype, shape)


def logic(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, "bool")
    y = g.constant(np.array(g.draw.choice((True, False)))) if g.draw.random() < 0.4 else g.pick(scope, "bool")
    shape = joined(x.shape, y.shape)
    if shape is not None:
        g.add(scope, g.draw.choice(("And", "Or", "Xor")), [x, y], "bool", shape)


def comparison(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, *FLOATS, *INTEGERS)
    y = g.number(x.dtype, 0, 1)
    shape = joined(x.shape, y.shape)
    if shape is not None:
        g.add(scope, g.draw.choice(("Less", "Greater", "Equal")), [x, y], "bool", shape)


def cast(g: Generator, scope: Scope) -> None:
    """To a dtype that holds every number of the first or not, and back."""
    x = g.pick(scope, *FLOATS, *INTEGERS, "bool", "u8")
    ways = {"f16": ("f32", "f64"), "f32": ("f64", "f16"), "f64": ("f32",), "i32": ("i64", "f32", "f64", "bool")}
    to = g.draw.choice(ways.get(x.dtype, ("f32", "i64", "i32", "f64") if x.dtype != "i64" else ("f64", "i32", "bool")))
    y = g.add(scope, "Cast", [x], to, x.shape, to=DTYPES[to][0])
    if g.draw.random() < 0.6:
        g.add(scope, "Cast", [y], x.dtype, x.shape, to=DTYPES[x.dtype][0])


def where(g: Generator, scope: Scope) -> None:
    x, condition = g.pick(scope, *FLOATS, *INTEGERS), g.pick(scope, "bool")
    y = g.number(x.dtype, 0, 1) if g.draw.random() < 0.5 else x
    shape = joined(condition.shape, joined(x.shape, y.shape) or x.shape)
    if shape is not None and joined(x.shape, y.shape) is not None:
        g.add(scope, "Where", [condition, *g.draw.sample([x, y], 2)], x.dtype, shape)


def reduction(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, *FLOATS)
    if not x.shape or x.shape[-1] == 0:
        return
    axis = g.draw.choice((-1, 0)) if isinstance(x.shape[-1], int) and x.shape[0] != "b" else -1
    keeps = g.draw.choice((0, 1))
    rest = [*x.shape]
    if isinstance(rest[axis], str):
        return  # a largest one of nothing is an error
    rest[axis] = 1
    if not keeps:
        del rest[axis]
    op = g.draw.choice(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"))
    g.add(scope, op, [x, g.ints(axis)], x.dtype, tuple(rest), keepdims=keeps)


def softmax(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, *FLOATS)
    if x.shape:
        g.add(scope, "Softmax", [x], x.dtype, x.shape, axis=g.draw.choice((-1, -1, 0)))


def matmul(g: Generator, scope: Scope) -> None:
    """With a weight, which may be read transposed, by several, and have a bias."""
    x = g.pick(scope, "f32", "f32", "f64")
    if len(x.shape) < 2 or x.shape[-1] != 4:
        return
    for _ in range(g.draw.choice((1, 2, 3))):
        weight = g.constant(_grid(g, (4, 4)).astype(DTYPES[x.dtype][1]), "weight")
        if g.draw.random() < 0.4:
            weight = g.add(scope, "Transpose", [weight], x.dtype, (4, 4), perm=[1, 0])
        y = g.add(scope, "MatMul", [x, weight], x.dtype, x.shape)
        if g.draw.random() < 0.5:
            bias = g.constant(_grid(g, (4,)).astype(DTYPES[x.dtype][1]), "bias")
            g.add(scope, "Add", g.draw.sample([y, bias], 2), x.dtype, x.shape)


def _grid(g: Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Quarters, so that sums of a few products are exact."""
    return np.array([g.draw.randint(-4, 4) / 4 for _ in range(int(np.prod(shape)))]).reshape(shape)


# ------------------------------------------------------------------------------------------------ places of elements


def transpose(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, *FLOATS, *INTEGERS, "bool")
    for _ in range(g.draw.choice((1, 2)) if x.shape else 0):
        order = g.draw.sample(range(len(x.shape)), len(x.shape))
        x = g.add(scope, "Transpose", [x], x.dtype, tuple(x.shape[i] for i in order), perm=order)


def unsqueezed(g: Generator, scope: Scope) -> None:
    """An axis is added, and may be taken away again, here or in another way."""
    x = g.pick(scope, *FLOATS, *INTEGERS)
    at = g.draw.randint(0, len(x.shape))
    y = g.add(scope, "Unsqueeze", [x, g.ints(at)], x.dtype, (*x.shape[:at], 1, *x.shape[at:]))
    way = g.draw.randint(0, 3)
    if way == 0:
        g.add(scope, "Squeeze", [y, g.ints(at)], x.dtype, x.shape)
    elif way == 1:
        g.add(scope, "Reshape", [y, g.add(scope, "Shape", [x], "i64", (len(x.shape),))], x.dtype, x.shape)
    elif way == 2 and len(x.shape) < 4:
        g.add(scope, "Unsqueeze", [y, g.ints(0)], x.dtype, (1, *y.shape))


def reshaped(g: Generator, scope: Scope) -> None:
    """By numbers, copied sizes, what is left over, or sizes that are read and joined."""
    x = g.pick(scope, *FLOATS, *INTEGERS)
    if not x.shape or x.shape[-1] != 4:
        return
    kept = len(x.shape) - 1
    way = g.draw.randint(0, 3)
    if way == 0:
        target, shape = g.ints(*[0] * kept, 2, 2), (*x.shape[:-1], 2, 2)
    elif way == 1:
        target, shape = g.ints(*[0] * kept, -1, 2), (*x.shape[:-1], 2, 2)
    elif way == 2 and kept:
        size = g.add(scope, "Shape", [x], "i64", (kept,), start=0, end=kept)
        target = g.add(scope, "Concat", [size, g.ints(2, 2)], "i64", (kept + 2,), axis=0)
        shape = (*x.shape[:-1], 2, 2)
    else:
        whole = g.add(scope, "Shape", [x], "i64", (kept + 1,))
        target, shape = g.add(scope, "Gather", [whole, g.ints(*range(kept + 1))], "i64", (kept + 1,)), x.shape
    y = g.add(scope, "Reshape", [x, target], x.dtype, shape)
    if g.draw.random() < 0.5 and shape != x.shape:
        g.add(scope, "Reshape", [y, g.ints(*[0] * kept, 4)], x.dtype, x.shape)


def expanded(g: Generator, scope: Scope) -> None:
    x, like = g.pick(scope, *FLOATS, *INTEGERS), g.pick(scope, *FLOATS, *INTEGERS)
    shape = joined(x.shape, like.shape)
    if shape is None:
        return
    target = g.add(scope, "Shape", [like], "i64", (len(like.shape),))
    y = g.add(scope, "Expand", [x, target], x.dtype, shape)
    if x.dtype in FLOATS and g.draw.random() < 0.5:
        g.add(scope, g.draw.choice(("Cos", "Sin")), [y], x.dtype, shape)


def joined_and_cut(g: Generator, scope: Scope) -> None:
    """A Concat, maybe with a part that has no element, and slices that take an operand, more or less of it."""
    x = g.pick(scope, *FLOATS, *INTEGERS)
    if not x.shape or x.shape[-1] != 4:
        return
    others = [v for v in scope.values if v.dtype == x.dtype and v.shape == x.shape]
    parts = [x, g.draw.choice(others)]
    if g.draw.random() < 0.3:
        parts = [x, x]
    y = g.add(scope, "Concat", parts, x.dtype, (*x.shape[:-1], 8), axis=g.draw.choice((-1, len(x.shape) - 1)))
    start, end = g.draw.choice(((0, 4), (4, 8), (4, 2**31), (0, 8), (2, 6), (-4, 2**63 - 1)))
    size = len(range(8)[start : min(end, 8)])
    cut = [y, g.ints(start), g.ints(end), g.ints(-1)]
    g.add(scope, "Slice", cut if g.draw.random() < 0.5 else [*cut, g.ints(1)], x.dtype, (*x.shape[:-1], size))


def split(g: Generator, scope: Scope) -> None:
    """By Split, or by slices that take the axis apart, once or with a part twice."""
    x = g.pick(scope, *FLOATS)
    if not x.shape or x.shape[-1] != 4:
        return
    half = (x.dtype, (*x.shape[:-1], 2))
    if g.draw.random() < 0.4:
        g.add_many(scope, "Split", [x, g.ints(2, 2)], [half, half], axis=-1)
        return
    for start, end in g.draw.choice((((0, 2), (2, 4)), ((0, 2), (2, 4), (0, 2)), ((0, 2), (1, 3)))):
        g.add(scope, "Slice", [x, g.ints(start), g.ints(end), g.ints(-1)], *half)


def gathered(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, *FLOATS, *INTEGERS)
    if not x.shape or x.shape[-1] != 4:
        return
    at = g.draw.choice((0, 3, -1))
    one = g.constant(np.array(at, g.draw.choice((np.int64, np.int32))))
    g.add(scope, "Gather", [x, one], x.dtype, x.shape[:-1], axis=len(x.shape) - 1)


def sizes_read(g: Generator, scope: Scope) -> None:
    """Arithmetic on sizes, whose result is a value."""
    x = g.pick(scope, *FLOATS)
    if not x.shape:
        return
    shape = g.add(scope, "Shape", [x], "i64", (len(x.shape),))
    one = g.add(scope, "Gather", [shape, g.ints(g.draw.randrange(len(x.shape)))], "i64", (1,))
    number = g.number("i64", 0, 1, 2)
    result = joined((1,), number.shape)
    if result is not None:
        y = g.add(scope, g.draw.choice(("Add", "Sub", "Mul")), [one, number], "i64", result)
        g.add(scope, "Cast", [y], "f32", result, to=TensorProto.FLOAT)


def filled(g: Generator, scope: Scope) -> None:
    like = g.pick(scope, *FLOATS)
    shape = g.add(scope, "Shape", [like], "i64", (len(like.shape),))
    dtype = g.draw.choice(("f32", "bool", "i64"))
    value = numpy_helper.from_array(np.array([g.draw.choice((0, 1))], DTYPES[dtype][1]))
    g.add(scope, "ConstantOfShape", [shape], dtype, like.shape, value=value)


# ------------------------------------------------------------------------------------------------ groups


def norm(g: Generator, scope: Scope) -> None:
    """A norm written out over the last axis, in float32 whatever its operand is, with a weight or without."""
    x = g.pick(scope, "f32", "f16")
    if not x.shape or x.shape[-1] != 4:
        return
    y = x if x.dtype == "f32" else g.add(scope, "Cast", [x], "f32", x.shape, to=TensorProto.FLOAT)
    rest: Shape = (*x.shape[:-1], 1)
    if g.draw.random() < 0.5:
        mean = g.add(scope, "ReduceMean", [y, g.ints(-1)], "f32", rest)
        y = g.add(scope, "Sub", [y, mean], "f32", x.shape)
    two = g.constant(np.float32(2.0).reshape(()))
    square = g.add(scope, "Pow", [y, two], "f32", x.shape)
    mean = g.add(scope, "ReduceMean", [square, g.ints(-1)], "f32", rest, keepdims=1)
    root = g.add(
        scope, "Sqrt", [g.add(scope, "Add", [mean, g.constant(np.float32(1e-2).reshape(()))], "f32", rest)], "f32", rest
    )
    z = g.add(scope, "Div", [y, root], "f32", x.shape)
    if g.draw.random() < 0.7:
        weight = g.constant(_grid(g, (4,)).astype(np.float32), "weight")
        z = g.add(scope, "Mul", g.draw.sample([z, weight], 2), "f32", x.shape)
    if g.draw.random() < 0.4:
        z = g.add(scope, "Add", [z, g.constant(_grid(g, (4,)).astype(np.float32), "bias")], "f32", x.shape)
    if x.dtype == "f16":
        g.add(scope, "Cast", [z], "f16", x.shape, to=TensorProto.FLOAT16)


def gelu(g: Generator, scope: Scope) -> None:
    x = g.pick(scope, "f32", "f64", "f16")
    kind = DTYPES[x.dtype][1]
    root = g.constant(np.asarray(g.draw.choice((2**0.5, 2**0.5, 1.5)), kind))
    error = g.add(scope, "Erf", [g.add(scope, "Div", [x, root], x.dtype, x.shape)], x.dtype, x.shape)
    more = g.add(scope, "Add", [error, g.constant(np.asarray(1, kind))], x.dtype, x.shape)
    both = g.add(scope, "Mul", g.draw.sample([x, more], 2), x.dtype, x.shape)
    g.add(scope, "Mul", [both, g.constant(np.asarray(0.5, kind))], x.dtype, x.shape)


def attention(g: Generator, scope: Scope) -> None:
    """Two heads of two numbers, scaled, maybe masked, with their axes moved there and back."""
    x = g.pick(scope, "f32", rank=3)
    if x.shape != ("b", "s", 4):
        return
    heads = []
    for permutation in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        y = g.add(scope, "Reshape", [x, g.ints(0, 0, 2, 2)], "f32", ("b", "s", 2, 2))
        shape = tuple(y.shape[i] for i in permutation)
        heads.append(g.add(scope, "Transpose", [y], "f32", shape, perm=permutation))
    score = g.add(scope, "MatMul", heads[:2], "f32", ("b", 2, "s", "s"))
    score = g.add(scope, "Mul", [score, g.number("f32", 0.5, 0.7071)], "f32", score.shape)
    if g.draw.random() < 0.6:
        seen = g.add(scope, "Unsqueeze", [g.pick(scope, "bool", rank=2), g.ints(1, 2)], "bool", ("b", 1, 1, "s"))
        if scope.nodes[-1].input[0] != "m":
            return
        score = g.add(scope, "Where", [seen, score, g.number("f32", -1e4, -3.4028235e38)], "f32", score.shape)
    weights = g.add(scope, "Softmax", [score], "f32", score.shape, axis=-1)
    mixed = g.add(scope, "MatMul", [weights, heads[2]], "f32", ("b", 2, "s", 2))
    back = g.add(scope, "Transpose", [mixed], "f32", ("b", "s", 2, 2), perm=[0, 2, 1, 3])
    g.add(scope, "Reshape", [back, g.ints(0, 0, 4)], "f32", x.shape)


def repeated(g: Generator, scope: Scope) -> None:
    """The last nodes once more, under other names."""
    copies: dict[str, Tensor] = {}
    known = {value.name: value for value in scope.values}
    for node in list(scope.nodes[-3:]):
        if len(node.output) != 1 or node.domain or any(a.HasField("g") for a in node.attribute):
            continue
        old = known[node.output[0]]
        inputs = [copies.get(name) or known.get(name) or Tensor(name, "", ()) for name in node.input]
        copies[old.name] = g.add(scope, node.op_type, inputs, old.dtype, old.shape)
        scope.nodes[-1].attribute.extend(node.attribute)


# ------------------------------------------------------------------------------------------------ nested graphs


def branches(g: Generator, scope: Scope) -> None:
    """Both give a value of one dtype and rank, made in the branch or read from around it."""
    like = g.pick(scope, *FLOATS, *INTEGERS)
    condition = next(v for v in scope.values if v.name == "p")
    if g.draw.random() < 0.3:
        condition = g.constant(np.array(g.draw.choice((True, False))))
    graphs = []
    for _ in range(2):
        inner = g.nested(scope, [], g.draw.randint(0, 3))
        fitting = [v for v in inner.values if (v.dtype, v.shape) == (like.dtype, like.shape)]
        graphs.append(g.graph(inner, [], [g.draw.choice(fitting[-3:])]))
    g.add(scope, "If", [condition], like.dtype, like.shape, then_branch=graphs[0], else_branch=graphs[1])


def loop(g: Generator, scope: Scope) -> None:
    """A value that is carried, maybe one that is never changed, and what each turn gives."""
    start, kept = g.pick(scope, *FLOATS), g.pick(scope, *FLOATS)
    turn, going = Tensor(g.name("turn"), "i64", ()), Tensor(g.name("going"), "bool", ())
    carried, same = Tensor(g.name("carried"), start.dtype, start.shape), Tensor(g.name("same"), kept.dtype, kept.shape)
    inner = g.nested(scope, [turn, going, carried, same], g.draw.randint(1, 3))
    new = g.draw.choice([v for v in inner.values if (v.dtype, v.shape) == (start.dtype, start.shape)][-3:])
    ends = [going, new, same, g.pick(inner, *FLOATS)]
    body = g.graph(inner, [turn, going, carried, same], ends)
    turns = g.constant(np.array(g.draw.choice((0, 1, 3)), np.int64))
    outputs: list[tuple[str, Shape]] = [(start.dtype, start.shape), (kept.dtype, kept.shape)]
    each = (ends[3].dtype, ("?", *ends[3].shape))
    results = g.add_many(scope, "Loop", [turns, None, start, kept], [*outputs, each], body=body)
    scope.values.remove(results[2])  # its first size has no name


def scan(g: Generator, scope: Scope) -> None:
    """Over the last axis of four, with a state of what is left."""
    x = g.pick(scope, *FLOATS)
    if len(x.shape) < 2 or x.shape[-1] != 4:
        return
    rest = x.shape[:-1]
    state, part = Tensor(g.name("state"), x.dtype, rest), Tensor(g.name("part"), x.dtype, rest)
    inner = g.nested(scope, [state, part], g.draw.randint(0, 2))
    new = g.add(inner, "Add", [state, part], x.dtype, rest)
    given = g.add(inner, "Identity", [g.draw.choice((new, part))], x.dtype, rest)  # one name twice: onnxruntime errs
    body = g.graph(inner, [state, part], [new, given])
    first = g.add(scope, "Gather", [x, g.constant(np.array(0, np.int64))], x.dtype, rest, axis=len(rest))
    options = {"scan_input_axes": [len(rest)], "scan_output_axes": [len(rest)], "num_scan_inputs": 1}
    g.add_many(scope, "Scan", [first, x], [(x.dtype, rest), (x.dtype, x.shape)], body=body, **options)


def function_called(g: Generator, scope: Scope) -> None:
    """A local function of elementwise steps, with an attribute of its own, which may be called before or by another."""
    x, y = g.pick(scope, *FLOATS), g.pick(scope, *FLOATS)
    if not g.functions or g.draw.random() < 0.5:
        g.functions.append(_function(g))
    chosen = g.draw.choice(g.functions)
    shape = joined(x.shape, y.shape)
    if x.dtype == y.dtype and shape is not None:
        given = {"alpha": 0.5} if "alpha" in chosen.attribute else {}
        g.add(scope, chosen.name, [x, y], x.dtype, shape, domain="own", **given)


def _function(g: Generator) -> onnx.FunctionProto:
    name = g.name("Function")
    nodes = [helper.make_node(g.draw.choice(("Identity", "Neg", "Relu")), ["a"], ["c"])]
    nodes.append(helper.make_node("Shape", ["c"], ["sizes"]))
    nodes.append(helper.make_node("Expand", ["b", "sizes"], ["e"]))
    before = [f for f in g.functions if "alpha" not in f.attribute]
    if before and g.draw.random() < 0.5:
        nodes.append(helper.make_node(g.draw.choice(before).name, ["c", "e"], ["f"], domain="own"))
    else:
        nodes.append(helper.make_node(g.draw.choice(("Add", "Mul", "Min")), ["c", "e"], ["f"]))
    attributes = []
    if g.draw.random() < 0.5:
        attributes.append("alpha")
        slope = helper.make_node("LeakyRelu", ["f"], ["z"])
        slope.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT))
        nodes.append(slope)
    else:
        nodes.append(helper.make_node("Identity", ["f"], ["z"]))
    domains = [helper.make_opsetid("", g.opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a", "b"], ["z"], nodes, domains, attributes)


PLAIN_STEPS: tuple[Step, ...] = (
    unary, flags, binary, with_number, logic, comparison, cast, where, reduction, softmax, matmul, transpose,
    unsqueezed, reshaped, expanded, joined_and_cut, split, gathered, sizes_read, filled, norm, gelu, attention,
    repeated,
)  # fmt: skip
NESTING_STEPS: tuple[Step, ...] = (branches, loop, scan, function_called, function_called)


def random_file(seed: int) -> RandomFile:
    """The file of a seed."""
    return Generator(seed, PLAIN_STEPS, NESTING_STEPS).file()


def random_files(first: int, count: int) -> Iterator[tuple[int, RandomFile]]:
    """Files of seeds that follow each other."""
    return ((seed, random_file(seed)) for seed in range(first, first + count))
