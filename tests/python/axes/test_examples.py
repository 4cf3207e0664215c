"""Inputs that go together, as patches and the grid that counts them: more examples tell which sizes come."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exportguard import AxisError, ExportOptions, InvalidArgumentError, OnnxModel, to_onnx
from exportguard.axes.bound import Kind
from exportguard.runners.onnxruntime import OrtSession


class Pairs(torch.nn.Module):
    """Merges the patches of pictures by two; the grid says how many there are."""

    def forward(self, patches: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        if int(grid.sum()) != patches.shape[0]:
            raise ValueError("patches and grid do not go together")
        return patches.view(-1, 2, patches.shape[1]).sum(1)


class Unchecked(Pairs):
    """Traced without a look at the data, and refuses what does not go together all the same."""

    def forward(self, patches: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting():
            return super().forward(patches, grid)
        if patches.shape[0] % 2:
            raise ValueError("half a pair")
        return patches.view(-1, 2, patches.shape[1]).sum(1)


class UncheckedShort(Unchecked):
    def forward(self, patches: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return super().forward(patches, grid) * (2 if patches.shape[0] < 7 else 3)


def pictures(count: int) -> dict[str, torch.Tensor]:
    return {"patches": torch.randn(count, 3), "grid": torch.tensor([count - 2, 2])}


def exported(model: torch.nn.Module, *counts: int) -> OnnxModel:
    options: Any = ExportOptions(examples=[pictures(count) for count in counts])
    shapes = {"patches": {0: "count"}, "grid": {}}
    return to_onnx(model.eval(), (), pictures(8), dynamic_shapes=shapes, options=options)


def test_without_examples_nothing_can_be_tried() -> None:
    with pytest.raises(AxisError, match="other sizes could not be tried"):
        exported(Unchecked())


def test_what_every_example_meets_is_a_bound_and_no_error() -> None:
    (axis,) = exported(Unchecked(), 8, 10, 4, 20).axes
    assert axis.kept
    assert {bound.kind for bound in axis.bounds} == {Kind.MET}
    assert "every example that was given meets it" in str(axis.bounds[0])


def test_too_few_examples_tell_nothing() -> None:
    with pytest.raises(AxisError, match="other sizes could not be tried"):
        exported(Unchecked(), 8, 10)


def test_an_example_that_the_program_is_wrong_for_is_an_error() -> None:
    with pytest.raises(AxisError, match="at other sizes the program does something else"):
        exported(UncheckedShort(), 8, 10, 4, 20)


def test_examples_are_arguments_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match=r"options.examples\[0\]"):
        ExportOptions(examples=[torch.ones(1)])  # type: ignore[list-item]


class PatchesInARow(torch.nn.Module):
    """The patches of all pictures side by side; the grids say how many are of each, and the pixels follow from that."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 4, 8, stride=8)
        self.pictures = torch.nn.Embedding(8, 4)

    def forward(self, pixels: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
        of_picture = torch.repeat_interleave(torch.arange(grids.shape[0]), grids.prod(dim=1))
        return self.patches(pixels).flatten(2).transpose(1, 2) + self.pictures(of_picture)


def test_a_program_of_another_example_does_for_the_given_one_what_the_model_does() -> None:
    """A single patch goes with any grid by broadcasting, so that there the model takes pixels of another width."""
    model = PatchesInARow().eval()
    pixels, grids = torch.randn(1, 3, 8, 80), torch.tensor([[2, 3], [1, 4]])
    shapes = ({3: "width"}, {0: "pictures"})
    found = to_onnx(model, (pixels, grids), dynamic_shapes=shapes, on_fixed_axis="warn")
    session = OrtSession(found.to_bytes())
    (got,) = session.run(dict(zip(session.input_names, (pixels, grids), strict=True)))
    torch.testing.assert_close(got, model(pixels, grids))
