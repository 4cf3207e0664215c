"""What a program takes for granted of its sizes is proved, tried, or an error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from called import Called
from exportguard import AxisError, OnnxModel, to_onnx
from exportguard.axes.bound import Kind


class ApplyTwo(Called):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:  # type: ignore[override]
        return self.function(x, y)


def exported(function: Callable[[torch.Tensor], Any], asked: Any = None, size: int = 6) -> OnnxModel:
    shapes = {"x": {1: asked or "seq"}}
    return to_onnx(Called(function).eval(), (torch.randn(2, size),), dynamic_shapes=shapes)


def refused(function: Callable[[torch.Tensor], Any], asked: Any = None) -> str:
    with pytest.raises(AxisError) as caught:
        exported(function, asked)
    return str(caught.value)


def padded(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, (4 - x.shape[1] % 4) % 4))


RIGHT = {
    "a padding to a multiple": lambda x: padded(x).reshape(x.shape[0], -1, 4),
    "the first columns": lambda x: x[:, :16] * 2,
    "the last columns": lambda x: x[:, -16:] * 2,
    "a branch that changes nothing": lambda x: x.contiguous() + 1 if x.shape[1] > 4 else x + 1,
    "halves": lambda x: torch.chunk(x, 2, dim=1)[0] + 0,
    "a branch at one": lambda x: x.sum(1, keepdim=True) if x.shape[1] > 1 else x + 0,
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_at_every_size_is_kept(name: str) -> None:
    model = exported(RIGHT[name])
    assert model.axes[0].kept
    for size in (1, 2, 3, 4, 5, 8, 15, 16, 17, 40):
        x = torch.randn(2, size)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, RIGHT[name](x))


WRONG = {
    "a branch": (lambda x: x * 2 if x.shape[1] > 4 else x, "seq for seq > 4"),
    "a value": (lambda x: x * (2 if x.shape[1] / 2 == 3.0 else 3), "seq for seq / 2 == 3.0"),
    "chunks in a number of their own": (
        lambda x: x * 2 if x.shape[1] + (4 - x.shape[1] % 4) % 4 <= 8 else x,
        "seq for 4*((seq + 3) // 4) <= 8",
    ),
    "a remainder": (lambda x: x if x.shape[1] % 2 else x * 2, "seq for seq % 2 == 0"),
    "one": (lambda x: x * 3 if x.shape[1] == 1 else x, "seq for seq >= 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_at_a_size_that_was_asked_for_is_an_error_with_the_line(name: str) -> None:
    function, bound = WRONG[name]
    text = refused(function)
    assert f"x axis 1 (seq): bounded, {bound}: at other sizes the program does something else" in text
    assert "test_bounds.py:" in text
    assert "What to do: write that line so that it holds for any size" in text
    assert 'pass on_fixed_axis="warn"' in text


def test_a_bound_that_was_asked_for_is_none() -> None:
    (axis,) = exported(WRONG["a branch"][0], Dim("seq", min=5)).axes
    assert (axis.kept, axis.bounds) == (True, ())
    (axis,) = exported(WRONG["one"][0], Dim("seq", min=2, max=9)).axes
    assert (axis.kept, axis.at_most) == (True, 9)


def test_a_bound_of_the_model_itself_is_told_and_no_error() -> None:
    positions = torch.randn(32)
    (axis,) = exported(lambda x: x + positions[: x.shape[1]]).axes
    assert str(axis) == "x axis 1 (seq): kept as seq, at most 32"
    (bound,) = axis.bounds
    assert bound.kind == Kind.OWN
    assert str(bound).startswith("for seq <= 32: the model refuses other sizes (seq=33) (by ")


def two(function: Callable[..., Any], **shapes: Any) -> OnnxModel:
    return to_onnx(ApplyTwo(function).eval(), (torch.randn(5), torch.randn(5)), dynamic_shapes=shapes)


def test_axes_that_the_model_wants_to_be_equal_are_kept_and_told() -> None:
    first, second = two(lambda x, y: x + y, x={0: "a"}, y={0: "b"}).axes
    assert first.kept
    assert second.kept
    assert str(second) == "y axis 0 (b): kept as a; the model refuses other sizes than a == b or a single one"


def test_axes_that_the_program_alone_wants_to_be_equal_are_an_error() -> None:
    with pytest.raises(AxisError, match=r"for a == b: at other sizes the program does something else"):
        two(lambda x, y: x.sum() + y.sum() if x.shape[0] == y.shape[0] else x.sum(), x={0: "a"}, y={0: "b"})


def test_axes_of_one_name_are_asked_to_be_equal() -> None:
    axes = two(lambda x, y: x * 2 if x.shape[0] == y.shape[0] else y, x={0: "n"}, y={0: "n"}).axes
    assert all(axis.kept and not axis.bounds for axis in axes)


def test_a_sum_of_names_is_asked_to_be_one() -> None:
    class Joins(torch.nn.Module):
        def forward(self, past: torch.Tensor, new: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            both = torch.cat([past, new])
            return both * 2 if both.shape[0] == mask.shape[0] else both

    shapes = {"past": {0: "past"}, "new": {0: "new"}, "mask": {0: "past+new"}}
    model = to_onnx(Joins().eval(), (torch.randn(3), torch.randn(4), torch.randn(7)), dynamic_shapes=shapes)
    assert [sorted(axis.size.split(" + ")) for axis in model.axes] == [["past"], ["new"], ["new", "past"]]
    assert all(axis.kept and not axis.bounds for axis in model.axes)


def test_a_fixed_axis_is_an_error_unless_it_was_left_to_torch(caplog: pytest.LogCaptureFixture) -> None:
    function: Callable[[torch.Tensor], Any] = lambda x: x + torch.ones(2, 6)  # noqa: E731
    assert "x axis 1 (seq): fixed to 6, seq == 6 (by " in refused(function)
    assert not exported(function, Dim.AUTO).axes[0].kept
    with caplog.at_level(logging.WARNING):
        model = to_onnx(
            Called(function).eval(), (torch.randn(2, 6),), dynamic_shapes={"x": {1: "seq"}}, on_fixed_axis="warn"
        )
    assert not model.axes[0].kept
    assert "of the axes that were asked to change, 1 do not, or not to every size" in caplog.text


def test_the_trial_leaves_the_model_and_the_random_numbers_as_they_were() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.last: Any = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x
            self.calls += 1
            return x * 2 if x.shape[0] > 4 else x

    model = Counts().eval()
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with pytest.raises(AxisError):
        to_onnx(model, (torch.ones(6),), dynamic_shapes={"x": {0: "n"}})
    assert torch.equal(torch.rand(4), expected)
    assert model.last is None
    assert float(model.calls) == 0


def behind(x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
    """Positions from `past` on out of a table of 32, which has one left for all tokens behind a past of 31."""
    seen = past.shape[1]
    table = torch.linspace(0.0, 1.0, 32)[None]
    return x + table[:, seen : seen + x.shape[1]] + past.sum(1, keepdim=True)


def continued(function: Callable[..., Any]) -> OnnxModel:
    shapes = {"x": {1: "seq"}, "y": {1: "past"}}
    return to_onnx(ApplyTwo(function).eval(), (torch.randn(2, 3), torch.randn(2, 5)), dynamic_shapes=shapes)


def test_the_last_entry_of_a_table_for_all_tokens_is_still_the_bound_of_the_model() -> None:
    model = continued(behind)
    assert all(axis.kept for axis in model.axes)
    (condition,) = {bound.condition for axis in model.axes for bound in axis.bounds if "+" in bound.condition}
    assert condition == "seq + past <= 32"


def test_a_table_that_goes_on_with_something_else_is_an_error() -> None:
    with pytest.raises(AxisError, match="seq \\+ past <= 32"):
        continued(lambda x, past: behind(x, past) if x.shape[1] + past.shape[1] <= 32 else x * 2)


def test_squeezing_without_an_axis_leaves_out_those_that_the_trace_knows() -> None:
    """At a batch of one, eager leaves out that axis too, and what comes of it is broadcast to the same."""

    def first(x: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(x)
        result[:, 0] = x[:, -1:].squeeze()
        return result

    shapes = {"x": {0: "batch", 1: "seq"}}
    model = to_onnx(Called(first).eval(), (torch.randn(2, 6),), dynamic_shapes=shapes)
    assert all(axis.kept for axis in model.axes)


class Counted(torch.nn.Module):
    """A model whose data says how many rows there are, a third of it, as grids of pictures do: it takes no example of
    another size.
    """

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        rows: int = count.item()  # type: ignore[assignment]
        torch._check(rows == 3 * x.shape[0])
        return self.function(x)


def counted(function: Callable[[torch.Tensor], torch.Tensor]) -> OnnxModel:
    example = (torch.randn(8, 6), torch.tensor(24))
    return to_onnx(Counted(function).eval(), example, dynamic_shapes={"x": {0: "rows"}, "count": None})


def test_what_operators_ask_of_sizes_that_cannot_be_tried_is_no_error() -> None:
    def merged(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 24).sum(1)

    model = counted(merged)
    (axis,) = model.axes
    assert axis.kept
    assert [bound.kind for bound in axis.bounds]
    assert {bound.kind for bound in axis.bounds} == {Kind.INNER}
    for rows in (4, 12, 16):
        x = torch.randn(rows, 6)
        (got,) = model.run({"x": x, "count": torch.tensor(3 * rows)}).values()
        torch.testing.assert_close(got, merged(x))
    with pytest.raises(RuntimeError):  # as eager does
        model.run({"x": torch.randn(6, 6), "count": torch.tensor(18)})


def test_what_the_model_asks_of_sizes_that_cannot_be_tried_is_an_error() -> None:
    with pytest.raises(AxisError, match=r"other sizes could not be tried \(.*x.shape\[0\] % 4"):
        counted(lambda x: x * 2 if x.shape[0] % 4 == 0 else x)


def test_a_single_row_that_stands_for_all_that_the_data_counts_is_told_and_no_error() -> None:
    class Added(torch.nn.Module):
        """Rows of pictures, and their positions as the data counts them: one row would be broadcast."""

        def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
            rows: int = (grid[0] * grid[1]).item()  # type: ignore[assignment]
            torch._check(rows >= 2)
            position = torch.arange(rows).unsqueeze(1)
            return torch.nn.functional.softmax(x + position, dim=0) if x.shape[0] != 1 else x + position

    example = (torch.randn(6, 3), torch.tensor([2, 3]))
    model = to_onnx(Added().eval(), example, dynamic_shapes={"x": {0: "rows"}, "grid": None})
    (axis,) = model.axes
    assert axis.kept
    assert Kind.SINGLE in {bound.kind for bound in axis.bounds}


class UnlikeBelow(torch.nn.Module):
    """Does something else where the product of two sizes is small, which none of them is alone."""

    def __init__(self, least: int, factor: float) -> None:
        super().__init__()
        self.least, self.factor = least, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] * x.shape[1] > self.least else x * self.factor


@pytest.mark.parametrize("least", [1, 2, 3])
def test_a_condition_that_fails_only_where_several_sizes_are_one_is_found(least: int) -> None:
    shapes = ({0: "batch", 1: "seq"},)
    with pytest.raises(AxisError, match=r"batch\*seq|seq\*batch"):
        to_onnx(UnlikeBelow(least, 3.0), (torch.randn(3, 4),), dynamic_shapes=shapes)


@pytest.mark.parametrize("least", [1, 2, 3])
def test_where_the_model_does_the_same_beyond_it_is_no_bound(least: int) -> None:
    model = to_onnx(UnlikeBelow(least, 2.0), (torch.randn(3, 4),), dynamic_shapes=({0: "batch", 1: "seq"},))
    assert all(axis.kept for axis in model.axes)


@pytest.mark.parametrize(
    "function",
    [lambda x: x.unfold(1, 2, 1), lambda x: torch.nn.functional.pad(x, (1, 0), mode="reflect")],
    ids=("windows", "reflection"),
)
def test_an_operator_that_refuses_a_size_of_one_is_a_bound_of_the_model(function: Callable[..., torch.Tensor]) -> None:
    model = exported(function)
    assert model.axes[0].kept
    assert [str(bound) for bound in model.axes[0].bounds] == ["for seq >= 2: the model refuses other sizes (seq=1)"]


@pytest.mark.parametrize("part", [0.5, 0.3], ids=["one", "none"])
def test_a_number_that_follows_from_a_size_is_no_truth_value_where_it_is_one_or_none(part: float) -> None:
    def first(x: torch.Tensor) -> torch.Tensor:
        return x[:, : int(x.shape[1] * part)].sum(1)

    with pytest.raises(AxisError, match=r"int\(.* \* float\(seq\)\) == [01]"):
        exported(first, size=3)


class Positions(torch.nn.Module):
    """A table of five by five patches, which pictures of another grid get resized."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.table, self.scale = torch.nn.Parameter(torch.randn(1, 4, 5, 5)), scale

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        h, w = picture.shape[2] // 8, picture.shape[3] // 8
        patches = torch.nn.functional.avg_pool2d(picture, 8)
        if h * w == 25 and h == w:
            return patches + self.table * self.scale
        return patches + torch.nn.functional.interpolate(self.table, size=(h, w), mode="bicubic")


def exported_pictures(module: torch.nn.Module) -> OnnxModel:
    shapes = ({2: "height", 3: "width"},)
    return to_onnx(module, (torch.randn(2, 4, 32, 24),), dynamic_shapes=shapes)


def test_a_table_of_positions_is_tried_at_the_grid_that_it_was_made_for() -> None:
    module = Positions(1.0).eval()
    model = exported_pictures(module)
    for height, width in ((40, 40), (8, 200), (200, 8), (8, 8), (47, 41), (32, 24)):
        x = torch.randn(2, 4, height, width)
        (got,) = model.run({"picture": x}).values()
        torch.testing.assert_close(got, module(x).detach(), rtol=1e-4, atol=1e-4)


def test_another_table_for_one_grid_alone_is_told() -> None:
    with pytest.raises(AxisError, match=r"(?s)height.*h \* w == 25"):
        exported_pictures(Positions(2.0).eval())


@pytest.mark.parametrize(("steps", "most"), [(2, 24), (600, 10)])
def test_a_long_program_is_refused_as_often_as_tells_where_the_model_stops(steps: int, most: int) -> None:
    """At three sizes, and at a few that its own numbers lead to, for it may take those."""
    beyond: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        if isinstance(x.shape[1], int) and x.shape[1] > 16:
            beyond.append(x.shape[1])
        x = x + torch.linspace(0.0, 1.0, 16)[: x.shape[1]]
        for _ in range(steps):
            x = x + 1
        return x

    model = exported(function)
    assert model.axes[0].kept
    assert [bound.condition for bound in model.axes[0].bounds] == ["seq <= 16"]
    assert len(beyond) <= most
    assert min(beyond) == 17


class Windows(torch.nn.Module):
    """Windows of four, shifted where there are several; the convolution before takes no axis of 1."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        height, width = x.shape[1:3]
        x = torch.nn.functional.pad(x, (0, 0, 0, -width % 4, 0, -height % 4))
        down = 0 if x.shape[1] <= 4 else 2
        right = 0 if x.shape[2] <= 4 else 2
        if down + right > 0:
            x = torch.roll(x, (-down, -right), (1, 2))
        x = x.softmax(-1)
        if down + right > 0:
            x = torch.roll(x, (down, right), (1, 2))
        return x[:, :height, :width].contiguous()


def test_what_an_axis_of_one_is_refused_for_is_no_bound_of_another() -> None:
    model = Windows().eval()
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    file = to_onnx(model, (torch.randn(2, 3, 24, 20),), dynamic_shapes=shapes)
    for height, width in ((8, 20), (20, 8), (8, 8), (2, 2), (33, 7)):
        x = torch.randn(3, 3, height, width)
        (got,) = file.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
