"""Random numbers of Python's, numpy's and torch's own generators: as eager mode draws them, or refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from random import random as drawn

import numpy as np
import pytest
import torch

from exportguard import ExportGuardError, RewriteError, to_onnx

_DRAWS: dict[str, Callable[[], float]] = {
    "random": lambda: random.random(),
    "a function of random": lambda: drawn(),
    "gauss": lambda: random.gauss(0, 1),
    "numpy": lambda: float(np.random.rand()),
    "numpy's normal": lambda: float(np.random.normal()),
}


def _seeded() -> None:
    random.seed(4)
    np.random.seed(4)


class InBoth(torch.nn.Module):
    """Both branches draw one."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x):
        _seeded()
        y = x * self.draw() if x.sum() > 0 else x - self.draw()
        return y + self.draw()


class InOne(InBoth):
    """One branch draws."""

    def forward(self, x):
        _seeded()
        y = x * self.draw() if x.sum() > 0 else x
        return y + self.draw()


class InEachStep(InBoth):
    """A loop draws as many as there are rows."""

    def forward(self, x):
        _seeded()
        total = torch.zeros(4)
        for row in x:
            total = total + row * self.draw()
        return total


class OfTorch(torch.nn.Module):
    """torch's numbers of a seed, which no file draws."""

    def forward(self, x):
        torch.manual_seed(0)
        return x + torch.rand(4)


@pytest.mark.parametrize("draw", _DRAWS.values(), ids=_DRAWS)
def test_both_branches_draw_the_same_number(draw: Callable[[], float]) -> None:
    model = InBoth(draw).eval()
    onnx = to_onnx(model, (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (torch.ones(3, 4), -torch.ones(2, 4)):
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))


@pytest.mark.parametrize("model", [InOne, InEachStep])
@pytest.mark.parametrize("draw", _DRAWS.values(), ids=_DRAWS)
def test_a_number_that_one_path_draws_is_refused(model: type[InBoth], draw: Callable[[], float]) -> None:
    with pytest.raises(ExportGuardError, match=r"line \d+|cannot be rewritten"):
        to_onnx(model(draw).eval(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")


def test_the_remedy_is_told() -> None:
    with pytest.raises(RewriteError, match="draw random numbers in front of the test"):
        to_onnx(InOne(_DRAWS["random"]), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")


@pytest.mark.parametrize("draw", _DRAWS.values(), ids=_DRAWS)
def test_a_step_that_draws_is_told(draw: Callable[[], float]) -> None:
    with pytest.raises(
        ExportGuardError, match=r"line \d+: a step of a loop over tensors draws from a \w+.*before the loop"
    ):
        to_onnx(InEachStep(draw).eval(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")


def test_numbers_of_a_seed_of_torch_are_refused() -> None:
    with pytest.raises(ExportGuardError, match=r"seeds \(`torch.manual_seed`"):
        to_onnx(OfTorch(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},))
