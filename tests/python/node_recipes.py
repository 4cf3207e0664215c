"""What operators over elements, axes, shapes and indices take, for `node_generator.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from node_draws import DTYPES, FLOATS, Array, Draw, Node, ints, is_float

# ------------------------------------------------------------------------------------------------ elementwise

_REAL = {"alpha": (0.3, 1.7, -0.5), "beta": (0.25, 1.5), "gamma": (0.5, 2.0), "lambd": (0.1, 1.0), "bias": (0.0, 0.7)}
_WORDS = {"approximate": ("none", "tanh"), "direction": ("LEFT", "RIGHT")}
_FLAGS = ("detect_negative", "detect_positive")


def elementwise(draw: Draw) -> Node:
    schema = draw.schema
    by_constraint: dict[str, Any] = {}
    shape = draw.shape()
    inputs: list[Array | None] = []
    count = draw.random.randint(1, 3) if schema.max_input > 8 else schema.max_input
    for position in range(count):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if formal.type_str not in by_constraint:
            by_constraint[formal.type_str] = DTYPES.get(formal.type_str) or draw.dtype(formal.type_str)
        own = shape if position == 0 or draw.chance() else draw.smaller(shape)
        inputs.append(draw.array(own, by_constraint[formal.type_str]))
    if count > 1 and draw.op != "PRelu" and draw.chance(0.3):
        inputs[0], inputs[1] = (
            (inputs[1], inputs[0]) if inputs[0] is not None and inputs[1] is not None and _alike(inputs) else inputs[:2]
        )
    attributes: dict[str, Any] = {}
    for name, declared in schema.attributes.items():
        if name in _REAL:
            attributes |= draw.some(**{name: draw.pick(*_REAL[name])})
        elif name in _WORDS:
            attributes |= {name: draw.pick(*_WORDS[name])} if declared.required or draw.chance() else {}
        elif name in _FLAGS:
            attributes |= draw.some(**{name: draw.pick(0, 1)})
        elif name == "fmod":
            attributes |= {name: 1} if is_float(inputs[0]) or draw.chance() else {}
    return _defined(draw, Node(draw.op, inputs, attributes))


def _alike(inputs: list[Array | None]) -> bool:
    return all(one is not None and inputs[0] is not None and one.dtype == inputs[0].dtype for one in inputs)


def _defined(draw: Draw, node: Node) -> Node:
    """Without what C and ONNX leave open: quotients by zero, shifts by more than the width, powers that overflow."""
    second = node.inputs[1] if len(node.inputs) > 1 else None
    if node.op in ("Div", "Mod") and second is not None and not is_float(second):
        node.inputs[1] = np.where(second == 0, 1, np.abs(second.astype(np.int64)) % 100 + 1).astype(second.dtype)
    if node.op == "BitShift" and second is not None:
        node.inputs[1] = (second % 8).astype(second.dtype)
    if node.op == "Pow" and second is not None and node.inputs[0] is not None:
        node.inputs[1] = np.clip(np.nan_to_num(second.astype(np.float64)), 0, 3).astype(second.dtype)
        if not is_float(node.inputs[0]):
            node.inputs[0] = np.clip(node.inputs[0], 0, 4)
    return node


# ------------------------------------------------------------------------------------------------ along axes


def reduction(draw: Draw) -> Node:
    is_real = "Log" in draw.op  # of integers onnxruntime computes logarithms in integers
    formal = draw.schema.inputs[0].type_str
    x = draw.array(draw.shape(), draw.dtype(formal, FLOATS) if is_real else draw.first_dtype())
    axes = draw.axes(x.ndim)
    attributes = draw.some(keepdims=draw.pick(0, 1), noop_with_empty_axes=1)
    given = ints(*axes) if draw.chance(0.8) else None
    return Node(draw.op, [x, given], attributes, constants=frozenset({1} if draw.chance() else ()))


def arg_reduction(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    return Node(draw.op, [x], draw.some(axis=draw.axis(x.ndim), keepdims=0, select_last_index=1))


def along_axis(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    return Node(draw.op, [x], draw.some(axis=draw.axis(x.ndim)))


def lp_norm(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    return Node(draw.op, [x], draw.some(axis=draw.axis(x.ndim), p=draw.pick(1, 2)))


def cumulative(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    axis = np.array(draw.axis(x.ndim), draw.pick(np.int32, np.int64))
    return Node(draw.op, [x, axis], draw.some(exclusive=1, reverse=1))


def top_k(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    axis = draw.axis(x.ndim)
    k = draw.random.randint(0, x.shape[axis])
    return Node(draw.op, [x, ints(k)], {"axis": axis, **draw.some(largest=0, sorted=1)}, 2)


def unique(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype(), -2, 2)
    return Node(draw.op, [x], draw.some(axis=draw.axis(x.ndim), sorted=1), 4)


def layer_norm(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    axis = draw.axis(x.ndim)
    scale = draw.array(draw.smaller(x.shape[axis:]) if draw.chance(0.3) else x.shape[axis:], x.dtype)
    bias = draw.array(x.shape[axis:], x.dtype) if draw.op == "LayerNormalization" and draw.chance() else None
    return Node(draw.op, [x, scale, bias], {"axis": axis, **draw.some(epsilon=0.1)})


# ------------------------------------------------------------------------------------------------ shapes


def reshape(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    sizes = list(x.shape)
    draw.random.shuffle(sizes)
    at = draw.random.randrange(len(sizes))
    if draw.chance() and 0 not in sizes:
        sizes[at] = -1
    elif draw.chance() and at < x.ndim and sizes == list(x.shape):
        sizes[at] = 0
    return Node(draw.op, [x, ints(*sizes)], draw.some(allowzero=1) if 0 not in sizes or x.size == 0 else {})


def transpose(draw: Draw) -> Node:
    x = draw.array(draw.shape(), draw.first_dtype())
    return Node(draw.op, [x], draw.some(perm=draw.random.sample(range(x.ndim), x.ndim)) if x.ndim else {})


def squeeze(draw: Draw) -> Node:
    x = draw.array(tuple(draw.pick(1, 1, 2) for _ in range(draw.random.randint(0, 4))), draw.first_dtype())
    ones = [i - x.ndim if draw.chance() else i for i, size in enumerate(x.shape) if size == 1 and draw.chance(0.7)]
    return Node(draw.op, [x, ints(*ones) if draw.chance(0.7) else None])


def unsqueeze(draw: Draw) -> Node:
    x = draw.array(draw.shape(0, 3), draw.first_dtype())
    rank = x.ndim + draw.random.randint(0, 2)
    axes = draw.random.sample(range(rank), rank - x.ndim)
    return Node(draw.op, [x, ints(*(a - rank if draw.chance() else a for a in axes))])


def slices(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    axes = draw.axes(x.ndim) if draw.chance(0.8) else list(range(x.ndim))
    end = draw.pick(2**31 - 1, 7, 3)
    starts = [draw.random.randint(-6, 6) for _ in axes]
    ends = [draw.pick(end, -end, draw.random.randint(-6, 6)) for _ in axes]
    steps = ints(*(draw.pick(1, 2, 3, -1, -2) for _ in axes)) if draw.chance() else None
    kind = draw.pick(np.int32, np.int64)
    given = [np.array(starts, kind), np.array(ends, kind), np.array(axes, kind)]
    return Node(draw.op, [x, *given, None if steps is None else steps.astype(kind)])


def pad(draw: Draw) -> Node:
    x = draw.array(tuple(draw.pick(2, 3, 4) for _ in range(draw.random.randint(1, 4))), draw.first_dtype())
    mode = draw.pick("constant", "reflect", "edge", "wrap") if draw.schema.since_version >= 19 else draw.pick("edge")
    axes = draw.axes(x.ndim) if draw.chance() else None
    count = x.ndim if axes is None else len(axes)
    pads = [draw.pick(0, 1, 1, 2 if mode == "constant" else 1, -1) for _ in range(2 * count)]
    value = draw.array((), x.dtype) if mode == "constant" and draw.chance() else None
    return Node(draw.op, [x, ints(*pads), value, None if axes is None else ints(*axes)], {"mode": mode})


def expand(draw: Draw) -> Node:
    shape = draw.shape()
    return Node(draw.op, [draw.array(draw.smaller(shape), draw.first_dtype()), ints(*shape)])


def tile(draw: Draw) -> Node:
    x = draw.array(draw.shape(), draw.first_dtype())
    return Node(draw.op, [x, ints(*(draw.pick(0, 1, 2, 3) for _ in range(x.ndim)))])


def concat(draw: Draw) -> Node:
    shape = draw.shape(1)
    axis, dtype = draw.axis(len(shape)), draw.first_dtype()
    parts: list[Array | None] = []
    for _ in range(draw.random.randint(1, 3)):
        own = list(shape)
        own[axis] = draw.pick(0, 1, 2, 3)
        parts.append(draw.array(tuple(own), dtype))
    return Node(draw.op, parts, {"axis": axis})


def split(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    axis, count = draw.axis(x.ndim), draw.random.randint(1, 3)
    if draw.chance() and x.shape[axis] >= count:
        return Node(draw.op, [x], {"axis": axis, "num_outputs": count}, count)
    cuts = sorted(draw.random.randint(0, x.shape[axis]) for _ in range(count - 1))
    return Node(draw.op, [x, ints(*np.diff([0, *cuts, x.shape[axis]]).tolist())], {"axis": axis}, count)


def shape_of(draw: Draw) -> Node:
    x = draw.array(draw.shape(), draw.first_dtype())
    return Node(draw.op, [x], draw.some(start=draw.random.randint(-6, 6), end=draw.random.randint(-6, 6)))


def plain(draw: Draw) -> Node:
    return Node(draw.op, [draw.array(draw.shape(), draw.first_dtype())])


def flatten(draw: Draw) -> Node:
    x = draw.array(draw.shape(), draw.first_dtype())
    return Node(draw.op, [x], draw.some(axis=draw.random.randint(-x.ndim, x.ndim)))


def triangle(draw: Draw) -> Node:
    x = draw.array(draw.shape(2), draw.first_dtype())
    k = np.array(draw.random.randint(-5, 5)) if draw.chance() else None
    return Node(draw.op, [x, k], draw.some(upper=draw.pick(0, 1)))


def blocks(draw: Draw) -> Node:
    size = draw.pick(1, 2, 3)
    deep = draw.op == "DepthToSpace"
    shape = (draw.pick(1, 2), 2 * (size * size if deep else 1), *(draw.pick(1, 2) * (1 if deep else size),) * 2)
    mode = draw.some(mode=draw.pick("DCR", "CRD")) if deep else {}
    return Node(draw.op, [draw.array(shape, draw.first_dtype())], {"blocksize": size, **mode})


def eye_like(draw: Draw) -> Node:
    kind = draw.pick(*(DTYPES[name] for name in ("tensor(float)", "tensor(int64)", "tensor(double)")))
    to = int(helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    x = draw.array(draw.shape(2, 2), draw.first_dtype())
    return Node(draw.op, [x], draw.some(k=draw.random.randint(-4, 4), dtype=to))


def crop_pad(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.first_dtype())
    axes = draw.axes(x.ndim) if draw.chance() else None
    count = x.ndim if axes is None else len(axes)
    sizes = ints(*(draw.pick(1, 2, 3, 6) for _ in range(count)))
    return Node(draw.op, [x, sizes], {} if axes is None else {"axes": axes})


# ------------------------------------------------------------------------------------------------ indices


def gather(draw: Draw) -> Node:
    x = draw.array(tuple(max(1, size) for size in draw.shape(1)), draw.dtype("T"))
    axis = draw.axis(x.ndim)
    shape = draw.shape(0, 2)
    if draw.op == "GatherElements":
        shape = tuple(draw.random.randint(0, size) for size in x.shape)
    indices = draw.numbers.integers(-x.shape[axis], x.shape[axis], shape)
    return Node(
        draw.op, [x, np.asarray(indices, draw.pick(np.int32, np.int64))], draw.some(axis=axis) or {"axis": axis}
    )


def gather_nd(draw: Draw) -> Node:
    x = draw.array(tuple(max(1, size) for size in draw.shape(1)), draw.dtype("T"))
    batch = draw.random.randint(0, x.ndim - 1)
    depth = draw.random.randint(1, x.ndim - batch)
    rows = x.shape[:batch] + draw.shape(0, 2)
    columns = [draw.numbers.integers(-size, size, rows) for size in x.shape[batch : batch + depth]]
    return Node(draw.op, [x, np.stack(columns, -1).astype(np.int64)], {"batch_dims": batch})


def scatter_elements(draw: Draw) -> Node:
    x = draw.array(tuple(max(1, size) for size in draw.shape(1)), draw.dtype("T"))
    axis = draw.axis(x.ndim)
    shape = tuple(draw.random.randint(0, size) for size in x.shape)
    reduction = draw.pick("none", "add", "mul", "max", "min")
    indices = draw.numbers.integers(-x.shape[axis], x.shape[axis], shape)
    if reduction == "none" and shape[axis]:  # each place once
        line = draw.numbers.permutation(x.shape[axis])[: shape[axis]]
        at = [1] * x.ndim
        at[axis] = -1
        indices = np.broadcast_to(line.reshape(at), shape).copy()
    updates = draw.array(shape, x.dtype)
    named = {} if reduction == "none" else {"reduction": reduction}
    return Node(draw.op, [x, np.asarray(indices, np.int64), updates], {"axis": axis, **named})


def scatter_nd(draw: Draw) -> Node:
    x = draw.array(tuple(max(1, size) for size in draw.shape(1)), draw.dtype("T"))
    depth = draw.random.randint(1, x.ndim)
    reduction = draw.pick("add", "mul", "max", "min")
    columns = [draw.numbers.integers(-size, size, draw.pick(1, 2, 3)) for size in x.shape[:depth]]
    count = min(len(column) for column in columns)
    indices = np.stack([column[:count] for column in columns], -1).astype(np.int64)
    return Node(draw.op, [x, indices, draw.array((count, *x.shape[depth:]), x.dtype)], {"reduction": reduction})


def one_hot(draw: Draw) -> Node:
    indices = draw.numbers.integers(-6, 6, draw.shape(0, 3))
    kind = draw.pick(np.float32, np.int64, np.float64)
    given = [np.asarray(indices, draw.pick(np.int64, np.int32)), np.array(draw.pick(1, 4)), draw.array((2,), kind)]
    return Node(draw.op, given, draw.some(axis=draw.random.randint(-np.ndim(indices) - 1, np.ndim(indices))))


def compress(draw: Draw) -> Node:
    x = draw.array(draw.shape(1), draw.dtype("T"))
    axis = draw.axis(x.ndim) if draw.chance() else None
    length = x.size if axis is None else x.shape[axis]
    condition = draw.array((draw.random.randint(0, length),), np.bool_)
    return Node(draw.op, [x, condition], {} if axis is None else {"axis": axis})


def reverse_sequence(draw: Draw) -> Node:
    x = draw.array(tuple(max(1, size) for size in draw.shape(2)), draw.dtype("T"))
    batch = draw.pick(0, 1)
    lengths = ints(*(draw.random.randint(1, x.shape[1 - batch]) for _ in range(x.shape[batch])))
    return Node(draw.op, [x, lengths], {"batch_axis": batch, "time_axis": 1 - batch})
