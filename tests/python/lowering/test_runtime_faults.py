"""What onnxruntime computes wrong, written so that it does not: each case is wrong in 1.31 in its plain form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnxruntime as ort
import pytest
import torch
from conftest import run
from tensors import floats

from called import CalledWithAll
from exportguard import to_onnx

if TYPE_CHECKING:
    from conftest import Check

NAN = float("nan")


def with_nan(*sizes: int) -> torch.Tensor:
    x = floats(*sizes)
    x.view(-1)[::5] = NAN
    return x


def test_a_transposed_matrix_times_a_vector(check: Check) -> None:
    x, v = floats(3, 3), floats(3)
    check(lambda x, v: (x.T @ v, v @ x.T, x.mT.matmul(v), torch.mv(x.t(), v)), [x, v])
    check(lambda x, v: x.mT @ v, [floats(2, 3, 4), floats(3)], others=[[floats(5, 6, 4), floats(6)]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_max_pool_keeps_nan(dtype: torch.dtype, check: Check) -> None:
    x = with_nan(2, 3, 7, 8).to(dtype)
    check(lambda x: torch.nn.functional.max_pool2d(x, 2), [x], others=[[x[:1, :, :5]]])
    check(lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1, ceil_mode=True), [x])
    check(lambda x: torch.nn.functional.max_pool1d(x, 3, 1, 1, 2), [x[0]])


def test_zeros_around_a_max_pool_count(check: Check) -> None:
    x = -floats(1, 2, 6, 6).abs() - 1
    check(lambda x: torch.nn.functional.max_pool2d(torch.nn.functional.pad(x, (1, 1, 1, 1)), 2), [x])
    check(lambda x: torch.nn.functional.max_pool2d(torch.nn.functional.pad(x, (1, 1, 1, 1)), 3, 2, 1), [x])


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_scatter_reductions_keep_nan(reduce: str, check: Check) -> None:
    index = torch.tensor([[0, 1, 0, 2], [1, 1, 0, 0]])
    check(lambda x, s: x.scatter_reduce(1, index, s, reduce), [with_nan(2, 4), floats(2, 4)])
    check(lambda x, s: x.scatter_reduce(1, index, s, reduce), [floats(2, 4), with_nan(2, 4)])
    check(lambda x, s: x.scatter_reduce(1, index, s, reduce, include_self=False), [with_nan(2, 4), floats(2, 4)])


MATRICES = [(4, 1), (1, 4), (1, 1), (0, 3), (3, 0), (2, 4, 1), (2, 1, 3), (0, 2, 2)]


@pytest.mark.parametrize("size", MATRICES, ids=str)
def test_matrices_of_one_row_or_column(size: tuple[int, ...], check: Check) -> None:
    x = floats(*size)
    functions = (torch.linalg.svdvals, torch.linalg.pinv, torch.linalg.matrix_rank)
    found = to_onnx(CalledWithAll(lambda x: [function(x) for function in functions]), (x,))
    session = ort.InferenceSession(found.to_bytes(), providers=["CPUExecutionProvider"])
    expected = [function(x) for function in functions]
    for want, got in zip(expected, run(session, [x]), strict=True):
        torch.testing.assert_close(torch.from_numpy(got), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [(1, 1), (0, 0), (2, 1, 1), (3, 0, 0)], ids=str)
def test_square_matrices_of_one_row(size: tuple[int, ...], check: Check) -> None:
    check(lambda x: (torch.linalg.eigvalsh(x), torch.linalg.det(x)), [floats(*size)])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_rows_behind_the_last_offset_are_in_no_bag(mode: str, check: Check) -> None:
    weight = floats(10, 3)
    check(
        lambda i, o: torch.nn.functional.embedding_bag(i, weight, o, mode=mode, include_last_offset=True),
        [torch.tensor([1, 2, 3, 4, 5, 6]), torch.tensor([0, 2, 5])],
        others=[[torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2, 4])]],
    )


def products_of(*shapes: str) -> list[torch.Tensor]:
    """A tensor for each word of letters, the letters' sizes all unlike."""
    return [floats(*("bnmk".index(letter) + 2 for letter in word)) for word in shapes]


PRODUCTS = {
    "batches": (("bnk", "bkm"), lambda x, y: x @ y),
    "one matrix before a batch": (("nk", "bkm"), lambda x, y: x @ y),
    "transposed within": (("bnk",), lambda x: x @ x.mT),
    "transposed within, before one matrix": (("bkn", "km"), lambda x, y: x.mT @ y),
    "batch from behind": (("nkb", "bkm"), lambda x, y: x.permute(2, 0, 1) @ y),
    "batch between": (("nbk", "bkm"), lambda x, y: x.permute(1, 0, 2) @ y),
    "batch from behind, turned": (("knb", "bkm"), lambda x, y: x.permute(2, 1, 0) @ y),
    "first axis last": (("kbn", "bkm"), lambda x, y: x.permute(1, 2, 0) @ y),
    "first axis last, then a function": (("kbn", "bkm"), lambda x, y: x.permute(1, 2, 0).relu() @ y),
    "on the right": (("bnk", "mbk"), lambda x, y: x @ y.permute(1, 2, 0)),
    "four axes": (("kbmn", "bmkn"), lambda x, y: x.permute(1, 2, 3, 0) @ y),
    "labels": (("bnk", "mk"), lambda x, y: torch.einsum("bnk,mk->mbn", x, y)),
    "all keys": (("bnk", "bmk"), lambda x, y: (x @ y.mT).softmax(-1) @ y),
}


@pytest.mark.parametrize("empty", "nmk")
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices_without_elements(name: str, empty: str) -> None:
    words, function = PRODUCTS[name]
    inputs = products_of(*words)
    shapes = tuple(dict(enumerate(word)) for word in words)
    model = to_onnx(CalledWithAll(function), tuple(inputs), dynamic_shapes=(shapes,))
    session = ort.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    for _ in range(3):  # what the memory held shows where a result is not written
        run(session, inputs)
    cut = [x.narrow(word.index(empty), 0, 0) if empty in word else x for x, word in zip(inputs, words, strict=True)]
    torch.testing.assert_close(torch.from_numpy(run(session, cut)[0]), function(*cut))


VECTORS = {
    "a vector": (("nk", "k"), lambda x, y: x @ y),
    "a vector, twice": (("nk", "k"), lambda x, y: (x @ y, x.mv(y))),
    "a batch and a vector": (("bnk", "k"), lambda x, y: x @ y),
    "a vector before a batch": (("k", "bkm"), lambda x, y: x @ y),
    "a vector before a matrix": (("k", "km"), lambda x, y: x @ y + 1),
    "sums of integers": (("bnk",), lambda x: (x.long().sum(-1), x.long().sum((0, 2)), x.long().sum())),
}


@pytest.mark.parametrize("empty", "bnmk")
@pytest.mark.parametrize("name", VECTORS)
def test_products_of_vectors_without_elements(name: str, empty: str) -> None:
    """onnxruntime stops at matrices without elements and a vector, or gives what the memory held."""
    words, function = VECTORS[name]
    inputs = products_of(*words)
    shapes = tuple(dict(enumerate(word)) for word in words)
    model = to_onnx(CalledWithAll(function), tuple(inputs), dynamic_shapes=(shapes,))
    session = ort.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    cut = [x.narrow(word.index(empty), 0, 0) if empty in word else x for x, word in zip(inputs, words, strict=True)]
    for given in (inputs, cut):
        expected = function(*given)
        results = zip(run(session, given), expected if isinstance(expected, tuple) else [expected], strict=True)
        for got, right in results:
            torch.testing.assert_close(torch.from_numpy(got), right)


def test_sizes_that_cannot_be_zero_cost_no_node() -> None:
    def attention(x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        keys = torch.cat([past, x], 1)
        return (x @ keys.mT).softmax(-1) @ keys

    shapes = (({0: "batch", 1: "seq"}, {0: "batch", 1: "past"}),)
    inputs = (floats(2, 3, 4), floats(2, 5, 4))
    model = to_onnx(CalledWithAll(attention), inputs, dynamic_shapes=shapes, optimize=False)
    nodes = onnx.load_from_string(model.to_bytes()).graph.node
    assert "MatMul" in {node.op_type for node in nodes}
    assert not {"Where", "Equal"} & {node.op_type for node in nodes}


def test_an_empty_tensor_has_an_address() -> None:
    model = to_onnx(CalledWithAll(lambda x: torch.nn.functional.group_norm(x, 1)), (floats(3, 5),),
                    dynamic_shapes=(({0: "n", 1: "m"},),))  # fmt: skip
    for sizes in ((3, 5), (2, 0), (3, 0)):
        assert model.run({model.inputs[0].name: floats(*sizes)}, runner="onnxruntime")["output_0"].shape == sizes


@pytest.mark.parametrize("places", [(0, 1, 6), (7, 14), (35,), tuple(range(36))], ids=str)
def test_the_last_nan_of_a_window_is_its_maximum(places: tuple[int, ...], check: Check) -> None:
    x = floats(2, 2, 6, 6)
    x[0].view(2, -1)[:, list(places)] = NAN
    pool = torch.nn.functional.max_pool2d
    check(lambda x: pool(x, 3, 2, 1, return_indices=True), [x])
    check(lambda x: pool(x, 2, return_indices=True), [x.double()], others=[[x[:1, :, :4].double()]])
    check(lambda x: torch.nn.functional.adaptive_max_pool2d(x, 3, return_indices=True), [x])
    check(lambda x: torch.nn.functional.max_pool1d(x, 3, 1, 1, 2, return_indices=True), [x[:, :, 0]])


PRODUCTS_THAT_SPREAD = {
    "both operands": ((3, 1, 4, 5), (1, 6, 5, 7)),
    "the first operand": ((3, 1, 4, 5), (3, 6, 5, 7)),
    "of more axes": ((4, 5), (3, 6, 5, 7)),
    "of another axis": ((2, 1, 4, 5), (6, 5, 7)),
    "the second operand": ((3, 6, 4, 5), (1, 1, 5, 7)),
}


@pytest.mark.parametrize("name", PRODUCTS_THAT_SPREAD)
def test_a_product_over_nothing_has_the_sizes_of_both_batches(name: str) -> None:
    """onnxruntime gives one with the batch of the first operand."""
    first, second = PRODUCTS_THAT_SPREAD[name]
    example = (floats(*first), floats(*second))
    names = ({len(first) - 1: "inner"}, {len(second) - 2: "inner"})
    model = to_onnx(CalledWithAll(torch.matmul), example, dynamic_shapes=(names,))
    for inner in (5, 1, 0):
        a, b = example[0][..., :inner], example[1][..., :inner, :]
        feed = dict(zip([value.name for value in model.inputs], (a, b), strict=True))
        (got,) = model.run(feed).values()
        torch.testing.assert_close(torch.as_tensor(got), a @ b)
