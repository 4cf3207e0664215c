from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from conftest import Check

CORNERS = pytest.mark.parametrize("corners", [False, True], ids=("middles", "corners"))
PADDINGS = pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])


@CORNERS
@PADDINGS
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("opset", [18, 22])
def test_grid_sample_of_images(mode: str, padding: str, corners: bool, opset: int, check: Check) -> None:
    check(
        lambda x, g: functional.grid_sample(x, g, mode, padding, corners),
        [torch.rand(2, 3, 4, 5), torch.randn(2, 3, 2, 2)],
        opset=opset,
    )


@CORNERS
@PADDINGS
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample_of_volumes(mode: str, padding: str, corners: bool, check: Check) -> None:
    check(
        lambda x, g: functional.grid_sample(x, g, mode, padding, corners),
        [torch.rand(2, 3, 4, 5, 3), torch.randn(2, 3, 2, 2, 3)],
    )


@CORNERS
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 1, 5), (2, 3, 4, 5, 2)], ids=str)
def test_affine_grid(size: tuple[int, ...], corners: bool, check: Check) -> None:
    spatial = len(size) - 2
    check(lambda t: functional.affine_grid(t, size, corners), [torch.randn(2, spatial, spatial + 1)])
