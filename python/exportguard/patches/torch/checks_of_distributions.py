"""Distributions that look at their data before they compute: `Normal(mean, deviation)` refuses a negative deviation.

No graph refuses data. While a program is traced the parameters and the values of distributions are not looked at, as
if `Distribution.set_default_validate_args(False)` had been called; eager looks, and so does whoever asks for it with
`validate_args=True`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exportguard.declaration import NEEDED, Patch, Verdict, not_needed, resolve

if TYPE_CHECKING:
    from exportguard._core import Changes

# The default of the class in torch 2.11 to 2.13, which each distribution has that is not told otherwise.
_TARGET = "torch.distributions.distribution.Distribution._validate_args"


def _probe() -> Verdict:
    target = resolve(_TARGET)
    return NEEDED if getattr(target.owner, target.name) else not_needed("distributions do not look at their data")


def _unchecked(changes: Changes) -> None:
    target = resolve(_TARGET)
    changes.set_attribute(target.owner, target.name, False)


PATCHES = (
    Patch(
        name="checks of distributions",
        kind="torch",
        target=_TARGET,
        reason="whether parameters are within their bounds is asked of their data, and the export stops there",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributions/distribution.py",
        probe=_probe,
        apply=_unchecked,
    ),
)
