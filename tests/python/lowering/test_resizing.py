from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from conftest import Check

OPSETS = (18, 22)
MODES = [
    *((spatial, mode, None) for spatial in (1, 2, 3) for mode in ("nearest", "nearest-exact")),
    *((1, "linear", corners) for corners in (False, True)),
    *((2, mode, corners) for mode in ("bilinear", "bicubic") for corners in (False, True)),
    *((3, "trilinear", corners) for corners in (False, True)),
]
FACTORS = (2.0, 3.0, 1.7, 0.6)


def image(spatial: int, batch: int = 2, first: int = 5) -> torch.Tensor:
    return torch.rand(batch, 3, *([first] + [5] * (spatial - 1)))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("size", [8, 3, 1])
@pytest.mark.parametrize(("spatial", "mode", "corners"), MODES)
def test_interpolate_to_a_size(
    spatial: int, mode: str, corners: bool | None, size: int, opset: int, check: Check
) -> None:
    check(
        lambda x: functional.interpolate(x, size=[size] * spatial, mode=mode, align_corners=corners),
        [image(spatial)],
        others=[[image(spatial, 1, 7)]],
        opset=opset,
    )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("spatial", "mode", "corners"), MODES)
def test_interpolate_by_a_factor(
    spatial: int, mode: str, corners: bool | None, factor: float, opset: int, check: Check
) -> None:
    check(
        lambda x: functional.interpolate(x, scale_factor=factor, mode=mode, align_corners=corners),
        [image(spatial)],
        others=[[image(spatial, 1, 10)]],
        opset=opset,
    )


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_a_factor_that_leaves_an_axis_as_long_as_it_is(mode: str, spatial: int, check: Check) -> None:
    """torch has a rule of its own for such axes in some modes, and none in others."""
    mode = {"linear": ["linear", "bilinear", "trilinear"][spatial - 1]}.get(mode, mode)
    sizes = [[size] * (spatial - 1) + [last] for size in (3, 1) for last in (3, 5, 1, 2)]
    for factor in (1.3, 2.1):
        check(
            lambda x, factor=factor: functional.interpolate(x, scale_factor=factor, mode=mode),  # type: ignore[misc]
            [torch.rand(2, 2, *([6] * spatial))],
            others=[[torch.rand(2, 2, *one)] for one in sizes],
        )


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("antialias", [False, True])
def test_a_factor_that_leaves_a_picture_as_large_as_it_is(mode: str, antialias: bool, check: Check) -> None:
    check(
        lambda x: functional.interpolate(x, scale_factor=1.3, mode=mode, antialias=antialias),
        [torch.rand(2, 2, 6, 6)],
        others=[[torch.rand(2, 2, *one)] for one in ((3, 3), (3, 5), (1, 2), (5, 2))],
    )


@pytest.mark.parametrize("target", [49, 98, 31], ids=str)
def test_nearest_picks_the_same_elements_at_every_border(target: int, check: Check) -> None:
    check(lambda x: functional.interpolate(x, size=(target,)), [torch.arange(21.0).reshape(1, 1, 21)])


def test_interpolate_to_the_size_of_another_input(check: Check) -> None:
    check(
        lambda x, y: functional.interpolate(x, size=y.shape[2:], mode="bilinear"),
        [torch.rand(2, 3, 4, 5), torch.rand(2, 1, 7, 3)],
        others=[[torch.rand(2, 3, 5, 6), torch.rand(2, 1, 2, 9)]],
    )


OTHERS: dict[str, dict[str, Any]] = {
    "area": {"size": (5, 7), "mode": "area"},
    "recomputed factor": {"scale_factor": 0.7, "recompute_scale_factor": True, "mode": "bilinear"},
}


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
def test_other_ways_to_interpolate(options: dict[str, Any], check: Check) -> None:
    check(lambda x: functional.interpolate(x, **options), [torch.rand(1, 2, 8, 9)])


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 4), (9, 7), (5, 6)], ids=str)
def test_antialiased(mode: str, size: tuple[int, int], check: Check) -> None:
    check(
        lambda x: functional.interpolate(x, size=size, mode=mode, antialias=True),
        [torch.rand(1, 2, 7, 8)],
        others=[[torch.rand(1, 2, 9, 8)]],
    )


def test_bytes_are_rounded(check: Check) -> None:
    x = torch.arange(0, 256, 16, dtype=torch.uint8).reshape(1, 1, 4, 4)
    check(lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"), [x])


PICTURES = (
    (6, 8),
    (3, 4),
    (12, 7),
    (5, 14),
    (9, 5),
)  # a result that is one wide stops torch, or has its channels mixed
SHARES = [
    *({"size": size} for size in ((3, 4), (9, 7), (13, 2))),
    *({"scale_factor": factors} for factors in (1.3, 0.5, (2.7, 1.0), (0.77, 1.1))),
    {"size": (7, 5), "align_corners": True},
]


@pytest.mark.parametrize("options", SHARES, ids=str)
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_interpolated_in_fixed_point(
    mode: str, antialias: bool, options: dict[str, Any], check: Check
) -> None:
    """Each byte is torch's own."""
    pictures = [torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8) for size in PICTURES]
    check(
        lambda x: functional.interpolate(x, mode=mode, antialias=antialias, **options),
        pictures[:1],
        others=[[one] for one in pictures[1:]],
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_with_aligned_corners(mode: str, check: Check) -> None:
    check(
        lambda x: functional.interpolate(x, size=(9, 4), mode=mode, antialias=True, align_corners=True),
        [torch.rand(1, 2, 7, 8)],
        others=[[torch.rand(1, 2, 9, 8)]],
    )


@pytest.mark.parametrize("name", ["upsample_nearest2d", "upsample_bilinear2d", "_upsample_bilinear2d_aa"])
def test_sizes_that_no_factor_makes_are_kept(name: str, check: Check) -> None:
    """These take both; the factors set the positions alone."""
    operator = getattr(torch.ops.aten, name).default
    corners = () if name == "upsample_nearest2d" else (False,)
    check(lambda x: (operator(x, [3, 4], *corners, 2.0, 0.5), operator(x, [3, 4], *corners, 0.7, None)), [image(2)])
