"""A number of Python that is made of a size, `int(n / 16)`, may be compared with any other without a word to torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch

from called import Called
from exportguard import AxisError, to_onnx

ONE_OF_SEVERAL: dict[str, Callable[[int], bool]] = {
    "a small quotient": lambda n: int(n / 4) == 1,
    "a quotient": lambda n: int(n / 16) == 3,
    "a power": lambda n: int(n**0.5) == 5,
    "a root": lambda n: int(math.sqrt(n)) == 7,
    "a product": lambda n: int(n * 0.3) == 11,
}
MANY = 52
SHAPES = ({0: "rows"},)


def one_way(x: torch.Tensor, holds: Callable[[int], bool]) -> torch.Tensor:
    return x * 3 if holds(x.shape[0]) else x - 1


@pytest.mark.parametrize("rows", [9, 16, 21])
@pytest.mark.parametrize("holds", ONE_OF_SEVERAL.values(), ids=ONE_OF_SEVERAL.keys())
def test_what_one_such_number_decides_is_found(holds: Callable[[int], bool], rows: int) -> None:
    model = Called(lambda x: one_way(x, holds)).eval()
    with pytest.raises(AxisError, match="does something else than the model"):
        to_onnx(model, (torch.randn(rows, 3),), dynamic_shapes=SHAPES)
    onnx = to_onnx(model, (torch.randn(rows, 3),), dynamic_shapes=SHAPES, rewrite="auto")
    for size in range(1, 70):
        x = torch.randn(size, 3)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, one_way(x, holds), msg=lambda text, size=size: f"{size} rows: {text}")


def test_a_number_that_decides_nothing_is_no_bound() -> None:
    def cut(x: torch.Tensor) -> torch.Tensor:
        return x * (1 if int(x.shape[0] / 4) >= 0 else 2)

    onnx = to_onnx(Called(cut).eval(), (torch.randn(16, 3),), dynamic_shapes=SHAPES)
    assert onnx.axes[0].kept
    for size in (1, 4, 7, 40):
        x = torch.randn(size, 3)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), x)


@dataclasses.dataclass
class Config:
    rows: int = 45


class Compares(torch.nn.Module):
    """Compares a number that it makes of the rows with one that lies in its code, or in one of its attributes."""

    def __init__(self, way: str, layers: int = 0) -> None:
        super().__init__()
        self.way, self.most, self.config, self.places = way, 33, Config(), (3, 36)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = int(x.shape[0] / 16)
        ways: dict[str, Callable[[], bool]] = {
            "a number that is written": lambda: number == 30,
            "more than a number": lambda: number > 30,
            "an attribute": lambda: number == self.most,
            "an entry of an attribute": lambda: number in self.places,
            "a field of an attribute": lambda: number >= self.config.rows,
            "a constant of the module": lambda: number == MANY,
            "a large number": lambda: number == 300,
        }
        for layer in self.layers:
            x = layer(x).tanh()
        return x * 3 if ways[self.way]() else x - 1


WAYS = (
    "a number that is written",
    "more than a number",
    "an attribute",
    "an entry of an attribute",
    "a field of an attribute",
    "a constant of the module",
    "a large number",
)


@pytest.mark.parametrize("way", WAYS)
def test_a_number_is_compared_with_those_at_hand(way: str) -> None:
    with pytest.raises(AxisError, match="does something else than the model"):
        to_onnx(Compares(way).eval(), (torch.randn(20, 3),), dynamic_shapes=SHAPES)


def test_a_number_of_a_long_program_is_compared_with_those_at_hand() -> None:
    with pytest.raises(AxisError, match="does something else than the model"):
        to_onnx(Compares("an attribute", layers=300).eval(), (torch.randn(20, 3),), dynamic_shapes=SHAPES)
