from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

import exportguard

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


NAN, INF = float("nan"), float("inf")
NOWHERE = [(NAN, 0.0), (0.0, NAN), (INF, 0.0), (-INF, 0.0), (INF, INF), (NAN, NAN), (0.1, 0.2), (0.0, -INF)]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_positions_that_are_no_numbers(mode: str, padding: str, corners: bool, check: Check) -> None:
    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return functional.grid_sample(x, grid, mode, padding, corners)

    grid = torch.tensor(NOWHERE)[None, None]
    for dtype in (torch.float32, torch.float64):
        check(sampled, [torch.rand(1, 2, 3, 4, dtype=dtype), grid.to(dtype)])
    if mode != "bicubic":
        volumes = torch.nn.functional.pad(grid, (0, 1))[None]
        check(sampled, [torch.rand(1, 2, 2, 3, 4), volumes], opset=20)


class Sampled(torch.nn.Module):
    """Samples in a narrow dtype."""

    def __init__(self, dtype: torch.dtype, mode: str, padding: str, corners: bool) -> None:
        super().__init__()
        self.dtype = dtype
        self.options = (mode, padding, corners)

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return functional.grid_sample(x.to(self.dtype), grid.to(self.dtype), *self.options).float()


@CORNERS
@PADDINGS
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [[(5, 7), (1, 9), (16, 33)], [(5, 7, 4), (3, 17, 1)]], ids=("images", "volumes"))
def test_positions_of_16_bits_are_rounded_as_torch_rounds_them(
    sizes: list[tuple[int, ...]], dtype: torch.dtype, mode: str, padding: str, corners: bool
) -> None:
    """A position that is rounded otherwise is another element for "nearest", and another weight for "bilinear"."""
    model = Sampled(dtype, mode, padding, corners).eval()
    rank = len(sizes[0])
    made = None
    for size in sizes:
        x = torch.randint(-9, 9, (2, 3, *size)).float()
        grid = torch.rand(2, *(8, 9, 2)[:rank], rank) * 6 - 3
        axes = {axis: f"s{axis}" for axis in range(2, 2 + rank)}
        made = made or exportguard.to_onnx(model, (x, grid), dynamic_shapes=(axes, None))
        (got,) = made.run({"x": x, "grid": grid}).values()
        allowed = 0 if mode == "nearest" else 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(got, model(x, grid), rtol=0, atol=9 * allowed)
