"""How far the outputs of a converted model are from those of the original."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from exportguard import _core

#: Why a comparison says nothing of a file.
BLIND = (
    "every output of the original is NaN, infinite, or one value throughout on these inputs: no comparison could tell "
    "right from wrong"
)
DRAWN = (
    "the original draws random numbers, and returns others each time it is called on these inputs: no comparison could "
    "tell right from wrong; give it what it draws as an input"
)


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """A value is right if it is within `absolute + relative * |expected|` of the expected one."""

    absolute: float
    relative: float


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """The comparison of one output.

    `share_over` is the part of its finite values beyond the tolerance, `max_absolute_at` the index of the largest
    difference, `ulps_at_most` that difference's bound in units in the last place, `signal_to_noise` in decibels.
    `problem` says why the two cannot be compared value by value, and is empty otherwise. `tolerance` is the one that
    was asked of it, None where nothing was compared.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    max_absolute: float = 0.0
    mean_absolute: float = 0.0
    max_relative: float = 0.0
    share_over: float = 0.0
    max_absolute_at: tuple[int, ...] | None = None
    ulps_at_most: int = 0
    cosine: float = 1.0
    signal_to_noise: float = math.inf
    problem: str = ""
    tolerance: Tolerance | None = None

    @property
    def agrees(self) -> bool:
        """Whether every value is within the tolerance."""
        return not self.problem and self.share_over == 0.0

    def as_dict(self) -> dict[str, Any]:
        """For a JSON report."""
        noise = self.signal_to_noise if math.isfinite(self.signal_to_noise) else None  # JSON has no infinity
        return {**asdict(self), "shape": list(self.shape), "signal_to_noise": noise, "agrees": self.agrees}


def tolerance_for(dtype: torch.dtype) -> Tolerance:
    """The tolerance of values of that dtype; exact for integers and booleans.

    >>> tolerance_for(torch.int64)
    Tolerance(absolute=0.0, relative=0.0)
    """
    absolute, relative = _core.tolerance_for(dtype)
    return Tolerance(absolute=absolute, relative=relative)


def compare_outputs(
    names: Sequence[str],
    expected: Sequence[torch.Tensor],
    got: Sequence[torch.Tensor],
    tolerance: Tolerance | Sequence[Tolerance] | None = None,
) -> list[Discrepancy]:
    """One entry for each expected output; the outputs stand in the same order on both sides.

    `tolerance` is that of all, or one for each; without it each has that of its dtype.

    Dtype and shape must be the same, and so must the places of NaN and of each infinity. All outputs are compared in
    one call, in one pass over the data; on the device, where both sides lie on one.
    """
    if len(expected) != len(got):
        problem = f"{len(got)} outputs instead of {len(expected)}"
        return [Discrepancy(name="all outputs", dtype="", shape=(), problem=problem)]

    problems = [_structural_problem(want, have) for want, have in zip(expected, got, strict=True)]
    if tolerance is None:
        tolerance = [tolerance_for(want.dtype) for want in expected]
    bounds = [tolerance] * len(expected) if isinstance(tolerance, Tolerance) else tolerance
    found = iter(
        _core.compare(
            [
                (want, have, bound.absolute, bound.relative)
                for want, have, bound, problem in zip(expected, got, bounds, problems, strict=True)
                if not problem
            ]
        )
    )
    return [
        _without_values(name, want, problem) if problem else _measured(name, want, next(found), bound)
        for name, want, bound, problem in zip(names, expected, bounds, problems, strict=True)
    ]


def can_tell(expected: Sequence[torch.Tensor]) -> bool:
    """Whether a comparison with these outputs could fail: a finite single value, or two values of one that differ.

    >>> can_tell([torch.zeros(3)]), can_tell([torch.full((3,), torch.nan)]), can_tell([torch.arange(3)])
    (False, False, True)
    """
    return any(_tells(values) for values in expected)


def _tells(values: torch.Tensor) -> bool:
    if values.is_floating_point() and values.itemsize == 1:  # torch asks none of 8 bits whether they are finite
        values = values.float()
    finite = values[torch.isfinite(values)] if values.is_floating_point() or values.is_complex() else values.flatten()
    if values.numel() == 1 or not finite.numel():
        return bool(finite.numel())
    return bool((finite != finite[0]).any())


def discrepancy_of(found: _core.Finding, expected: object = None) -> Discrepancy:
    """What C++ found out of one value; `expected` gives its dtype and sizes, where they are known."""
    absolute, relative = found.tolerance
    bound = Tolerance(absolute=absolute, relative=relative)
    if isinstance(expected, torch.Tensor):
        described = _measured(found.name, expected, found.figures, bound)
    else:
        described = _figures_of(found.name, found.figures, bound)
    return replace(described, problem=found.structural) if found.structural else described


def compare(name: str, expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> Discrepancy:
    """`compare_outputs` of one output."""
    return compare_outputs([name], [expected], [got], tolerance)[0]


def _structural_problem(expected: torch.Tensor, got: torch.Tensor) -> str:
    if expected.dtype != got.dtype:
        return f"dtype {got.dtype} instead of {expected.dtype}"
    if expected.shape != got.shape:
        return f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
    return ""


def _without_values(name: str, expected: torch.Tensor, problem: str) -> Discrepancy:
    return Discrepancy(name=name, dtype=_dtype_name(expected), shape=tuple(expected.shape), problem=problem)


def _measured(name: str, expected: torch.Tensor, found: _core.Comparison, tolerance: Tolerance) -> Discrepancy:
    return replace(
        _figures_of(name, found, tolerance),
        dtype=_dtype_name(expected),
        shape=tuple(expected.shape),
        max_absolute_at=_index(found.max_absolute_at, expected.shape),
    )


def _figures_of(name: str, found: _core.Comparison, tolerance: Tolerance) -> Discrepancy:
    moved = found.nan_mismatches + found.infinity_mismatches
    return Discrepancy(
        name=name,
        dtype="",
        shape=(),
        max_absolute=found.max_absolute,
        mean_absolute=found.mean_absolute,
        max_relative=found.max_relative,
        share_over=found.over / max(found.finite, 1),
        ulps_at_most=found.ulps_at_most,
        cosine=found.cosine,
        signal_to_noise=found.signal_to_noise,
        problem=f"NaN or infinity in {moved} other places" if moved else "",
        tolerance=tolerance,
    )


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _index(position: int | None, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The index of a row-major position."""
    if position is None:
        return None
    index: list[int] = []
    for size in reversed(shape):
        position, place = divmod(position, size)
        index.append(place)
    return tuple(reversed(index))
