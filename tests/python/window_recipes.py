"""What products, windows, recurrences, quantization and the other operators take, for `node_generator.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from node_draws import Array, Draw, Node, ints, is_float

# ------------------------------------------------------------------------------------------------ products and windows


def matmul(draw: Draw) -> Node:
    batch, (n, k, m) = draw.shape(0, 2), (draw.pick(0, 1, 2, 3) for _ in range(3))
    dtype = draw.dtype(draw.schema.inputs[0].type_str)
    a = (k,) if draw.chance(0.2) else (*draw.smaller(batch), n, k)
    b = (k,) if draw.chance(0.2) else (*batch, k, m)
    return Node(draw.op, [draw.array(a, dtype), draw.array(b, dtype)])


def gemm(draw: Draw) -> Node:
    n, k, m = (draw.pick(0, 1, 2, 3) for _ in range(3))
    dtype, flip_a, flip_b = draw.first_dtype(), draw.pick(0, 1), draw.pick(0, 1)
    a, b = draw.array((k, n) if flip_a else (n, k), dtype), draw.array((m, k) if flip_b else (k, m), dtype)
    c = draw.array(draw.pick((n, m), (m,), (1, m), (n, 1), (), (1,)), dtype) if draw.chance(0.7) else None
    real = draw.some(alpha=0.5, beta=draw.pick(2.0, 0.0)) if is_float(a) else {}
    return Node(draw.op, [a, b, c], {"transA": flip_a, "transB": flip_b, **real})


def _window(draw: Draw, kernel: list[int]) -> dict[str, Any]:
    spatial = len(kernel)
    found = draw.some(
        strides=[draw.pick(1, 2, 3) for _ in range(spatial)], dilations=[draw.pick(1, 2) for _ in range(spatial)]
    )
    if draw.chance(0.3):
        own = {"strides": [min(pair) for pair in zip(found.get("strides", kernel), kernel, strict=True)]}
        return {
            **own,
            "auto_pad": draw.pick("SAME_UPPER", "SAME_LOWER", "VALID"),
        }  # ONNX leaves gaps between windows open
    return {**found, **draw.some(pads=[draw.pick(0, 1) for _ in range(2 * spatial)])}


def pool(draw: Draw) -> Node:
    spatial = draw.pick(1, 2, 3)
    dtype = draw.first_dtype()
    x = draw.array((draw.pick(1, 2), draw.pick(1, 3), *(draw.pick(5, 6, 7) for _ in range(spatial))), dtype)
    kernel = [draw.pick(2, 3) for _ in range(spatial)]
    window = {"kernel_shape": kernel, **_window(draw, kernel)}
    if draw.op == "AveragePool" and draw.schema.since_version < 19:
        window.pop("dilations", None)
    if draw.op == "LpPool":
        window |= draw.some(p=draw.pick(1, 2, 3))
    own = draw.some(ceil_mode=1, count_include_pad=1) if "auto_pad" not in window else {}
    window |= {name: value for name, value in own.items() if name in draw.schema.attributes}
    return Node(
        draw.op, [x], window, 2 if draw.op == "MaxPool" and draw.chance(0.3) and "auto_pad" not in window else 1
    )


def convolution(draw: Draw) -> Node:
    spatial, groups = draw.pick(1, 2, 3), draw.pick(1, 1, 2)
    dtype = draw.first_dtype()
    x = draw.array((draw.pick(1, 2), 2 * groups, *(draw.pick(4, 5, 6) for _ in range(spatial))), dtype)
    kernel = [draw.pick(1, 2, 3) for _ in range(spatial)]
    is_transposed = draw.op == "ConvTranspose"
    w = draw.array((2 * groups, 3, *kernel) if is_transposed else (3 * groups, 2, *kernel), dtype)
    bias = draw.array((3 * groups,), dtype) if draw.chance() else None
    window = _window(draw, kernel)
    if is_transposed and "auto_pad" not in window and "strides" in window:
        window |= draw.some(output_padding=[draw.random.randrange(s) for s in window["strides"]])
    return Node(draw.op, [x, w, bias], {**window, **draw.some(kernel_shape=kernel), "group": groups})


def normalization(draw: Draw) -> Node:
    inner = draw.shape(0 if draw.op == "BatchNormalization" else 1, 3)
    if draw.op == "InstanceNormalization":
        inner = tuple(max(1, size) for size in inner)  # onnxruntime 1.31 crashes on nothing
    x = draw.array((draw.pick(1, 2), 4, *inner), draw.first_dtype())
    channels = draw.pick(1, 2, 4)
    if draw.op == "GroupNormalization":
        per = 4 if draw.schema.since_version >= 21 else channels
        inputs: list[Array | None] = [x, draw.array((per,), x.dtype), draw.array((per,), x.dtype)]
        return Node(draw.op, inputs, {"num_groups": channels, **draw.some(epsilon=0.1)})
    inputs = [x, draw.array((4,), x.dtype), draw.array((4,), x.dtype)]
    if draw.op == "BatchNormalization":
        inputs += [draw.array((4,), x.dtype), draw.array((4,), x.dtype, 0.1, 3)]
    return Node(draw.op, inputs, draw.some(epsilon=0.1))


def local_response(draw: Draw) -> Node:
    x = draw.array((draw.pick(1, 2), draw.pick(1, 4, 6), *draw.shape(1, 2)), draw.first_dtype())
    return Node(draw.op, [x], {"size": draw.pick(1, 2, 3, 5), **draw.some(alpha=0.3, beta=0.5, bias=2.0)})


def mean_variance(draw: Draw) -> Node:
    x = draw.array((2, 3, 4, 2), draw.first_dtype())
    return Node(draw.op, [x], draw.some(axes=draw.pick([0, 2, 3], [1], [0, 3])))


def resize(draw: Draw) -> Node:
    rank = draw.pick(3, 4)
    x = draw.array((1, 2, *(draw.pick(1, 2, 4, 5) for _ in range(rank - 2))), draw.pick(np.float32, np.float64))
    mode = draw.pick("nearest", "linear", "cubic") if rank == 4 else draw.pick("nearest", "linear")
    modes = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    usable = modes if draw.schema.since_version >= 19 else tuple(one for one in modes if "symmetric" not in one)
    own: dict[str, Any] = {"mode": mode, **draw.some(coordinate_transformation_mode=draw.pick(*usable))}
    if mode == "nearest":
        own |= draw.some(nearest_mode=draw.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    else:
        own |= draw.some(antialias=1)
        x = np.nan_to_num(x, posinf=4, neginf=-4)  # onnxruntime multiplies infinity by weights of 0
    if mode == "cubic":
        own |= draw.some(cubic_coeff_a=-0.5, exclude_outside=1)
    spatial = rank - 2
    if draw.chance(0.3):
        own |= {"axes": [*range(2, rank)]}  # with negative ones onnxruntime 1.31 takes another axis's scale
        sizes, scales = [], []
    else:
        sizes, scales = [1, 2], [1.0, 1.0]
    if draw.chance():
        given = [
            x,
            None,
            np.array([*scales, *(draw.pick(0.5, 1.5, 2.0, 0.8) for _ in range(spatial))], np.float32),
            None,
        ]
        return Node(draw.op, given, own)
    if len(sizes) == 0:
        own |= draw.some(keep_aspect_ratio_policy=draw.pick("stretch", "not_larger", "not_smaller"))
    return Node(draw.op, [x, None, None, ints(*sizes, *(draw.pick(1, 3, 6) for _ in range(spatial)))], own)


def grid_sample(draw: Draw) -> Node:
    draw.is_special = False
    x = draw.array((2, 2, draw.pick(1, 3, 4), draw.pick(1, 3, 4)), draw.pick(np.float32, np.float64))
    grid = draw.array((2, 3, 2, 2), x.dtype, -1.5, 1.5)
    new = draw.schema.since_version >= 20
    mode = draw.pick("linear", "nearest", "cubic") if new else draw.pick("bilinear", "nearest", "bicubic")
    padding = draw.pick("zeros", "border", "reflection")
    return Node(draw.op, [x, grid], draw.some(mode=mode, padding_mode=padding, align_corners=1))


def recurrent(draw: Draw) -> Node:
    draw.is_special = False
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[draw.op]
    seq, batch, width, hidden = draw.pick(1, 3), draw.pick(1, 2), draw.pick(1, 3), draw.pick(1, 2)
    direction = draw.pick("forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1
    kind, layout = np.float32, 0
    x = draw.array((seq, batch, width), kind)
    w, r = (
        draw.array((count, gates * hidden, width), kind, -1, 1),
        draw.array((count, gates * hidden, hidden), kind, -1, 1),
    )
    bias = draw.array((count, 2 * gates * hidden), kind, -1, 1) if draw.chance() else None
    lengths = np.array([draw.random.randint(1, seq) for _ in range(batch)], np.int32) if draw.chance() else None
    states: list[Array | None] = [draw.array((count, batch, hidden), kind) if draw.chance() else None]
    if draw.op == "LSTM":
        states.append(draw.array((count, batch, hidden), kind) if draw.chance() else None)
        states.append(draw.array((count, 3 * hidden), kind) if draw.chance(0.3) else None)
    own: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "layout": layout, **draw.some(clip=0.4)}
    if draw.op == "GRU":
        own |= draw.some(linear_before_reset=1)
    if draw.op == "LSTM":
        own |= draw.some(input_forget=1)
    if draw.chance(0.3):
        own["activations"] = (
            draw.pick(["Relu", "Tanh", "Sigmoid"], ["Sigmoid", "Relu", "Tanh"])[
                : {"LSTM": 3, "GRU": 2, "RNN": 1}[draw.op]
            ]
            * count
        )
    return Node(draw.op, [x, w, r, bias, lengths, *states], own, 3 if draw.op == "LSTM" else 2)


# ------------------------------------------------------------------------------------------------ dtypes and the rest


def cast(draw: Draw) -> Node:
    x = draw.array(draw.shape(), draw.dtype("T1"), -300 if draw.chance(0.1) else -4, 300 if draw.chance(0.1) else 4)
    to = draw.dtype("T2")
    if is_float(x) and not np.issubdtype(np.dtype(to), np.floating):  # C leaves open what is out of range
        x = np.nan_to_num(x.astype(np.float32), posinf=4, neginf=0).clip(0, 100).astype(x.dtype)
    return Node(draw.op, [x], {"to": int(helper.np_dtype_to_tensor_dtype(np.dtype(to)))})


def clip(draw: Draw) -> Node:
    x = draw.array(draw.shape(), draw.first_dtype())
    draw.is_special = False
    low = draw.array((), x.dtype) if draw.chance(0.7) else None
    high = draw.array((), x.dtype) if draw.chance(0.7) else None
    return Node(draw.op, [x, low, high])


def quantize(draw: Draw) -> Node:
    draw.is_special = False
    x = draw.array(draw.shape(1), np.float32, -20, 20)
    axis = draw.axis(x.ndim)
    per_axis = draw.chance()
    shape = (x.shape[axis],) if per_axis else ()
    kind = (
        draw.pick(np.uint8, np.int8, np.uint16, np.int16)
        if draw.schema.since_version >= 21
        else draw.pick(np.uint8, np.int8)
    )
    scale = np.maximum(draw.array(shape, np.float32, 0.05, 0.5), np.float32(0.05))
    zero = draw.array(shape, kind, 0, 9)
    own = {"axis": axis} if per_axis else {}
    if draw.op == "QuantizeLinear":
        return Node(draw.op, [x, scale, zero if draw.chance(0.8) else None], own)
    return Node(draw.op, [draw.array(x.shape, kind, 0, 90), scale, zero if draw.chance(0.8) else None], own)


def dynamic_quantize(draw: Draw) -> Node:
    draw.is_special = False
    return Node(draw.op, [draw.array(draw.shape(1), np.float32, draw.pick(-4, 0, 1), draw.pick(4, 9))], {}, 3)


def integer_product(draw: Draw) -> Node:
    a, b = draw.pick(np.uint8, np.int8), draw.pick(np.uint8, np.int8)
    n, k, m = (draw.pick(1, 2, 4) for _ in range(3))
    x, y = draw.array((2, n, k), a, -90, 90), draw.array((k, m), b, -90, 90)
    points = [
        draw.array((), a, 0, 9) if draw.chance() else None,
        draw.array(draw.pick((), (m,)), b, 0, 9) if draw.chance() else None,
    ]
    return Node(draw.op, [x, y, *points])


def ranges(draw: Draw) -> Node:
    kind = draw.pick(np.float32, np.float64, np.int16, np.int32, np.int64)
    step = draw.pick(1, 2, -1, -3) if np.issubdtype(kind, np.integer) else draw.pick(0.5, -0.7, 1.1)
    return Node(
        draw.op, [np.array(value, kind) for value in (draw.random.randint(-5, 5), draw.random.randint(-5, 5), step)]
    )


def where(draw: Draw) -> Node:
    shape, dtype = draw.shape(), draw.dtype("T")
    return Node(
        draw.op,
        [draw.array(draw.smaller(shape), np.bool_), draw.array(shape, dtype), draw.array(draw.smaller(shape), dtype)],
    )


def loss(draw: Draw) -> Node:
    draw.is_special = False
    shape = (draw.pick(1, 3), 4, *draw.shape(0, 2))
    x = draw.array(shape, draw.pick(np.float32, np.float64))
    target = np.asarray(draw.numbers.integers(0, 4, (shape[0], *shape[2:])), draw.pick(np.int32, np.int64))
    weight = draw.array((4,), x.dtype, 0.2, 2) if draw.chance() else None
    own = draw.some(ignore_index=1, reduction=draw.pick("none", "sum", "mean"))
    return Node(draw.op, [x, target, weight], own)


def determinant(draw: Draw) -> Node:
    side = draw.pick(1, 2, 3)
    return Node(draw.op, [draw.array((*draw.shape(0, 2), side, side), draw.first_dtype())])


def col2im(draw: Draw) -> Node:
    block, image = (draw.pick(1, 2), 2), (4, 5)
    count = (image[0] - block[0] + 1) * (image[1] - block[1] + 1)
    x = draw.array((2, 3 * block[0] * block[1], count), np.float32)
    return Node(draw.op, [x, ints(*image), ints(*block)])


def dropout(draw: Draw) -> Node:
    x = draw.array(draw.shape(), draw.first_dtype())
    ratio = np.array(0.3, np.float32) if draw.chance() else None
    return Node(draw.op, [x, ratio, np.array(False) if draw.chance() else None], {}, 2)


def fill(draw: Draw) -> Node:
    kind = draw.dtype("T2")
    value = onnx.numpy_helper.from_array(draw.array((1,), kind))
    return Node(draw.op, [ints(*draw.shape())], draw.some(value=value))


def fourier(draw: Draw) -> Node:
    draw.is_special = False
    x = draw.array((2, draw.pick(1, 3, 4), draw.pick(2, 5), draw.pick(1, 2)), draw.pick(np.float32, np.float64))
    axis, onesided = draw.pick(1, 2, -2), draw.pick(0, 1) if x.shape[-1] == 1 else 0
    length = np.array(draw.pick(2, 4, 6)) if draw.chance() else None
    inverse = 0 if onesided else draw.pick(0, 1)
    if draw.schema.since_version >= 20:
        return Node(draw.op, [x, length, np.array(axis)], {"onesided": onesided, "inverse": inverse})
    return Node(draw.op, [x, length], {"axis": axis % 4, "onesided": onesided, "inverse": inverse})


def taper(draw: Draw) -> Node:
    return Node(draw.op, [np.array(draw.pick(1, 4, 7), draw.pick(np.int32, np.int64))], draw.some(periodic=0))


def einsum(draw: Draw) -> Node:
    sizes = {letter: draw.pick(1, 2, 3) for letter in "abcd"}
    terms, result = draw.pick(
        (("ab", "bc"), "ac"), (("abc", "cd"), "abd"), (("aab",), "ab"), (("ab", "b"), ""), (("abc",), "cab")
    )
    dtype = draw.first_dtype()
    inputs: list[Array | None] = [draw.array(tuple(sizes[letter] for letter in term), dtype) for term in terms]
    arrow = f"->{result}" if draw.chance(0.8) else ""
    return Node(draw.op, inputs, {"equation": ",".join(terms) + arrow})
