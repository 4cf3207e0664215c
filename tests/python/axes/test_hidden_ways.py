"""Tests of sizes whose ways do the same for most numbers, and something else for large, small, infinite ones or NaN."""

from __future__ import annotations

import pytest
import torch
from random_programs import model_of

from exportguard import AxisError, to_onnx

#: What one of both ways does to `w`, that the other does not.
WAYS = {
    "a bound from above": "w = w.clamp(max=50)",
    "a bound from below": "w = torch.relu(w + 30) - 30",
    "no NaN": "w = torch.nan_to_num(w, nan=0.0)",
    "no infinite number": "w = torch.where(w.isinf(), 0.0, w)",
    "no large number": "w = w.masked_fill(w > 100, 0)",
    "no small number": "w = torch.where(w.abs() < 1e-3, 7.0, w)",
    "twice what is large": "w = w + torch.relu(w - 40)",
    "another step": "w = w + 2 * torch.floor(w / 50)",
    "another zero": "w = torch.where(w == 0, -1.0, w)",
}

TESTS = ("x.shape[0] > 4", "len(x) in (2, 5)", "x.shape[0] % 3 == 1", "not x.size(0) < 7")

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        w = x.mean(0)
        if {test}:
            {way}
        return w
"""


def _data(rows: int) -> list[torch.Tensor]:
    plain = torch.rand(rows, 4)
    holes = plain.clone()
    holes[0, 0], holes[0, 1], holes[0, 2] = torch.nan, torch.inf, -torch.inf
    return [plain, 1000 * plain, -1000 * plain, 1e-5 * plain, torch.zeros(rows, 4), holes]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("test", TESTS)
def test_a_way_that_shows_at_few_numbers_is_found(test: str, way: str) -> None:
    model = model_of(_PROGRAM.format(test=test, way=WAYS[way]), f"/ways/{test} {way}.py")
    example, shapes = (torch.rand(3, 4),), ({0: "rows"},)
    with pytest.raises(AxisError, match=r"something else than the model|fixed to 3"):
        to_onnx(model, example, dynamic_shapes=shapes)
    onnx = to_onnx(model, example, dynamic_shapes=shapes, rewrite="auto")
    for rows in (1, 2, 3, 4, 5, 7, 8):
        for x in _data(rows):
            (found,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(found, model(x), equal_nan=True)


class DividesByNothing(torch.nn.Module):
    """What data make infinite is the same in both ways."""

    def forward(self, x):
        w = x[0] / (int(x.sum().abs()) % 3)
        if x.shape[0] == 2 or x.shape[0] == 5:
            w = w + 3
        return w


@pytest.mark.parametrize("seed", range(6))
def test_ways_that_are_infinite_for_the_data_at_hand_are_told_apart(seed: int) -> None:
    torch.manual_seed(seed)
    onnx = to_onnx(DividesByNothing(), (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in range(1, 8):
        for scale in (1, -3, 10):
            x = scale * torch.rand(rows, 4)
            (found,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(found, DividesByNothing()(x), equal_nan=True)


_OF_TOKENS = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(20, 8)
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        w = self.layer(self.table(x))
        if x.shape[0] > 4:
            {way}
        return w.sum(0)
"""


@pytest.mark.parametrize("way", ["a bound from above", "a bound from below", "no large number", "no small number"])
def test_a_way_that_shows_at_other_weights_is_found(way: str) -> None:
    model = model_of(_OF_TOKENS.format(way=WAYS[way]), f"/ways/tokens {way}.py").eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with pytest.raises(AxisError, match="something else than the model"):
        to_onnx(model, (torch.arange(3),), dynamic_shapes=({0: "tokens"},))
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, before[name], rtol=0, atol=0)
