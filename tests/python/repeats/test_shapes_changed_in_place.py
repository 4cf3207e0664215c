"""A result that gets another shape in place is not how the next equal call looks."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from exportguard import to_onnx

CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "squeeze_": lambda y: y.squeeze_(3),
    "unsqueeze_": lambda y: y.unsqueeze_(0),
    "transpose_": lambda y: y.transpose_(0, 1),
    "swapaxes_": lambda y: y.swapaxes_(0, 2),
    "swapdims_": lambda y: y.swapdims_(1, 2),
    "as_strided_": lambda y: y.as_strided_(
        (y.shape[1], y.shape[0], *y.shape[2:]), (y.shape[2], y.shape[1] * y.shape[2], 1, 1)
    ),
    "t_ of a part": lambda y: y.squeeze_(3).unsqueeze_(1).transpose_(1, 3),
}

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "add": lambda x: x + 1,
    "where": lambda x: torch.where(x > 0.5, x, -x),
    "softmax": lambda x: x.softmax(2),
    "sort": lambda x: x.sort(1).values,
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "cumsum": lambda x: x.cumsum(1),
    "layer norm": lambda x: nn.functional.layer_norm(x, [1]),
    "matmul": lambda x: x.mT @ x @ x.mT,
    "empty of the same shape": lambda x: torch.full_like(x, 0.5),
}

#: Composite operators that change the shape of what they made.
TWICE: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        f"{function.__name__}, keepdim={keep}": lambda x, function=function, keep=keep: function(
            x, 0.5, dim=2, keepdim=keep
        )
        for function, keep in itertools.product((torch.quantile, torch.nanquantile), (True, False))
    },
    "quantile of two": lambda x: torch.quantile(x, torch.tensor([0.2, 0.7]), dim=1),
    "median": lambda x: x.median(2, keepdim=True).values,
    "cov": lambda x: torch.cov(x[0, :, :, 0]),
    "logsumexp": lambda x: x.logsumexp(1, keepdim=True),
    "norm": lambda x: torch.linalg.norm(x, dim=2, keepdim=True),
    "std": lambda x: x.std(1, keepdim=True),
}


class OfPairs(nn.Module):
    """Two equal calls, the result of the first of which is changed between them."""

    def __init__(self, call: Callable[[Tensor], Tensor], change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.call, self.change = call, change

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        first = self.change(self.call(x))
        second = self.call(x)
        return first * 2, second * second.shape[0] + 10 * second.shape[1], self.change(self.call(x))


class InBlocks(nn.Module):
    """The same in blocks that are traced once."""

    def __init__(self, call: Callable[[Tensor], Tensor], change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(OfPairs(call, change) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(y for block in self.blocks for y in block(x))


class OneBehindTheOther(nn.Module):
    def __init__(self, call: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        first = self.call(x)
        second = self.call(x - first.mean())
        return first, second, self.call(x - second.mean())


def _is_right(model: nn.Module) -> None:
    onnx = to_onnx(model.eval(), (torch.rand(2, 3, 5, 1),), dynamic_shapes=({0: "a", 1: "b", 2: "c"},))
    for sizes in ((2, 3, 5), (3, 4, 2), (1, 6, 2)):
        x = torch.rand(*sizes, 1)
        for got, wanted in zip(onnx.run({"x": x}).values(), model(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("call", CALLS)
def test_the_call_between_two_changes(call: str, change: str) -> None:
    _is_right(OfPairs(CALLS[call], CHANGES[change]))


@pytest.mark.parametrize("change", CHANGES)
def test_changes_in_blocks_that_are_traced_once(change: str) -> None:
    _is_right(InBlocks(CALLS["gather"], CHANGES[change]))


def _require_quantiles() -> None:
    if torch.__version__.startswith("2.11"):
        pytest.skip("quantile of torch 2.11 takes no symbolic sizes")


@pytest.mark.parametrize("name", TWICE)
def test_equal_calls_of_composite_operators(name: str) -> None:
    if "quantile" in name:
        _require_quantiles()
    _is_right(OneBehindTheOther(TWICE[name]))


def test_deviations_from_a_median_that_stays() -> None:
    _require_quantiles()

    class Deviations(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x - torch.quantile(x, 0.5, dim=2, keepdim=True)
            return torch.quantile(y, 0.5, dim=2, keepdim=True)

    onnx = to_onnx(Deviations(), (torch.rand(2, 3, 5),), dynamic_shapes=({0: "a", 2: "c"},))
    for sizes in ((2, 3, 5), (1, 3, 4)):
        x = torch.rand(sizes)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), Deviations()(x))


def test_an_example_of_which_all_axes_are_equal() -> None:
    """The shapes of the example do not tell which is which."""
    model = OfPairs(torch.exp, lambda y: y.transpose_(0, 1))
    onnx = to_onnx(model, (torch.rand(3, 3),), dynamic_shapes=({0: "a", 1: "b"},))
    x = torch.rand(4, 2)
    for got, wanted in zip(onnx.run({"x": x}).values(), model(x), strict=True):
        torch.testing.assert_close(got, wanted)
