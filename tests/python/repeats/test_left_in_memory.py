"""What an export made goes with it: its sizes, its fake tensors and what was remembered of them."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exportguard import to_onnx

_ROWS = ({0: "rows"},)


class Layers(torch.nn.Module):
    """Weights of one look, whose fake tensors are copied."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Branching(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y * 2 if y.sum() > 0 else y - 1


@pytest.fixture
def _unlogged() -> Iterator[None]:
    """The records of a log have what they tell of."""
    before = logging.root.manager.disable
    logging.disable()
    yield
    logging.disable(before)


def _left() -> tuple[int, int]:
    gc.collect()
    kinds = [type(item) for item in gc.get_objects()]
    return kinds.count(ShapeEnv), kinds.count(FakeTensorMode)


@pytest.mark.parametrize("kind", [Layers, Branching])
@pytest.mark.usefixtures("_unlogged")
def test_nothing_of_an_export_stays(kind: type[torch.nn.Module]) -> None:
    def export() -> None:
        to_onnx(kind().eval(), (torch.ones(3, 4),), dynamic_shapes=_ROWS, rewrite="auto")

    export()
    before, exports = _left(), 5
    for _ in range(exports):
        export()
    # What the last of them left may still be in use.
    environments, modes = (now - then for now, then in zip(_left(), before, strict=True))
    assert environments < exports / 2
    assert modes < exports / 2
