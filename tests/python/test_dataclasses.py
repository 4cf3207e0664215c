"""Dataclasses as inputs and outputs: named by their fields once torch knows them, refused with the remedy before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from exportguard import ExportError, to_onnx


@dataclass
class Pose:
    """Fields with a value, and one in the middle that may be None."""

    angles: Tensor
    scale: Tensor | None = None
    points: object = None


class Turns(torch.nn.Module):
    def forward(self, x: Tensor) -> Pose:
        return Pose(x * 2, None, {"left": x + 1, "right": (x.sum(), x.amax(1))})


class TakesPoses(torch.nn.Module):
    def forward(self, pose: Pose) -> tuple[Pose, Tensor]:
        assert isinstance(pose.points, Tensor)
        return Pose(pose.angles.sin(), pose.points.abs()), pose.points.mean()


@pytest.fixture
def registered() -> Iterator[None]:
    torch.export.register_dataclass(Pose)
    yield
    pytree._deregister_pytree_node(Pose)
    pytree.SUPPORTED_SERIALIZED_TYPES.pop(Pose, None)


def test_outputs_have_the_names_of_fields(registered: None) -> None:
    model = to_onnx(Turns().eval(), (torch.randn(3, 4),), dynamic_shapes=({0: "batch"},))
    assert [(value.name, value.shape) for value in model.outputs] == [
        ("angles", ("batch", 4)),
        ("points.left", ("batch", 4)),
        ("points.right.0", ()),
        ("points.right.1", ("batch",)),
    ]
    x = torch.randn(5, 4)
    got, expected = model.run({"x": x}), pytree.tree_leaves(Turns()(x))
    torch.testing.assert_close(list(got.values()), expected)


def test_inputs_have_the_names_of_fields(registered: None) -> None:
    pose = Pose(torch.randn(3, 4), None, torch.randn(3))
    model = to_onnx(TakesPoses().eval(), (pose,), dynamic_shapes=([{0: "batch"}, {0: "points"}],))
    assert [(value.name, value.shape) for value in model.inputs] == [
        ("pose.angles", ("batch", 4)),
        ("pose.points", ("points",)),
    ]
    assert [value.name for value in model.outputs] == ["output_0.angles", "output_0.scale", "output_1"]


@pytest.mark.parametrize(("model", "given"), [(Turns(), torch.randn(3, 4)), (TakesPoses(), Pose(torch.randn(3, 4)))])
def test_unregistered_ones_are_refused_with_the_remedy(model: torch.nn.Module, given: object) -> None:
    with pytest.raises(
        ExportError, match=r"test_dataclasses\.Pose is taken apart, torch\.export\.register_dataclass\(cls\)"
    ):
        to_onnx(model.eval(), (given,))
