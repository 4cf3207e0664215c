"""The rules, found rather than listed: every module of this package, and of `answers`, with `apply` and `ORDER`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from exportguard.rewrites.engine import Rule
from exportguard.rewrites.rules import answers


def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are applied.

    Raises:
        RuntimeError: two rules claim the same place in that order.
    """
    return _rules(__name__, answers.__name__)


def answering_rules() -> tuple[Rule, ...]:
    """The rules of what is asked of an object for its type, which make no branches or loops."""
    return _rules(answers.__name__)  # most exports need no others, which take long to import


@functools.cache
def _rules(*packages: str) -> tuple[Rule, ...]:
    found: dict[int, Any] = {}
    for name in packages:
        for module_info in pkgutil.iter_modules(importlib.import_module(name).__path__):
            module = importlib.import_module(f"{name}.{module_info.name}")
            order = getattr(module, "ORDER", None)
            if order is None:
                continue
            if order in found:
                raise RuntimeError(f"rules {module.__name__} and {found[order].__name__} both have ORDER {order}")
            found[order] = module
    return tuple(found[order].apply for order in sorted(found))
