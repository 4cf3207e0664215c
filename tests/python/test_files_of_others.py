"""Files that no torch model makes: what is optimized computes what the file did, and is a valid file.

Each graph was other, invalid or refused once. Sizes of 0 and ranks that are not known are where inference may guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import exportguard
from exportguard import load

INF, NAN = float("inf"), float("nan")
Feeds = Mapping[str, np.ndarray]


def parsed(graph: str, opset: int = 20) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{graph}')


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def of_constant(op: str, numbers: Any, output: int = onnx.TensorProto.FLOAT, **attributes: Any) -> onnx.ModelProto:
    constant = numpy_helper.from_array(np.asarray(numbers, np.float32), "c")
    node = helper.make_node(op, ["c"], ["y"], **attributes)
    value = helper.make_tensor_value_info("y", output, None)
    graph = helper.make_graph([node], "g", [], [value], [constant])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def with_constants(graph: str, opset: int = 20, dtype: Any = np.float32, **numbers: Any) -> onnx.ModelProto:
    model = parsed(graph, opset)
    for name, number in numbers.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(number, dtype), name))
    return model


def loop_without_a_condition() -> onnx.ModelProto:
    model = parsed(
        "g (int64 n, float[a] x) => (float[k,k1] y) { y = Loop(n, c) <body = b (int64 i, bool ci) => (bool co, float[a]"
        " o) { co = Identity(ci) o = Neg(x) }> }",
        18,
    )
    model.graph.node[0].input[1] = ""
    return model


def sparse_constant() -> onnx.ModelProto:
    sparse = onnx.SparseTensorProto()
    sparse.values.CopyFrom(helper.make_tensor("v", onnx.TensorProto.FLOAT, [2], [5.0, 7.0]))
    sparse.indices.CopyFrom(helper.make_tensor("i", onnx.TensorProto.INT64, [2], [1, 5]))
    sparse.dims.extend([2, 3])
    nodes = [helper.make_node("Constant", [], ["k"], sparse_value=sparse), helper.make_node("Add", ["x", "k"], ["y"])]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def of_another_domain() -> onnx.ModelProto:
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["a", 2]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)


def marked_pool(attributes: str) -> onnx.ModelProto:
    return with_constants(
        f"g (float[1,1,h,w] x) => (float y) {{ r = Relu(x) m = MaxPool<{attributes}>(r) i = IsNaN(r) "
        f"c = Cast<to=1>(i) p = MaxPool<{attributes}>(c) b = Cast<to=9>(p) y = Where(b, nan, m) }}",
        nan=NAN,
    )


CASES: dict[str, tuple[onnx.ModelProto, Feeds]] = {
    "sizes of a tensor whose rank is not known": (
        parsed("g (float[a,b] x) => (int64[1] z) { s = Squeeze(x) y = Shape<start=1,end=2>(s) z = Shape(y) }"),
        {"x": rows(1, 3)},
    ),
    "a size that is 0 copies that of the input": (
        parsed(
            "g (float[b,a] x) => (int64[1] z) <int64[1] m={-1}> { s = Shape<start=1,end=2>(x) c = Concat<axis=0>(s, m)"
            " y = Reshape(x, c) z = Shape<start=0,end=1>(y) }"
        ),
        {"x": rows(2, 0)},
    ),
    "a size of another input that is 0": (
        parsed(
            "g (float[b,4] x, float[c] k) => (int64[1] z) <int64[1] m={4}> { s = Shape(k) c1 = Concat<axis=0>(s, m)"
            " y = Reshape(x, c1) z = Shape<start=0,end=1>(y) }"
        ),
        {"x": rows(2, 4), "k": rows(0)},
    ),
    "reshaped twice": (
        parsed(
            "g (float[1,a,2] x) => (float[p,q,s,t] y) <int64[1] m={-1}, int64[1] two={2}, int64[1] one={1}> {"
            " f = Flatten<axis=0>(x) s0 = Shape<start=1,end=2>(x) c = Concat<axis=0>(s0, m, two, one)"
            " y = Reshape(f, c) }"
        ),
        {"x": rows(1, 0, 2)},
    ),
    "a choice and a summand that hide every key": (
        parsed(
            "g (float[2,1,l,8] q, float[2,1,l,8] k, float[2,1,l,8] v, bool[l,l] a, bool[l,l] b) => (float[2,1,l,8] y)"
            " <float lo={-3.4028235e38}, float z={0}> { kt = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, kt)"
            " w = Where(a, lo, s) m = Where(b, z, lo) t = Add(w, m) p = Softmax<axis=-1>(t) y = MatMul(p, v) }",
            23,
        ),
        {
            "q": rows(2, 1, 3, 8), "k": rows(2, 1, 3, 8), "v": rows(2, 1, 3, 8), "a": np.ones((3, 3), bool),
            "b": np.zeros((3, 3), bool),
        },
    ),
    "infinity less infinity in float64": (
        parsed(
            "g (double[a,b] x) => (double[a,b] y) <int64[1] ax={1}> { m = ReduceMax<keepdims=1>(x, ax) s = Sub(x, m)"
            " y = LogSoftmax<axis=1>(s) }"
        ),
        {"x": np.asarray([[INF, 1, 2]])},
    ),
    "backwards to beyond the end": (
        parsed(
            "g (float[4] x) => (int64[1] y) <int64[1] s={-1}, int64[1] e={9223372036854775807}, int64[1] ax={0},"
            " int64[1] sp={-1}> { z = Slice(x, s, e, ax, sp) y = Shape(z) }"
        ),
        {"x": rows(4)},
    ),
    "a constant backwards": (
        parsed(
            "g (float[a] x) => (float[k] y) <float[4] c={1,2,3,4}, int64[1] s={-1}, int64[1] e={2147483647},"
            " int64[1] ax={0}, int64[1] sp={-1}> { z = Slice(c, s, e, ax, sp) y = Concat<axis=0>(x, z) }"
        ),
        {"x": rows(4)},
    ),
    "an axis taken apart, of no sample": (
        parsed(
            "g (float[b,a] x) => (float[b,4] y) <int64[3] s={0,3,4}, int64 i={1}> { r = Reshape(x, s)"
            " y = Gather<axis=1>(r, i) }"
        ),
        {"x": rows(0, 5)},
    ),
    "the largest of constants with NaN": (of_constant("ReduceMax", [1, NAN, *range(8)], keepdims=0), {}),
    "the least of constants with NaN": (of_constant("ReduceMin", [3, NAN, 1, 2], keepdims=0), {}),
    "a pool of constants with NaN": (of_constant("MaxPool", [[[1, NAN, 3, 2]]], kernel_shape=[2]), {}),
    "the place of the largest": (of_constant("ArgMax", [1, NAN, 3], onnx.TensorProto.INT64), {}),
    "the sign of zero": (of_constant("Selu", [-0.0, 1]), {}),
    "a convolution times -1": (
        parsed(
            "g (float[1,1,h,w] x) => (float[1,1,h,w] y) <float[1,1,1,1] k={1}, float s={-1}> { c = Conv(x, k)"
            " y = Mul(c, s) }"
        ),
        {"x": np.zeros((1, 1, 2, 2), np.float32)},
    ),
    "a convolution times 2": (
        parsed(
            "g (float[1,1,h,w] x) => (float[1,1,h,w] y) <float[1,1,1,1] k={1}, float s={2}> { c = Conv(x, k)"
            " y = Mul(c, s) }"
        ),
        {"x": rows(1, 1, 2, 2)},
    ),
    "a loop without a condition": (loop_without_a_condition(), {"n": np.asarray(2), "x": rows(3)}),
    "windows that pad by themselves": (
        marked_pool('auto_pad="SAME_UPPER",dilations=[2,1],kernel_shape=[3,2],strides=[1,1]'), {"x": rows(1, 1, 4, 4)},
    ),
    "windows larger than the picture": (marked_pool("dilations=[2,1],kernel_shape=[3,3]"), {"x": rows(1, 1, 4, 4)}),
    "the declared rank of an output": (
        parsed("g (float[d,3,1] x) => (float[o] y) { s = Squeeze(x) y = Identity(s) }"), {"x": rows(1, 3, 1)},
    ),
    "a sparse constant": (sparse_constant(), {"x": rows(2, 3)}),
    "operators of another domain alone": (of_another_domain(), {"x": rows(2, 2)}),
    "a curve that is no Gelu": (
        with_constants(
            "g (float16[a] x) => (float16[a] y) { xx = Mul(x, x) x3 = Mul(xx, x) cb = Mul(x3, c) u = Add(x, cb)"
            " t = Mul(u, s) e = Tanh(t) q = Mul(e, h) p = Add(q, k) y = Mul(x, p) }",
            dtype=np.float16, c=0.044715, s=0.7978845, h=0.5, k=0.5005,
        ),
        {"x": np.asarray([-30, -1000, -60000], np.float16)},
    ),
    "an input with a default between others": (
        parsed(
            "g (float[a] x, float[1] d, float[a] z) => (float[a] y) <float[1] d={2}> { q = Mul(x, d) y = Add(q, z) }"
        ),
        {"x": rows(2), "z": rows(2)},
    ),
}  # fmt: skip


def ran(model: bytes, feeds: Feeds) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.thinned(1)
def test_an_optimized_file_computes_what_it_did(name: str) -> None:
    model, feeds = CASES[name]
    given = model.SerializeToString()
    found = load(given)
    found.optimize()
    written = found.to_bytes()
    onnx.checker.check_model(onnx.load_from_string(written), full_check=True)
    for got, expected in zip(ran(written, feeds), ran(given, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3 if expected.dtype == np.float16 else 1e-5)
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))
    inputs = [value.name for value in model.graph.input]
    assert [value.name for value in onnx.load_from_string(written).graph.input] == inputs


@pytest.mark.parametrize("count", [-4, 100_000_000, 2**40])
@pytest.mark.parametrize("op", ["Reshape", "Expand"])
def test_a_list_of_sizes_without_end_takes_no_memory(op: str, count: int) -> None:
    graph = (
        f"g (float[a] x) => (float y) <int64[1] n={{{count}}}> {{ c = ConstantOfShape<value=int64[1] {{1}}>(n) "
        f"y = {op}(x, c) }}"
    )
    found = load(parsed(graph).SerializeToString())
    found.optimize()
    assert [node.op_type for node in onnx.load_from_string(found.to_bytes()).graph.node][-1] == op


@pytest.mark.parametrize("name", ["test_identity_opt", "test_if_opt", "test_loop16_seq_none"])
def test_optionals_of_sequences_keep_their_type(name: str) -> None:
    from onnx.backend.test.case.node import collect_testcases

    (case,) = (case for case in collect_testcases(None) if case.name == name)
    found = exportguard.load(case.model.SerializeToString())
    found.optimize()
    written = onnx.load_from_string(found.to_bytes())
    for got, expected in (
        (written.graph.input, case.model.graph.input),
        (written.graph.output, case.model.graph.output),
    ):
        assert [value.type.WhichOneof("value") for value in got] == [
            value.type.WhichOneof("value") for value in expected
        ]
    onnx.checker.check_model(written)
