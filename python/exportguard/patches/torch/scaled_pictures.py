"""`interpolate` and adaptive pools to sizes that data give: torch asks whether there is one row, and any at all."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, not_needed

_Function = Callable[..., Any]

# How far the rows that are read lie apart, in torch 2.11 to 2.13.
_SCALE = "torch._decomp.decompositions._compute_scale"
_INTERPOLATES = "torch.nn.functional.interpolate"
_POOLS = tuple(f"torch.nn.functional.adaptive_avg_pool{rank}d" for rank in (2, 3))

_AVERAGES = {2: torch.ops.aten._adaptive_avg_pool2d.default, 3: torch.ops.aten._adaptive_avg_pool3d.default}

# Without annotations in torch 2.11 to 2.13.
_check: _Function = torch._check
_sym_max: _Function = torch.sym_max


def _without_question(original: _Function) -> _Function:
    """Of a single row the first one is read, however far apart they lie."""

    @functools.wraps(original)
    def scale(in_size: Any, out_size: Any, align_corners: bool, scale: Any = None) -> Any:
        if not align_corners or not isinstance(out_size, torch.SymInt):
            return original(in_size, out_size, align_corners, scale)
        return (in_size - 1.0) / _sym_max(out_size - 1, 1)

    return scale


def _told(original: _Function) -> _Function:
    """Tells torch what eager takes: sizes from 1 on."""

    @functools.wraps(original)
    def interpolate(input: torch.Tensor, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        for one in _sizes_of_data([size]):
            _check(one >= 1)
        return original(input, size, *args, **kwargs)

    return interpolate


def _by_factors_of_sizes(original: _Function) -> _Function:
    """`scale_factor=n / 14`: C++ asks for its float, and the operators that the call is written in here do not."""

    @functools.wraps(original)
    def interpolate(
        input: torch.Tensor,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Any:
        given = scale_factor if isinstance(scale_factor, list | tuple) else [scale_factor] * (input.dim() - 2)
        is_of_sizes = any(isinstance(factor, torch.SymFloat) for factor in given) and len(given) == input.dim() - 2
        is_known = input.is_floating_point() and mode in (*_LINEAR, "bicubic", "nearest") and not antialias
        if not is_of_sizes or not is_known or recompute_scale_factor:
            return original(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        # As torch does before it asks the kernel (`compute_output_size` in ATen/native/UpSample.h).
        sizes = [math.floor(known * factor) for known, factor in zip(input.shape[2:], given, strict=True)]
        if align_corners:
            return original(input, sizes, None, mode, align_corners)
        if mode == "bicubic":
            return _bicubic(input, sizes, given)
        along = _nearest_along if mode == "nearest" else _linear_along
        for axis, (length, factor) in enumerate(zip(sizes, given, strict=True), start=2):
            input = along(input, axis, length, factor)
        return input

    return interpolate


_LINEAR = ("linear", "bilinear", "trilinear")


def _bicubic(input: torch.Tensor, sizes: Sequence[Any], factors: Sequence[Any]) -> torch.Tensor:
    # Not at the top: whoever traces has it by now.
    from torch._decomp.decompositions import upsample_bicubic2d_default

    result: torch.Tensor = upsample_bicubic2d_default(input, sizes, False, *factors)
    return result


def _linear_along(input: torch.Tensor, axis: int, length: Any, factor: Any) -> torch.Tensor:
    """As `compute_source_index_and_lambda` in ATen/native/UpSample.h: an axis that keeps its length is copied."""
    known, dtype = input.shape[axis], _computed_in(input)
    step = torch.where(_is(length, known), 1.0, torch.scalar_tensor(1.0 / factor, dtype=dtype))
    at = (step * (torch.arange(length, dtype=dtype) + 0.5) - 0.5).clamp(min=0)
    first = at.to(torch.int64).clamp(max=known - 1)
    second = (first + 1).clamp(max=known - 1)
    part = (at - first).clamp(0, 1).reshape(-1, *[1] * (input.dim() - 1 - axis))
    one, other = (input.index_select(axis, rows.to(input.device)).to(dtype) for rows in (first, second))
    return (one * (1 - part).to(input.device) + other * part.to(input.device)).to(input.dtype)


def _nearest_along(input: torch.Tensor, axis: int, length: Any, factor: Any) -> torch.Tensor:
    """As `nearest_idx` in ATen/native/UpSample.h reads it: also one of twice the length without rounding."""
    known = input.shape[axis]
    step = torch.where(_is(length, 2 * known), 0.5, torch.scalar_tensor(1.0 / factor))
    step = torch.where(_is(length, known), 1.0, step)
    at = (torch.arange(length, dtype=step.dtype) * step).to(torch.int64).clamp(max=known - 1)
    return input.index_select(axis, at.to(input.device))


def _computed_in(input: torch.Tensor) -> torch.dtype:
    return torch.float64 if input.dtype == torch.float64 else torch.float32


def _is(length: Any, wanted: Any) -> torch.Tensor:
    return torch.scalar_tensor(length, dtype=torch.int64).eq(wanted)


def _averaged(original: _Function) -> _Function:
    """Averages of parts, by the operator that does not ask whether there is one part alone."""

    @functools.wraps(original)
    def pool(input: torch.Tensor, output_size: Any) -> Any:
        of_data = [*_sizes_of_data([output_size])]
        if not of_data:
            return original(input, output_size)
        for one in of_data:
            _check(one >= 0)
        rank = 3 if original.__name__.endswith("3d") else 2
        sizes = output_size if isinstance(output_size, list | tuple) else [output_size] * rank
        kept = input.shape[-rank:]
        return _AVERAGES[rank](input, [old if new is None else new for new, old in zip(sizes, kept, strict=True)])

    return pool


def _sizes_of_data(values: Iterable[object]) -> Iterator[torch.SymInt]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _sizes_of_data(value)
        elif isinstance(value, torch.SymInt) and not value.node.has_hint():
            yield value


PATCHES = (
    Patch(
        name="scales of pictures",
        kind="torch",
        target=_SCALE,
        reason="whether a picture is scaled to one row is asked of its size, and data that give it stop the export",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_decomp/decompositions.py",
        probe=expecting(
            Expected(path=_SCALE, has=("$scale if out_size > 1 else 0",)),
            otherwise=not_needed("torch asks the sizes of pictures nothing"),
        ),
        replace=_without_question,
    ),
    Patch(
        name="sizes and factors of pictures",
        kind="torch",
        target=_INTERPOLATES,
        reason="whether a picture has a row is asked of its size, and data that give it stop the export; a factor that "
        "is made of sizes is read as a number, and their axes become constants",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_meta_registrations.py",
        probe=expecting(
            Expected(
                path=_INTERPOLATES,
                parameters="input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias",
            ),
            Expected(
                path="torch._decomp.decompositions.upsample_bicubic2d_default", parameters="input, output_size, ..."
            ),
        ),
        replace=lambda original: _told(_by_factors_of_sizes(original)),
    ),
    Patch(
        name="parts that data count",
        kind="torch",
        target=_POOLS,
        reason="whether a picture is averaged as one part is asked of a size, and data that give it stop the export",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/AdaptiveAveragePooling.cpp",
        probe=expecting(*(Expected(path=path, parameters="input, output_size") for path in _POOLS)),
        replace=_averaged,
    ),
)
