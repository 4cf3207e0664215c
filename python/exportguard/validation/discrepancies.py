"""How far the outputs of a converted model are from those of the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """A value is right if it is within `absolute + relative * |expected|` of the expected one."""

    absolute: float
    relative: float


# A converted model does the same arithmetic in another order, so a result differs by the rounding of its sums. A sum of
# n terms in random order is off by about sqrt(n) epsilon of its terms' size, and errors of successive layers add up.
# For the few thousand terms and some dozen layers of usual models that is about a hundred to a thousand epsilon where
# rounding is fine (float64, float32). In float16 and bfloat16 both sides accumulate in float32 and round only what they
# store: some ten epsilon. Epsilons are 2.2e-16, 1.2e-7, 9.8e-4 and 7.8e-3. Integers and booleans are exact.
_TOLERANCES: Mapping[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(absolute=1e-10, relative=1e-9),
    torch.complex128: Tolerance(absolute=1e-10, relative=1e-9),
    torch.float32: Tolerance(absolute=5e-5, relative=1e-4),
    torch.complex64: Tolerance(absolute=5e-5, relative=1e-4),
    torch.float16: Tolerance(absolute=1e-2, relative=1e-2),
    torch.bfloat16: Tolerance(absolute=8e-2, relative=8e-2),
}
_EXACT = Tolerance(absolute=0.0, relative=0.0)


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """The comparison of one output. `share_over` is the part of its values beyond the tolerance; `problem` says why the
    two cannot be compared value by value, and is empty otherwise."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    max_absolute: float = 0.0
    max_relative: float = 0.0
    share_over: float = 0.0
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every value is within the tolerance."""
        return not self.problem and self.share_over == 0.0

    def as_dict(self) -> dict[str, Any]:
        """For a JSON report."""
        return {**asdict(self), "shape": list(self.shape), "agrees": self.agrees}


def tolerance_for(dtype: torch.dtype) -> Tolerance:
    """The tolerance of values of that dtype; exact for integers and booleans.

    >>> tolerance_for(torch.int64)
    Tolerance(absolute=0.0, relative=0.0)
    """
    return _TOLERANCES.get(dtype, _EXACT)


def compare_outputs(
    names: Sequence[str],
    expected: Sequence[torch.Tensor],
    got: Sequence[torch.Tensor],
    tolerance: Tolerance | None = None,
) -> list[Discrepancy]:
    """One entry for each expected output; the outputs stand in the same order on both sides."""
    if len(expected) != len(got):
        problem = f"{len(got)} outputs instead of {len(expected)}"
        return [Discrepancy(name="all outputs", dtype="", shape=(), problem=problem)]
    return [
        compare(name, want, have, tolerance or tolerance_for(want.dtype))
        for name, want, have in zip(names, expected, got, strict=True)
    ]


def compare(name: str, expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> Discrepancy:
    """Dtype and shape must be the same, and so must the places of NaN and of each infinity."""
    got = got.to(expected.device)
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    problem = _structural_problem(expected, got)
    measured = (0.0, 0.0, 0.0) if problem else _measured(expected.to(wide), got.to(wide), tolerance)
    return Discrepancy(
        name=name,
        dtype=str(expected.dtype).removeprefix("torch."),
        shape=tuple(expected.shape),
        max_absolute=measured[0],
        max_relative=measured[1],
        share_over=measured[2],
        problem=problem,
    )


def _structural_problem(expected: torch.Tensor, got: torch.Tensor) -> str:
    if expected.dtype != got.dtype:
        return f"dtype {got.dtype} instead of {expected.dtype}"
    if expected.shape != got.shape:
        return f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}"
    moved = int((_kind_of_value(expected) != _kind_of_value(got)).sum())
    return f"NaN or infinity in {moved} other places" if moved else ""


def _kind_of_value(values: torch.Tensor) -> torch.Tensor:
    """0 for a finite value, 1 for NaN, 2 and 3 for the infinities."""
    if not (values.is_floating_point() or values.is_complex()):
        return torch.zeros_like(values, dtype=torch.uint8)
    kinds = torch.isnan(values).to(torch.uint8)
    if values.is_complex():
        return kinds + 2 * torch.isinf(values).to(torch.uint8)
    wide = values.float() if values.dtype.itemsize == 1 else values
    return kinds + 2 * torch.isposinf(wide).to(torch.uint8) + 3 * torch.isneginf(wide).to(torch.uint8)


def _measured(expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> tuple[float, float, float]:
    """The largest absolute and relative difference, and the share of values over the tolerance."""
    finite = torch.isfinite(expected) & torch.isfinite(got)
    want, have = expected[finite], got[finite]
    if not want.numel():
        return 0.0, 0.0, 0.0
    difference, size = (want - have).abs(), want.abs()
    over = difference > tolerance.absolute + tolerance.relative * size
    return float(difference.max()), float((difference / size.clamp_min(1e-12)).max()), float(over.double().mean())
