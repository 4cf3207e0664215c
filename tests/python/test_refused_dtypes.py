"""What eager refuses when it runs, and torch's shape functions let pass, is no file that runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from called import CalledWithTwo
from exportguard import LoweringError, to_onnx

FLOATS = torch.randn(3, 3)
OTHERS = [torch.int64, torch.float16, torch.float64, torch.bool]

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

PRODUCTS: dict[str, Function] = {
    "linear": lambda x, y: functional.linear(x, y),
    "biased": lambda x, y: functional.linear(x, x, y[0]),
    "matmul": lambda x, y: x @ y,
    "mm": lambda x, y: torch.mm(x, y),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "addmm": lambda x, y: torch.addmm(y, x, x),
    "layer_norm": lambda x, y: functional.layer_norm(x, (3,), y[0]),
    "batch_norm": lambda x, y: functional.batch_norm(x, y[0], y[1]),
    "softmax": lambda x, y: y.softmax(-1) + x,
    "gelu": lambda x, y: functional.gelu(y) + x,
    "convolution": lambda x, y: functional.conv1d(x[None], y[None]),
    "a pool": lambda x, y: functional.avg_pool1d(y[None], 2) + x[:, :1],
    "the largest of windows": lambda x, y: functional.max_pool1d(y[None], 2) + x[:, :1],
    "interpolation": lambda x, y: functional.interpolate(y[None], scale_factor=2.0) + x[0, 0],
    "a distance": lambda x, y: torch.cdist(x, y),
    "a loss": lambda x, y: functional.multi_margin_loss(y, torch.tensor([0, 1, 2]), weight=x[0]),
    "an addition at places": lambda x, y: x.index_add(0, torch.tensor([0, 2, 1]), y),
    "a reduction at places": lambda x, y: x.index_reduce(0, torch.tensor([0, 2, 1]), y, "amin"),
    "the largest ones": lambda x, y: y.topk(2).values + x[:, :2],
    "a triangle": lambda x, y: torch.tril(y) + x,
    "a histogram": lambda x, y: torch.histc(y, 4) + x[0, 0],
    "a logarithm of sums": lambda x, y: y.logcumsumexp(0) + x,
    "places in order": lambda x, y: torch.searchsorted(x[0].sort().values, y),
    "division": lambda x, y: torch.floor_divide(x, y.abs() + y.new_ones(1)),
    "whole numbers": lambda x, y: torch.gcd(y, y) + x,
}


def refuses(function: Function, y: torch.Tensor) -> bool:
    try:
        function(FLOATS, y)
    except (RuntimeError, NotImplementedError):
        return True
    return False


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", OTHERS, ids=str)
@pytest.mark.parametrize("name", PRODUCTS, ids=str)
def test_a_model_that_eager_refuses_is_refused(name: str, dtype: torch.dtype) -> None:
    function, y = PRODUCTS[name], FLOATS.to(dtype)
    if not refuses(function, y):
        to_onnx(CalledWithTwo(function).eval(), (FLOATS, y)).run({"x": FLOATS, "y": y})
        return
    with pytest.raises(Exception, match=r"torch refuses|torch.export stopped"):
        to_onnx(CalledWithTwo(function).eval(), (FLOATS, y))


def test_the_error_names_the_line_the_dtypes_and_the_remedy() -> None:
    expected = (
        r"cannot lower aten.linear.default \(0, .*\): torch refuses operands of i64 and f32 when it runs; convert"
    )
    with pytest.raises(LoweringError, match=expected):
        to_onnx(torch.nn.Sequential(torch.nn.Linear(3, 3)).eval(), (torch.ones(2, 3, dtype=torch.int64),))


class _LeftByWindows(torch.nn.Module):
    """What a convolution leaves of an axis would be less than nothing for an axis of few entries."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(1, 4, 10, stride=5)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.conv(x).transpose(1, 2))


def test_sizes_that_no_small_axis_has_are_those_of_a_long_one() -> None:
    model = _LeftByWindows().eval()
    converted = to_onnx(model, (torch.randn(2, 1, 40),), dynamic_shapes=({0: "batch", 2: "length"},))
    for length in (10, 33):
        x = torch.randn(3, 1, length)
        (got,) = converted.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


class _Filled(torch.nn.Module):
    """Features of pictures take the places of the tokens that stand for them."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[mask] = features
        return x * 2


def test_how_many_entries_a_mask_chooses_is_no_question_of_dtypes() -> None:
    shapes = ({0: "batch", 1: "seq"}, {0: "batch", 1: "seq"}, {0: "n"})
    converted = to_onnx(_Filled().eval(), _masked(2, 5, 3), dynamic_shapes=shapes)
    for sizes in [(2, 5, 3), (1, 1, 1), (3, 7, 11), (1, 4, 0)]:
        values = _masked(*sizes)
        (got,) = converted.run(dict(zip(("x", "mask", "features"), values, strict=True))).values()
        torch.testing.assert_close(got, _Filled()(*values))


def _masked(batch: int, seq: int, chosen: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mask = (torch.arange(batch * seq).flip(0) < chosen).reshape(batch, seq)
    return torch.randn(batch, seq, 4), mask, torch.randn(chosen, 4)


def test_features_of_another_dtype_than_the_states_are_refused() -> None:
    x, mask, features = _masked(4, 4, 4)
    with pytest.raises(Exception, match=r"torch refuses|torch.export stopped"):
        to_onnx(_Filled().eval(), (x, mask, features[:1].double()))


def test_values_at_a_mask_are_as_many_as_the_mask_says() -> None:
    def nearest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = x.clone()
        found[y < x] = y[y < x]
        found[:1][:, torch.tensor([True, False, True])] = torch.tensor([[1.0, 2.0]])
        return found

    model = to_onnx(CalledWithTwo(nearest), (FLOATS, FLOATS.t()), dynamic_shapes=({0: "rows"}, {0: "rows"}))
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    (got,) = model.run({"x": x, "y": y}).values()
    torch.testing.assert_close(got, nearest(x, y))


#: Numbers beside a tensor, which torch asks whether its dtype holds, or wraps, or computes with in a wider one.
BESIDE: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "where": lambda x, number: torch.where(x > 0, x, number),
    "where before": lambda x, number: torch.where(x > 0, number, x),
    "bounds": lambda x, number: x.clamp(max=number),
    "a lower bound": lambda x, number: x.clamp_min(number),
    "a mask": lambda x, number: x.masked_fill(x > 0, number),
    "a tensor like it": lambda x, number: torch.full_like(x, number),
    "a new tensor": lambda x, number: x.new_full((2,), number),
    "a padding": lambda x, number: functional.pad(x, (1, 1), value=number),
    "places": lambda x, number: x.index_fill(0, torch.tensor([1]), number),
    "a place": lambda x, number: x.scatter(0, torch.tensor([[1, 0, 2]]), number),
    "in place": lambda x, number: x.clone().fill_(number),
    "an entry": lambda x, number: torch.select_scatter(x, torch.full_like(x[0], number), 0, 1),
    "addition": lambda x, number: x + number,
    "a product": lambda x, number: x * number,
    "equality": lambda x, number: x == number,
    "order": lambda x, number: x < number,
    "a power": lambda x, number: x ** (number % 5),
    "a remainder": lambda x, number: torch.remainder(x, number),
    "a threshold": lambda x, number: functional.threshold(x, 1, number),
}

NUMBERS = {
    torch.int8: (100, -128, 300, -129),
    torch.uint8: (200, -1, 256),
    torch.int16: (30000, 70000),
    torch.int32: (2**30, 2**40),
    torch.float16: (60000.0, -1e9, -65504.0, float("-inf")),
    torch.bfloat16: (-1e9, 1e39),
    torch.float32: (-3.4e38, 1e39),
}


class _WithANumber(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor, float], torch.Tensor], number: float) -> None:
        super().__init__()
        self.function, self.number = function, number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.number)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("name", BESIDE, ids=str)
def test_a_number_that_a_dtype_does_not_hold_is_refused_where_eager_refuses_it(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 2, 3], [0, 1, 0], [3, 1, 4]]).to(dtype)
    for number in NUMBERS[dtype]:
        model = _WithANumber(BESIDE[name], number).eval()
        try:
            expected = model(x)
        except (RuntimeError, NotImplementedError):
            with pytest.raises(Exception, match=r"torch refuses|torch.export stopped|no lowering"):
                to_onnx(model, (x,))
            continue
        (found,) = to_onnx(model, (x,)).run({"x": x}).values()
        torch.testing.assert_close(found, expected, equal_nan=True)
