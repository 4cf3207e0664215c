"""What the comparison on one set of inputs found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .discrepancies import BLIND, Discrepancy


@dataclass(frozen=True, kw_only=True)
class SetResult:
    """The comparison on one set of inputs; `error` is filled where the converted model does not run on it.

    `ties` says that it is compared with the original as it runs where the lowest of several equal values is taken,
    `as_exact` that what lies beyond the tolerance is as near to the original in float64 as the original itself.
    """

    name: str
    sizes: Mapping[str, int]
    outputs: Sequence[Discrepancy] = ()
    error: str = ""
    ties: bool = False
    as_exact: bool = False

    @property
    def agrees(self) -> bool:
        """Whether it ran and every output is right."""
        return not self.error and (self.as_exact or all(output.agrees for output in self.outputs))


def with_others_telling(sets: Sequence[SetResult]) -> list[SetResult]:
    """Outputs of one value, such as weights of one row that sum to 1, are no error where other sizes tell more.

    That one number is right tells nothing of more of them.
    """
    if not any(one.agrees and any(math.prod(output.shape) > 1 for output in one.outputs) for one in sets):
        return list(sets)
    return [replace(one, error="") if one.error == BLIND else one for one in sets]
