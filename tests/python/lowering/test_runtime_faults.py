"""What onnxruntime computes wrong, written so that it does not: each case is wrong in 1.31 in its plain form."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
