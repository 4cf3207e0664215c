"""Checks of a program: what has to be so where eager mode would raise an error that nothing catches."""

from __future__ import annotations

import torch

from exportguard.rewrites.data import as_predicate

_MADE = [0]


def check_data(test: object) -> None:
    """A check of the program."""
    _MADE[0] += 1
    if isinstance(test, torch.Tensor):
        torch._assert_async(as_predicate(test), "an assertion of the model failed")
    else:
        torch._check(test)  # type: ignore[no-untyped-call]


def count_of_checks() -> int:
    """How many were made so far."""
    return _MADE[0]
