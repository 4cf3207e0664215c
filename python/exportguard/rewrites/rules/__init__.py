"""The rules, found rather than listed: every module of this package with `apply` and `ORDER`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from exportguard.rewrites.engine import Rule


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are applied.

    Raises:
        RuntimeError: two rules claim the same place in that order.
    """
    found: dict[int, Rule] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        order = getattr(module, "ORDER", None)
        if order is None:
            continue
        if order in found:
            raise RuntimeError(f"rules {module.__name__} and {found[order].__module__} both have ORDER {order}")
        found[order] = module.apply
    return tuple(found[order] for order in sorted(found))
