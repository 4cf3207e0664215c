"""Masks of torch.nn's transformer layers: torch looks at their data to tell whether they are causal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed
from exportguard.declaration.targets import resolve_object

_TARGET = "torch.nn.modules.transformer._detect_is_causal_mask"


def without_a_look(original: Callable[..., bool]) -> Callable[..., bool]:
    """What the caller says of a mask in a trace, and else that it is not known to be causal.

    To be causal is a hint for a faster kernel; a mask without it is applied as it is (torch 2.11 to 2.13).
    """

    @functools.wraps(original)
    def detect(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
        if mask is None or is_causal is not None or not torch.compiler.is_exporting():
            return original(mask, is_causal, size)
        return False

    return detect


def _probe() -> Verdict:
    detect: Any = resolve_object(_TARGET)
    names = detect.__code__.co_names
    return NEEDED if "all" in names or "equal" in names else not_needed("torch does not look at the data of a mask")


PATCHES = (
    Patch(
        name="hints of causal masks",
        kind="torch",
        target=_TARGET,
        reason="whether a mask is causal is found out from its data, which a trace does not have",
        upstream="https://github.com/pytorch/pytorch/pull/101487",
        probe=_probe,
        replace=without_a_look,
    ),
)
