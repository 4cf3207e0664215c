"""The rules, found rather than listed: every module of this package with `apply` and `ORDER`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from exportguard.rewrites.engine import Rule


def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are applied.

    Raises:
        RuntimeError: two rules claim the same place in that order.
    """
    return tuple(module.apply for module in _in_order())


def answering_rules() -> tuple[Rule, ...]:
    """The rules of what is asked of an object for its type, which make no branches or loops."""
    return tuple(module.apply for module in _in_order() if getattr(module, "ANSWERS", False))


@functools.cache
def _in_order() -> tuple[Any, ...]:
    found: dict[int, Any] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        order = getattr(module, "ORDER", None)
        if order is None:
            continue
        if order in found:
            raise RuntimeError(f"rules {module.__name__} and {found[order].__name__} both have ORDER {order}")
        found[order] = module
    return tuple(found[order] for order in sorted(found))
