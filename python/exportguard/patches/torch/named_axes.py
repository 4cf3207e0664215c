"""Axes of one name have one symbol from the start, where torch gives each its own and finds them equal later."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from exportguard.declaration import Patch
from exportguard.declaration.expected import Expected, expecting
from exportguard.repeats.plan import current_plan

_TARGET = "torch.fx.experimental.symbolic_shapes.ShapeEnv.create_symbol"

#: How torch keeps the symbols of axes in 2.11 to 2.13.
SYMBOLS = Expected(
    path=_TARGET,
    parameters="self, val, source, dynamic_dim, constraint_dim, ...",
    has=(
        "self.source_to_var[source_name] = $symbol",
        "self.var_to_sources[$symbol]",
        "self.backed_var_to_val[$symbol]",
    ),
)


def one_symbol(original: Callable[..., Any]) -> Callable[..., Any]:
    """`ShapeEnv.create_symbol`, asked once for each name of a `Dim`.

    What torch checks at the end stays: the symbol has all axes as its sources, and a guard says that they are equal.
    Without it, a cache has symbols of its own for every layer, so no layer makes the calls of an earlier one.
    """
    known: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def create_symbol(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = parameters.bind(self, *args, **kwargs)
        source, value = call.arguments["source"], call.arguments["val"]
        name = _name_of_axis(self, source, call.arguments.get("constraint_dim"))
        if name is None or not current_plan().traces_once:
            return original(self, *args, **kwargs)
        symbols = known.setdefault(self, {})
        symbol = symbols.get(name)
        if symbol is None or self.backed_var_to_val[symbol] != value:
            made = original(self, *args, **kwargs)
            if made.is_Symbol:
                symbols.setdefault(name, made)
            return made
        add_source(self, symbol, source)
        return symbol

    return create_symbol


def add_source(shape_env: Any, symbol: Any, source: Any) -> None:
    """A known symbol is the size of another axis too, as torch has it for sizes that its duck shaping takes for one."""
    name = _text(source.name)
    if shape_env.source_to_var.get(name) != symbol:  # the list of all sources grows with each layer
        shape_env.source_to_var[name] = symbol
        shape_env.var_to_sources[symbol].append(source)


def _text(name: Any) -> str:
    """The name of a source, which is a method in older versions."""
    return name if isinstance(name, str) else str(name())


def _name_of_axis(shape_env: Any, source: Any, constraint: Any) -> str | None:
    """The name of the `Dim` that was given for an axis; None for one that has a hint, or none."""
    from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint

    if not isinstance(constraint, StrictMinMaxConstraint):
        return None
    name = shape_env.source_name_to_debug_name.get(_text(source.name))
    return name if isinstance(name, str) else None


PATCHES = (
    Patch(
        name="one symbol for axes of one name",
        kind="sympy",
        target=_TARGET,
        reason="each layer's cache has symbols of its own until guards equate them, so every layer is another",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/experimental/symbolic_shapes.py",
        versions="torch 2.11 to 2.13",
        probe=expecting(SYMBOLS),
        is_in_traces=False,
        replace=one_symbol,
    ),
)
