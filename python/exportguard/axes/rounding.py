"""Whether two outputs are the same but for the rounding of sums in the dtypes that they are computed in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from exportguard.joined_parts import note_joined

# What a result may differ by where both sides do the same arithmetic, in parts of the largest value: epsilons of it.
_EPSILONS = 256

# Kernels of halves sum in float32 and round once, so that less is rounding: 256 epsilons of bfloat16 are twice the
# largest value. What is rounded here and there does not move all of a result either, as another factor would.
_EPSILONS_OF_HALVES = 16
_EPSILONS_OF_HALVES_AT_THE_MEAN = 6
_LEAST_EPSILON_OF_HALVES = 1e-4


def coarser(one: torch.dtype | None, other: torch.dtype | None) -> torch.dtype | None:
    """The one with the larger epsilon.

    >>> coarser(torch.float32, torch.bfloat16)
    torch.bfloat16
    """
    return coarsest((one, other))


def coarsest(dtypes: Iterable[torch.dtype | None]) -> torch.dtype | None:
    """The one of floats with the largest epsilon; None if there is none."""
    floats = (dtype for dtype in dtypes if dtype is not None and (dtype.is_floating_point or dtype.is_complex))
    return max(floats, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def rank(value: object) -> int | None:
    """That of a tensor."""
    return value.dim() if isinstance(value, torch.Tensor) else None


_FILLED = 1e3  # times what was computed is a number that stands for none


def agree(expected: Sequence[Any], got: Sequence[Any], computed_in: Sequence[torch.dtype | None] | None = None) -> bool:
    """Whether two lists of outputs are the same but for the rounding of sums in the dtypes they are computed in."""
    counts, expected = _counts_of_parts(expected, got), with_joined_parts(expected, got)
    dtypes = [None] * len(expected) if computed_in is None else computed_in
    if not len(expected) == len(got) == len(dtypes):
        return False
    is_same = all(_same(one, other, dtype) for one, other, dtype in zip(expected, got, dtypes, strict=True))
    _note(counts if is_same else None)
    return is_same


def difference(expected: Sequence[Any], got: Sequence[Any], computed_in: Sequence[torch.dtype | None]) -> str:
    """The first output that is not the same, and by how much; nothing if all are."""
    counts, expected = _counts_of_parts(expected, got), with_joined_parts(expected, got)
    if len(expected) != len(got):
        return f"{len(got)} outputs in the place of {len(expected)}"
    outputs = enumerate(zip(expected, got, computed_in, strict=True))
    told = (f"output {at} {_told(one, other)}" for at, (one, other, dtype) in outputs if not _same(one, other, dtype))
    found = next(told, "")
    _note(counts if not found else None)
    return found


def with_joined_parts(expected: Sequence[Any], got: Sequence[Any]) -> Sequence[Any]:
    """What a model returns in parts, one for each picture of which data says how many, as the program's one tensor.

    >>> [len(one) for one in with_joined_parts([torch.zeros(2, 3), torch.zeros(4, 3)], [torch.zeros(6, 3)])]
    [6]
    """
    counts = _counts_of_parts(expected, got)
    if counts is None:
        return expected
    rest = iter(expected)
    groups = [[*itertools.islice(rest, count)] for count in counts]
    return [torch.cat(group) if len(group) > 1 else group[0] for group in groups]


def _counts_of_parts(expected: Sequence[Any], got: Sequence[Any]) -> list[int] | None:
    """How many values each value of the program stands for; None if they are not more, or cannot be shared out."""
    if len(expected) <= len(got):
        return None
    counts, rest = [], list(expected)
    for whole in got:
        counts.append(_count_of_parts(rest, whole))
        del rest[: counts[-1]]
    return counts if sum(counts) == len(expected) else None


def _note(counts: Sequence[int] | None) -> None:
    """Remembers which values of the program stand for several of the model."""
    note_joined(place for place, count in enumerate(counts or ()) if count > 1)


def _count_of_parts(values: Sequence[Any], whole: object) -> int:
    """How many of the first values have together as many rows as a tensor; 1 if no number of them has."""
    rows = 0
    for count, value in enumerate(values, start=1):
        if not isinstance(value, torch.Tensor) or not isinstance(whole, torch.Tensor) or not value.dim():
            break
        rows += len(value)
        if value.shape[1:] != whole.shape[1:] or value.dtype != whole.dtype or rows > len(whole):
            break
        if rows == len(whole):
            return count
    return 1


def _told(expected: object, got: object) -> str:
    before, after = _described(expected), _described(got)
    if before != after or not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        return f"is {after} in the place of {before}"
    apart = (expected.to(torch.complex128) - got.to(torch.complex128)).abs().nan_to_num(nan=torch.inf)
    return f"is off by up to {float(apart.max()):.3g}"


def _described(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')} of the shape {[*value.shape]}"


def _same(expected: object, got: object, computed_in: torch.dtype | None) -> bool:
    if (rank(expected) or 0) != (rank(got) or 0):  # a number and a tensor of rank 0 may stand for each other
        return False
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        return (
            bool(expected == got) if not isinstance(expected, torch.Tensor | float) else _close_numbers(expected, got)
        )
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return False
    if expected.dtype == torch.complex32:  # which torch compares as pairs alone
        expected, got = torch.view_as_real(expected), torch.view_as_real(got)
    if torch.equal(expected, got):
        return True
    if not expected.is_floating_point() and not expected.is_complex():
        return False
    is_finite = torch.isfinite(expected)
    finite = expected[is_finite]
    largest = _largest(finite, got[is_finite])
    epsilon = torch.finfo(coarser(expected.dtype, computed_in) or expected.dtype).eps
    is_half = epsilon > _LEAST_EPSILON_OF_HALVES
    bound = (_EPSILONS_OF_HALVES if is_half else _EPSILONS) * epsilon * largest
    if not torch.allclose(expected, got, rtol=0.0, atol=bound, equal_nan=True):
        return False
    mean_bound = _EPSILONS_OF_HALVES_AT_THE_MEAN * epsilon * _length(finite)
    return not is_half or _length(got[is_finite].sub(finite)) <= mean_bound


def _largest(finite: torch.Tensor, got: torch.Tensor) -> float:
    """The largest number of an output, but for what is filled in: equal in both, and far beyond all that is not.

    Scores are hidden with -1e9 or the lowest number, whose rounding says nothing about that of the others.
    """
    if not finite.numel():
        return 0.0
    numbers = finite.abs()
    largest = float(numbers.max())
    others = numbers[finite != got]
    computed = float(others.max()) if others.numel() else largest
    is_filled = largest > _FILLED * computed and bool((numbers[numbers > _FILLED * computed] == largest).all())
    return computed if is_filled else largest


def _length(values: torch.Tensor) -> float:
    """The root of the sum of squares."""
    return float(torch.linalg.vector_norm(values, dtype=torch.complex128 if values.is_complex() else torch.float64))


def _close_numbers(expected: Any, got: Any) -> bool:
    if not math.isfinite(expected) or not math.isfinite(got):  # which only the same is close to
        return float(expected) == float(got) or (math.isnan(expected) and math.isnan(got))
    return abs(float(expected) - float(got)) <= 1e-6 * abs(float(expected))
