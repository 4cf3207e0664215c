"""An axis that is squeezed away where it has one entry: right at 1, a bound that says so, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from called import Called
from exportguard import AxisError, OnnxModel, to_onnx
from exportguard.axes.bound import Kind


def exported(function: Callable[[torch.Tensor], Any]) -> OnnxModel:
    shapes = {"x": {0: "batch", 1: "seq"}}
    return to_onnx(Called(function).eval(), (torch.randn(2, 6, 4),), dynamic_shapes=shapes)


OTHER_RANKS: dict[str, tuple[Callable[[torch.Tensor], Any], list[str]]] = {
    "an axis": (lambda x: x.squeeze(1), ["seq >= 2"]),
    "an axis from the end": (lambda x: x.squeeze(-2) * 2, ["seq >= 2"]),
    "several axes": (lambda x: torch.squeeze(x[:, None], (1, 2)), ["seq >= 2"]),
    "all axes": (lambda x: x.squeeze(), ["batch >= 2", "seq >= 2"]),
    "one of two outputs": (lambda x: (x.squeeze(1), x + 1), ["seq >= 2"]),
    "half of an axis": (lambda x: x[:, : (x.shape[1] + 1) // 2].squeeze(1), ["(seq + 1) // 2 >= 2"]),
    "behind a reduction": (lambda x: x.squeeze(1).sum(-1), ["seq >= 2"]),
    "an axis in place": (lambda x: (x + 1).squeeze_(1), ["seq >= 2"]),
    "several axes in place": (lambda x: (x + 1)[:, None].squeeze_((1, -2)), ["seq >= 2"]),
    "all axes in place": (lambda x: (x + 1).squeeze_(), ["batch >= 2", "seq >= 2"]),
    "a covariance of rows": (lambda x: torch.cov(x[:, 0]), ["batch >= 2"]),
    "a correlation of rows": (lambda x: torch.corrcoef(x[0]) + 1, ["seq >= 2"]),
}


@pytest.mark.parametrize("name", OTHER_RANKS)
def test_a_squeeze_that_changes_the_rank_of_the_outputs_is_a_bound_with_its_line(name: str) -> None:
    function, expected = OTHER_RANKS[name]
    model = exported(function)
    bounds = [bound for axis in model.axes for bound in axis.bounds if bound.kind == Kind.SQUEEZED]
    assert all(axis.kept for axis in model.axes)
    assert sorted({bound.condition for bound in bounds}) == expected
    told = [str(axis) for axis in model.axes if any(bound.kind == Kind.SQUEEZED for bound in axis.bounds)]
    assert all("; of a single one the model returns another rank (" in text for text in told)
    x = torch.randn(3, 4, 4)
    torch.testing.assert_close([*model.run({"x": x}).values()], [*pytree.tree_leaves(function(x))])


class Squeeze(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        return x.squeeze(1)


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Squeeze()

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x) * 2


def test_the_line_is_that_of_the_module_that_squeezes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "exportguard"):
        to_onnx(Nested().eval(), (torch.randn(2, 6, 4),), dynamic_shapes={"x": {1: "seq"}})
    assert "return x.squeeze(1)" in caplog.text
    assert "returns another rank" in caplog.text


RIGHT: dict[str, Callable[[torch.Tensor], Any]] = {
    "an axis of one": lambda x: x.sum(1, keepdim=True).squeeze(1),
    "put back": lambda x: x.squeeze(1).reshape(x.shape),
    "summed up": lambda x: x.squeeze(1).sum(),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_squeeze_that_changes_nothing_in_the_end_is_no_bound(name: str) -> None:
    model = exported(RIGHT[name])
    assert not [bound for axis in model.axes for bound in axis.bounds if bound.kind == Kind.SQUEEZED]
    for sizes in ((1, 1), (1, 4), (3, 1), (3, 5)):
        x = torch.randn(*sizes, 4)
        torch.testing.assert_close(model.run({"x": x}).popitem()[1], RIGHT[name](x))


def test_a_squeeze_that_leads_to_other_values_of_the_same_rank_is_an_error_with_its_line() -> None:
    with pytest.raises(AxisError, match=r"seq >= 2.*something else"):
        exported(lambda x: x.squeeze(1)[:, :1].sum((1,)).flatten())
