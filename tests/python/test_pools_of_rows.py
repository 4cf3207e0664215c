"""Adaptive maxima of pictures keep an axis that stays dynamic."""

from __future__ import annotations

import pytest
import torch

from called import Called
from exportguard import to_onnx
from patch_programs.pools_of_rows import FUNCTIONS, is_right


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_places(name: str) -> None:
    is_right(FUNCTIONS[name])


@pytest.mark.parametrize("name", ["three columns and places", "two rows and places"])
def test_numbers_that_are_none_and_pictures_of_one_place(name: str) -> None:
    function = FUNCTIONS[name]
    onnx = to_onnx(Called(function).eval(), (torch.randn(2, 3, 8, 9),), dynamic_shapes=({0: "b", 2: "h", 3: "w"},))
    holes = torch.randn(2, 3, 6, 7).where(torch.rand(2, 3, 6, 7) > 0.2, torch.nan)
    expected = function(holes)
    assert isinstance(expected, tuple)
    values = next(iter(onnx.run({"x": holes}).values()))
    torch.testing.assert_close(values, expected[0], equal_nan=True)
    one = torch.randn(1, 3, 1, 1)
    for got, wanted in zip(onnx.run({"x": one}).values(), function(one), strict=True):  # type: ignore[call-overload]
        torch.testing.assert_close(got, wanted)
