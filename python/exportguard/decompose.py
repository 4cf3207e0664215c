"""Takes operators apart that the converter does not know, one at a time, with torch's own decompositions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _core
from .dispatcher import Operator, operator_targets
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from .operator_trace import Trace


#: Operators that are taken apart although they have a lowering: by torch, or by a function of torch operators each.
Decompositions: TypeAlias = Iterable[Operator] | Mapping[Operator, Callable[..., Any]]

_Function: TypeAlias = Callable[..., Any]


def chosen_decompositions(decompositions: Decompositions) -> dict[str, _Function | None]:
    """By the operator's name what takes it apart; None for torch's own.

    Raises:
        InvalidArgumentError: an operator is unknown or returns nothing, or torch cannot take it apart and there is no
            function.
    """
    if not isinstance(decompositions, Iterable) or isinstance(decompositions, str):
        raise InvalidArgumentError(
            f"decompositions must be operators, or a function for each, got {decompositions!r}; pass a list"
        )
    functions = decompositions if isinstance(decompositions, Mapping) else dict.fromkeys(decompositions)
    chosen = {target: function for operator, function in functions.items() for target in operator_targets(operator)}
    for target, function in chosen.items():
        if function is not None and not callable(function):
            raise InvalidArgumentError(f"the decomposition of {target} must be a function, got {function!r}")
        if function is not None and not _has_results(target):
            raise InvalidArgumentError(
                f"{target} returns nothing, and a decomposition gives what an operator returns; pass a converter: "
                f'dispatcher=exportguard.Dispatcher({{"{target}": …}})'
            )
        if function is None and not _can_decompose(target):
            raise InvalidArgumentError(
                f"torch has no decomposition of {target}; pass {{operator: function}}, a function of torch operators"
            )
    return chosen


def _can_decompose(target: str) -> bool:
    from .operator_trace import has_decomposition

    return has_decomposition(target)


def _has_results(target: str) -> bool:
    from .operator_trace import has_results

    return has_results(target)


def tracer(chosen: Mapping[str, _Function | None]) -> Callable[[str, Sequence[Any]], Trace | None]:
    """`trace`, with the functions that were chosen."""
    return functools.partial(_trace, {target: function for target, function in chosen.items() if function is not None})


def expand(model: _core.Model) -> int:
    """Replaces operators without a lowering by torch's decomposition of each; returns how many nodes were replaced.

    The program that the model was imported from is not touched: each operator is traced by itself, with symbolic sizes
    of its own. What torch cannot take apart stays, and the lowering reports it.
    """
    return _core.expand(model, trace)


def trace(target: str, arguments: Sequence[Any]) -> Trace | None:
    """What torch makes of one operator; see `trace_operator`."""
    return _trace({}, target, arguments)


def _trace(own: Mapping[str, _Function], target: str, arguments: Sequence[Any]) -> Trace | None:
    # Few models need it, and torch's tracer takes long to import.
    from .operator_trace import trace_operator

    return trace_operator(target, arguments, own.get(target))
