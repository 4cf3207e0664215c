"""A trial makes no tensors that have no room in memory, though the inputs that they are made of are small."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from exportguard import AxisError, to_onnx
from exportguard.axes.bound import Kind

SIDES = {0: "batch", 2: "height", 3: "width"}
BESIDE = 10 << 30  # bytes that a trial may take beside what the process has


class Enlarges(torch.nn.Module):
    """Makes a picture of a few numbers, as the decoder of an autoencoder does, and asks how large it is."""

    def __init__(self, gigabytes: float, factor: int) -> None:
        super().__init__()
        self.gigabytes, self.factor = gigabytes, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.interpolate(x, scale_factor=32.0, mode="nearest").repeat(1, 64, 1, 1)
        counted = y.numel() * 2 / 1024**3
        return y.mean((2, 3)) * (self.factor if counted > self.gigabytes else 1)


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BESIDE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_gigabytes_that_only_vast_tensors_have_are_told_and_not_tried() -> None:
    model = to_onnx(Enlarges(2.0, 3).eval(), (torch.randn(1, 1, 3, 4),), dynamic_shapes=(SIDES,))
    assert {bound.kind for axis in model.axes for bound in axis.bounds} == {Kind.VAST}


def test_a_test_that_a_trial_has_no_room_for_is_open() -> None:
    with pytest.raises(AxisError, match="other sizes could not be tried"):
        to_onnx(Enlarges(1.0, 3).eval(), (torch.randn(1, 1, 3, 4),), dynamic_shapes=(SIDES,))


def test_a_test_that_a_trial_has_room_for_is_tried() -> None:
    with pytest.raises(AxisError, match="the program does something else than the model"):
        to_onnx(Enlarges(2**-8, 3).eval(), (torch.randn(1, 1, 3, 4),), dynamic_shapes=(SIDES,))
