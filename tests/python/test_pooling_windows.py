"""Pooling in the evaluator, window by window as ONNX defines it: any stride, padding, dilation, and size of kernel."""

from __future__ import annotations

import itertools
import math
import random
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx
import pytest
import torch
from onnx import helper

import exportguard

OPSET = 22


@dataclass(frozen=True)
class Axis:
    """A window's way along an axis of `size` elements."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    ceiling: bool

    def count(self) -> int:
        room = self.size + self.before + self.after - (self.kernel - 1) * self.dilation - 1
        count = (math.ceil if self.ceiling else math.floor)(room / self.stride) + 1
        starts_behind = self.ceiling and (count - 1) * self.stride >= self.size + self.before
        return count - 1 if starts_behind else count

    def places(self, output: int) -> list[int]:
        return [output * self.stride - self.before + k * self.dilation for k in range(self.kernel)]

    def is_element(self, place: int) -> bool:
        return 0 <= place < self.size

    def is_declared(self, place: int) -> bool:
        """An element or one of the padding that was asked for."""
        return -self.before <= place < self.size + self.after


def drawn(draw: random.Random, size: int) -> Axis:
    kernel = draw.choice([1, 2, 3, 3, 7])
    dilation = draw.choice([1, 1, 2])
    extent = (kernel - 1) * dilation + 1
    before, after = (draw.randint(0, min(kernel - 1, 3)) for _ in range(2))
    after += max(extent - size - before - after, 0)
    return Axis(size, kernel, draw.choice([1, 2, 3]), dilation, before, after, False)


def model(operator: str, axes: list[Axis], outputs: int = 1, **settings: Any) -> exportguard.OnnxModel:
    node = helper.make_node(
        operator, ["x"], ["y", "at"][:outputs],
        kernel_shape=[axis.kernel for axis in axes], strides=[axis.stride for axis in axes],
        dilations=[axis.dilation for axis in axes], ceil_mode=int(axes[0].ceiling),
        pads=[*(axis.before for axis in axes), *(axis.after for axis in axes)], **settings
    )  # fmt: skip
    declared = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)
    made = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "pool", [declared], made)
    opset = helper.make_opsetid("", OPSET)
    return exportguard.load(helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString())


def windows(axes: list[Axis]) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Each output's place and those of its window, within the input or not."""
    for output in itertools.product(*(range(axis.count()) for axis in axes)):
        yield output, list(itertools.product(*(axis.places(at) for axis, at in zip(axes, output, strict=True))))


def inside(axes: list[Axis], place: tuple[int, ...]) -> bool:
    return all(axis.is_element(at) for axis, at in zip(axes, place, strict=True))


def average(plane: torch.Tensor, axes: list[Axis], includes_pads: bool) -> torch.Tensor:
    result = torch.zeros([axis.count() for axis in axes], dtype=torch.float64)
    for output, places in windows(axes):
        declared = [p for p in places if all(a.is_declared(at) for a, at in zip(axes, p, strict=True))]
        elements = [plane[p].double() for p in places if inside(axes, p)]
        count = len(declared) if includes_pads else len(elements)
        result[output] = sum(elements, torch.zeros((), dtype=torch.float64)) / count if count else math.nan
    return result


def greatest(plane: torch.Tensor, axes: list[Axis]) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.full([axis.count() for axis in axes], -math.inf)
    places_of = torch.zeros(values.shape, dtype=torch.int64)
    for output, places in windows(axes):
        for place in (p for p in places if inside(axes, p)):
            if plane[place] > values[output]:
                values[output] = plane[place]
                places_of[output] = sum(at * math.prod(plane.shape[axis + 1 :]) for axis, at in enumerate(place))
    return values, places_of


@pytest.mark.parametrize("seed", range(40))
def test_windows_are_as_defined(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    shape = [draw.randint(1, 9) for _ in range(draw.choice([1, 2, 2, 3]))]
    ceiling = draw.random() < 0.5
    axes = [Axis(**{**vars(drawn(draw, size)), "ceiling": ceiling}) for size in shape]
    x = torch.randn(1, 1, *shape)
    for includes_pads in (0, 1):
        got = model("AveragePool", axes, count_include_pad=includes_pads).run({"x": x}, runner="evaluator")["y"]
        expected = average(x[0, 0], axes, bool(includes_pads))
        torch.testing.assert_close(got[0, 0].double(), expected, rtol=1e-5, atol=1e-6, equal_nan=True)

    got = model("MaxPool", axes, outputs=2).run({"x": x}, runner="evaluator")
    values, places = greatest(x[0, 0], axes)
    torch.testing.assert_close(got["y"][0, 0], values)
    has_any = values > -math.inf
    assert torch.equal(got["at"][0, 0][has_any], places[has_any])
    assert torch.equal(model("MaxPool", axes).run({"x": x}, runner="evaluator")["y"], got["y"])


@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool", "LpPool"])
def test_a_kernel_that_is_larger_than_the_input_takes_no_more_memory(operator: str) -> None:
    """As EfficientNet's pooling has one: padded to the kernel, these would be 134 GB."""
    axes = [Axis(size, 2560, 2560, 1, 0, 0, True) for size in (5, 4)]
    x = torch.randn(2, 2560, 5, 4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    got = model(operator, axes).run({"x": x}, runner="evaluator")["y"]
    expected = {"AveragePool": x.mean((2, 3)), "MaxPool": x.amax((2, 3)), "LpPool": x.square().sum((2, 3)).sqrt()}
    torch.testing.assert_close(got.flatten(1), expected[operator], rtol=1e-5, atol=1e-5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 * 1024  # KiB


def test_pads_beyond_all_bounds_are_refused() -> None:
    huge = [Axis(4, 2, 1, 1, 2**62, 0, True)]
    with pytest.raises(exportguard.ExportGuardError, match="pads must be less than"):
        model("AveragePool", huge).run({"x": torch.randn(1, 1, 4)}, runner="evaluator")
