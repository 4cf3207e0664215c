"""What became of each axis that was asked to change."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from called import Called
from exportguard import AxisError, AxisOutcome, ExportOptions, to_onnx


def outcome(function: Callable[[torch.Tensor], Any]) -> AxisOutcome:
    model = to_onnx(
        Called(function).eval(), (torch.zeros(3, 4),), dynamic_shapes={"x": {0: "batch"}}, on_fixed_axis="warn"
    )
    (axis,) = model.axes
    return axis


def test_an_axis_that_changes_is_kept_under_its_name() -> None:
    axis = outcome(lambda x: x + 1)
    assert str(axis) == "x axis 0 (batch): kept as batch"
    assert (axis.kept, axis.at_most, axis.reason) == (True, None, "")


def test_an_axis_that_the_model_bounds_says_how_far() -> None:
    axis = outcome(lambda x: x + torch.arange(7.0)[: x.shape[0]].reshape(-1, 1))
    assert str(axis) == "x axis 0 (batch): kept as batch, at most 7"


def test_a_bound_that_only_the_program_has_is_not_kept() -> None:
    axis = outcome(lambda x: x + 1 if x.shape[0] < 8 else x)
    assert not axis.kept
    assert (axis.guard, axis.at_most) == ("batch < 8", 7)
    assert str(axis).startswith(
        "x axis 0 (batch): bounded, batch for batch < 8: at other sizes the program does something else than the model "
        "(batch=8) (by "
    )


def fixing(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(3, 4)


def test_an_axis_that_the_model_fixes_names_the_line() -> None:
    axis = outcome(fixing)
    assert not axis.kept
    assert axis.size == "3"
    assert axis.reason.startswith("by ")
    assert axis.reason.endswith("return x + torch.ones(3, 4)")
    assert "test_axis_report.py:" in axis.reason
    assert axis.guard == "batch == 3"
    assert str(axis).startswith("x axis 0 (batch): fixed to 3, batch == 3 (by ")


@pytest.mark.parametrize(
    "text",
    [
        "def as_numbers(x):\n    return tuple(int(size) for size in x.shape)",
        "def as_numbers(self):\n    x = self; del self; return tuple([int(x.shape[0]), int(x.shape[1])])",
    ],
    ids=["a function", "one without the self that it was given"],
)
def test_a_line_of_an_installed_helper_comes_with_the_line_that_called_it(text: str) -> None:
    file = os.path.join(sysconfig.get_path("purelib"), "sized_helper.py")
    helper: dict[str, Any] = {}
    exec(compile(text, file, "exec"), helper)

    axis = outcome(lambda x: x + torch.ones(helper["as_numbers"](x)))
    assert axis.reason.startswith(f"by {file}:2: ")
    assert re.search(r", called by \S*test_axis_report.py:\d+: axis = outcome", axis.reason)


def test_a_number_has_no_axis() -> None:
    class Repeats(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            return x * n

    model = to_onnx(Repeats(), (torch.zeros(3), 3), dynamic_shapes={"x": None, "n": Dim.DYNAMIC})
    assert [str(axis) for axis in model.axes] == [f"n (DYNAMIC): kept as {model.axes[0].size}"]


def test_without_a_guard_a_fixed_axis_is_an_error_of_torch() -> None:
    with pytest.raises(Exception, match="specialized it to be a constant"):
        to_onnx(
            Called(fixing).eval(),
            (torch.zeros(3, 4),),
            dynamic_shapes={"x": {0: "batch"}},
            options=ExportOptions(guard=None),
        )


def by_hand(x: torch.Tensor) -> torch.Tensor:
    """A loop over a size that no rewriting makes one of the graph, since a file is read in it."""
    with open(os.devnull, encoding="utf-8") as file:
        lines = [file.read() for _ in range(x.shape[0])]
    return x * len("".join(lines))


def test_that_loops_may_be_rewritten_is_told_where_they_are_not() -> None:
    def refused(**options: Any) -> str:
        with pytest.raises(AxisError) as caught:
            to_onnx(Called(by_hand).eval(), (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), **options)
        return str(caught.value)

    assert 'or pass rewrite="auto" to have loops over sizes' in refused()
    assert "rewrite=" not in refused(rewrite="auto")


class SeveralTests(torch.nn.Module):
    """Makes a number of its rows behind a test that excludes less."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] // 2 == 1:
            x = x * 2
        for _ in range(x.shape[0] // 2):
            x = x + 1
        return x


def test_of_several_bounds_that_first_is_told_which_leaves_the_fewest_sizes() -> None:
    model = to_onnx(SeveralTests().eval(), (torch.rand(8, 3),), dynamic_shapes=({0: "rows"},), on_fixed_axis="warn")
    (axis,) = model.axes
    assert axis.guard == "rows // 2 == 4"
    told = str(axis)
    assert told.index("for rows // 2 == 4") < told.index("and for rows // 2 != 1")


class Together(torch.nn.Module):
    """Adds inputs that are to be of one size."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, others: Any = ()) -> torch.Tensor:
        return x + mask + sum(other.sum() for other in others)


def beside(shapes: Any, *others: torch.Tensor) -> AxisOutcome:
    """The outcome of axis 1 of x, beside a mask of the same shape."""
    inputs = {"x": torch.zeros(3, 4), "mask": torch.ones(3, 4), "others": [*others]}
    model = to_onnx(Together().eval(), kwargs=inputs, dynamic_shapes=shapes, on_fixed_axis="warn")
    return next(axis for axis in model.axes if (axis.input, axis.axis) == ("x", 1))


def test_an_axis_that_is_fixed_by_an_input_that_nobody_asked_for_tells_which() -> None:
    axis = beside({"x": {0: "batch", 1: "seq"}, "mask": {0: "batch"}})
    assert (axis.size, axis.beside) == ("4", (("mask", 1),))
    assert str(axis).endswith(
        "; of the same size, and constants as dynamic_shapes does not name them: axis 1 of mask; what goes with this "
        "axis is to be named seq too"
    )


def test_of_many_such_inputs_three_are_told() -> None:
    axis = beside({"x": {1: "seq"}}, *[torch.ones(2, 4)] * 4)
    assert "axis 1 of mask, axis 1 of others.0, axis 1 of others.1, 2 more; what" in str(axis)


def test_inputs_of_other_sizes_or_with_a_name_are_not_told() -> None:
    axis = beside({"x": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "seq"}}, torch.ones(2, 4))
    assert axis.kept
    assert axis.beside == ()
    assert outcome(fixing).beside == ()


class OfATable(torch.nn.Module):
    """Has as many rows as its table at the most."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(64, 4, device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[: x.shape[0]]


def test_weights_without_data_are_why_no_other_size_could_be_tried() -> None:
    with pytest.raises(AxisError) as caught:
        to_onnx(OfATable("meta").eval(), (torch.zeros(3, 4, device="meta"),), dynamic_shapes={"x": {0: "rows"}})
    (told,) = [line for line in str(caught.value).splitlines() if line.startswith("  x axis 0")]
    assert (
        "rows <= 64: other sizes could not be tried (rows=65), as table has no data (it is on the meta device" in told
    )
    assert "load the weights before the model is exported (by " in told
    model = to_onnx(OfATable("cpu").eval(), (torch.zeros(3, 4),), dynamic_shapes={"x": {0: "rows"}})
    assert [str(axis) for axis in model.axes] == ["x axis 0 (rows): kept as rows, at most 64"]
