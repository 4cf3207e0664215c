"""Lists that a size repeats, `[0] * n`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from called import Called
from exportguard import AxisError, to_onnx

SHAPES = ({0: "rows"},)


def argument(x):
    return x * torch.tensor([3] * x.shape[0])[:, None]


def number_in_front(x):
    return x * torch.tensor(x.shape[0] * [0.5])[:, None]


def several(x):
    return torch.tensor([1, 2] * x.shape[0])


def truths(x):
    return torch.tensor([True, False] * len(x))


def a_size(x):
    return torch.tensor([x.shape[0]] * x.shape[0])


def one_more(x):
    return torch.tensor([7] * (x.shape[0] + 1))


def none_at_small_sizes(x):
    return torch.tensor([7] * (x.shape[0] - 2), dtype=torch.int64)


def gone_through(x):
    outs = []
    for number, row in zip([2] * x.shape[0], x, strict=False):
        outs.append(row * number)
    return torch.stack(outs)


def a_known_number(x):
    return x * torch.tensor([2] * 3)


def nested(x):
    return x[:, :2] * torch.tensor([[0.5, 1.0]] * x.shape[0])


def mixed(x):
    return torch.tensor([1, 0.5] * x.shape[0])


RIGHT = (
    argument,
    number_in_front,
    several,
    truths,
    a_size,
    one_more,
    none_at_small_sizes,
    gone_through,
    a_known_number,
    nested,
)


@pytest.mark.parametrize("function", RIGHT)
def test_a_list_that_a_size_repeats(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    onnx = to_onnx(Called(function).eval(), (torch.randn(5, 3),), dynamic_shapes=SHAPES, rewrite="auto")
    for rows in (1, 2, 3, 5, 8):
        x = torch.randn(rows, 3)
        (got,) = onnx.run({"x": x}).values()
        expected = function(x)
        assert got.dtype == expected.dtype or expected.numel() == 0
        torch.testing.assert_close(got, expected, check_dtype=False)


def test_of_elements_of_two_dtypes_it_is_refused() -> None:
    with pytest.raises(AxisError, match="give them one dtype"):
        to_onnx(Called(mixed).eval(), (torch.randn(5, 3),), dynamic_shapes=SHAPES, rewrite="auto")
