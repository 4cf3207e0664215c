"""What the comparison on one set of inputs found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .discrepancies import Discrepancy


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
