"""Logits that differ from the model's own by no more than these differ from the exact ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch

from exportguard.errors import REFUSALS
from exportguard.validation.discrepancies import Discrepancy, Tolerance, compare_outputs
from exportguard.validation.exactness import LARGEST_FACTOR, is_as_exact

logger = logging.getLogger(__name__)


def exact_or_as_it_was(
    compared: Sequence[Discrepancy],
    expected: Sequence[torch.Tensor],
    got: Sequence[torch.Tensor],
    exact: Callable[[], Sequence[torch.Tensor]],
) -> list[Discrepancy]:
    """The comparisons, those that are beyond the tolerance with the exact values in place of the model's, if the file
    is as near to these as the model is: rounding adds up from layer to layer, and the tolerance of a dtype does not.

    The tolerance of such a comparison is the one of `is_as_exact`. `exact` computes in float64; it may refuse.
    """
    if all(one.agrees for one in compared) or any(one.problem for one in compared):
        return [*compared]
    try:
        known = exact()
    except REFUSALS as error:
        logger.info("the model does not compute in float64: %s", error)
        return [*compared]
    rows = zip(compared, known, expected, got, strict=True)
    return [one if one.agrees else _against(one, *values) for one, *values in rows]


def _against(one: Discrepancy, exact: torch.Tensor, own: torch.Tensor, converted: torch.Tensor) -> Discrepancy:
    if not is_as_exact(exact, own, converted):
        return one
    largest = float((own.double() - exact.double()).abs().nan_to_num(0.0, 0.0, 0.0).max())
    tolerance = Tolerance(absolute=LARGEST_FACTOR * largest, relative=0.0)
    return compare_outputs([one.name], [exact.double()], [converted.double()], [tolerance])[0]
