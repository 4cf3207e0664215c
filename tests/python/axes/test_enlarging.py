"""Examples of size 1 are enlarged by the export itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

from exportguard import AxisError, InvalidArgumentError, make_dynamic_cache, to_onnx


class Adds(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y.sum(1, keepdim=True)


@pytest.mark.parametrize("axis", ["batch", Dim.DYNAMIC, Dim("batch")])
def test_an_axis_of_size_1_is_kept(axis: Any) -> None:
    model = to_onnx(torch.nn.Linear(4, 2).eval(), (torch.randn(1, 4),), dynamic_shapes={"input": {0: axis}})
    (outcome,) = model.axes
    assert outcome.kept
    assert str(outcome).endswith("; exported with a larger example, as torch makes a constant of 1")
    for size in (1, 2, 7):
        (got,) = model.run({"input": torch.ones(size, 4)}).values()
        assert got.shape == (size, 2)


def test_sizes_of_one_name_grow_together() -> None:
    inputs = (torch.randn(1, 1), torch.randn(1, 1))
    shapes = {"x": {0: "batch", 1: "width"}, "y": {0: "batch", 1: "length"}}
    model = to_onnx(Adds().eval(), inputs, dynamic_shapes=shapes)
    assert all(axis.kept for axis in model.axes)
    x, y = torch.randn(4, 3), torch.randn(4, 6)
    torch.testing.assert_close(next(iter(model.run({"x": x, "y": y}).values())), Adds()(x, y))


def test_sizes_that_the_model_ties_grow_together() -> None:
    class Attends(torch.nn.Module):
        def forward(self, new: torch.Tensor, mask: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
            return torch.cat([past, new], 1) * mask

    inputs = (torch.randn(1, 1), torch.ones(1, 6), torch.randn(1, 5))
    names = ("new", "mask", "past")
    shapes: dict[str, Any] = {name: {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for name in names}
    model = to_onnx(Attends().eval(), inputs, dynamic_shapes=shapes)
    assert all(axis.kept for axis in model.axes)
    tensors = dict(zip(names, (torch.randn(3, 2), torch.rand(3, 6), torch.randn(3, 4)), strict=True))
    torch.testing.assert_close(next(iter(model.run(tensors).values())), Attends()(**tensors))


def test_a_step_with_an_empty_cache_is_an_example() -> None:
    class Grows(torch.nn.Module):
        def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
            keys, _ = cache.update(x, x, 0)
            return keys * 2  # type: ignore[no-any-return]

    cache = make_dynamic_cache([(torch.randn(1, 2, 0, 3), torch.randn(1, 2, 0, 3))])
    shapes = {"x": {0: "batch", 2: "seq"}, "cache": {0: "batch", 2: "past"}}
    model = to_onnx(Grows().eval(), (torch.randn(1, 2, 1, 3), cache), dynamic_shapes=shapes)
    assert all(axis.kept for axis in model.axes)


def test_a_model_that_takes_one_alone_says_so() -> None:
    class One(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] != 1:
                raise ValueError("one at a time")
            return x * 2

    with pytest.raises(InvalidArgumentError, match=r"axis 0 of x \(batch\) has size 1 in the example") as caught:
        to_onnx(One().eval(), (torch.zeros(1, 2),), dynamic_shapes={"x": {0: "batch"}})
    assert "the model takes none of the larger examples that were tried" in str(caught.value)


class Parts(torch.nn.Module):
    """A part of the columns that has one entry where there are few of them, in a memory of its own."""

    def __init__(self, step: int, start: int) -> None:
        super().__init__()
        self.step, self.start = step, start

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        part = x[:, self.start :: self.step]
        return torch.cat([part.contiguous().view(-1), part.transpose(0, 1).contiguous().view(-1)])


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(("step", "start"), [(2, 0), (1, 1), (3, 0), (5, 1)])
def test_an_axis_of_which_the_example_has_one_entry_in_a_part_is_kept(step: int, start: int, size: int) -> None:
    parts = Parts(step, start).eval()
    model = to_onnx(parts, (torch.randn(3, size),), dynamic_shapes={"x": {0: "rows", 1: "columns"}})
    assert all(axis.kept for axis in model.axes)
    for shape in ((1, 2), (2, 2), (4, 7), (3, 12), (5, 4)):
        x = torch.randn(*shape)
        torch.testing.assert_close(next(iter(model.run({"x": x}).values())), parts(x))


def test_the_only_size_that_a_model_takes_stays_fixed() -> None:
    with pytest.raises(AxisError, match=r"axis 1 .* fixed to 3"):
        to_onnx(torch.nn.Linear(3, 2).eval(), (torch.randn(4, 3),), dynamic_shapes={"input": {0: "batch", 1: "width"}})


def test_a_test_of_the_size_itself_is_told_with_the_size_that_was_given() -> None:
    class Asks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten() if x.shape[1] == 3 else x * 2

    with pytest.raises(AxisError, match=r"axis 1 .* fixed to 3"):
        to_onnx(Asks().eval(), (torch.randn(4, 3),), dynamic_shapes={"x": {0: "batch", 1: "width"}})
