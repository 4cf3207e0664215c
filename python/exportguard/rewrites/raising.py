"""What eager mode raises where tensor data says so, and no program does: if the model may catch it, the export stops.

A quotient by 0, an index out of bounds, the root of a negative number and a matrix that is not positive definite end a
run in eager mode, or the statement in a `try`. A program goes on with infinity or NaN, or stops, and has no handlers.
Where sizes say so they are asked, as by an `if` of the model, and it is raised.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols
from torch.utils import _pytree as pytree

from exportguard.rewrites.argument_leaves import leaves_of, tensors_of
from exportguard.rewrites.catching import handler_of, is_caught
from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.places import line_now
from exportguard.source.errors import RewriteError

_SINGULAR: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # torch 2.11 to 2.13 say not that it is one

#: Functions of torch that raise because of what their tensors hold.
_BY_CONTENT: dict[str, type[Exception]] = {
    **dict.fromkeys(
        ("cholesky", "linalg_cholesky", "inverse", "linalg_inv", "linalg_solve", "linalg_tensorsolve"), _SINGULAR
    ),
    **dict.fromkeys(
        ("svd", "linalg_svd", "linalg_svdvals", "linalg_eigh", "linalg_eigvalsh", "linalg_lstsq"), _SINGULAR
    ),
    **dict.fromkeys(("linalg_eig", "linalg_eigvals", "linalg_ldl_factor", "linalg_lu_factor"), _SINGULAR),
    **dict.fromkeys(("embedding", "index_select", "take", "index_add", "index_copy"), IndexError),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "bincount", "one_hot", "multinomial"), RuntimeError),
}
#: Functions that take no tensor without elements.
_OF_SOME = frozenset(
    ("max", "min", "amax", "amin", "argmax", "argmin", "aminmax", "median", "nanmedian", "mode", "kthvalue", "quantile")
)
_Number = int | float | torch.SymInt | torch.SymFloat


@dataclass(frozen=True)
class _Refusal:
    """What Python raises of a number, the text of it, and which numbers it does not take."""

    kind: type[Exception]
    text: str
    refuses: Callable[[Any], Any]


_OF_ZERO = _Refusal(ZeroDivisionError, "division by zero", lambda number: number == 0)
_OF_SHIFTS = _Refusal(ValueError, "negative shift count", lambda number: number < 0)

#: Methods of symbolic numbers that do not take every number beside them, or every one that they are called on.
_ASKED = {
    **dict.fromkeys(("__truediv__", "__floordiv__", "__mod__"), (_OF_ZERO, False)),
    **dict.fromkeys(("__rtruediv__", "__rfloordiv__", "__rmod__"), (_OF_ZERO, True)),
    **dict.fromkeys(("__lshift__", "__rshift__"), (_OF_SHIFTS, False)),
    **dict.fromkeys(("__rlshift__", "__rrshift__"), (_OF_SHIFTS, True)),
}
_LARGEST_EXPONENT = math.log(sys.float_info.max)


def _outside(refuses: Callable[[Any], Any]) -> _Refusal:
    return _Refusal(ValueError, "math domain error", refuses)


_TOO_LARGE = _Refusal(OverflowError, "math range error", lambda number: number > _LARGEST_EXPONENT)

#: What `math` does not take, of finite numbers.
_DOMAINS: dict[str, _Refusal] = {
    **dict.fromkeys(("log", "log2", "log10"), _outside(lambda number: number <= 0)),
    **dict.fromkeys(("exp", "expm1"), _TOO_LARGE),
    **dict.fromkeys(("sinh", "cosh"), replace(_TOO_LARGE, refuses=lambda n: abs(n) > _LARGEST_EXPONENT + math.log(2))),
    **dict.fromkeys(("asin", "acos"), _outside(lambda number: abs(number) > 1)),
    "fmod": _outside(lambda divisor: divisor == 0),
    "sqrt": _outside(lambda number: number < 0),
    "log1p": _outside(lambda number: number <= -1),
    "acosh": _outside(lambda number: number < 1),
    "atanh": _outside(lambda number: abs(number) >= 1),
}


def require_no_handler(kinds: type[Exception] | Iterable[type[Exception]], what: str) -> None:
    """Refuses what raises where tensor data says so, if the model may catch it.

    :param kinds: what may be raised
    :param what: what raises it: "a division by 0"
    :raises RewriteError: with the line and the handler
    """
    for kind in (kinds,) if isinstance(kinds, type) else kinds:
        handler = handler_of(kind)
        if handler is not None:
            name = kind.__name__.lstrip("_")
            raise RewriteError(
                f"{line_now()}: {what} raises {name} in eager mode, and tensor data decides whether it comes to that; "
                f"{handler} may catch it, and no graph can: test for it with an `if` before"
            )


def require_content_uncaught(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
    """Refuses a function of torch that raises because of what its tensors hold, if the model may catch that."""
    name = getattr(func, "__name__", "")
    kind = _BY_CONTENT.get(name.rstrip("_"))
    if kind is not None:
        require_no_handler(kind, f"what torch.{name} does not take")
    elif name in _OF_SOME and args and isinstance(args[0], torch.Tensor):
        _require_some_uncaught(name, args[0].numel())
        _raise_as_of_nothing(func, args, kwargs)
    elif name in ("__getitem__", "select") and any(map(_is_number_of_data, leaves_of(args[1:]))):
        require_no_handler(IndexError, "an index out of bounds")


def _require_some_uncaught(name: str, count: Any) -> None:
    """Refuses that there may be no element where the model may catch what is raised then; of sizes it is asked."""
    if has_free_unbacked_symbols(count):
        require_no_handler((RuntimeError, IndexError), f"torch.{name} of nothing")
    elif isinstance(count, torch.SymInt) and is_caught():
        bool(count == 0)  # torch takes for granted that there are some


def _raise_as_of_nothing(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
    """Raises what a function does of tensors without elements, for which what stands for them (torch 2.11 to 2.13)
    gives a result, if the model may catch it."""
    leaves = tensors_of((args, kwargs))
    are_known = all(type(size) is int for leaf in leaves for size in leaf.shape)
    if are_known and any(leaf.numel() == 0 for leaf in leaves) and is_caught():
        from torch.utils._python_dispatch import _disable_current_modes

        with torch._C.DisableTorchFunction(), _disable_current_modes():
            like = functools.partial(pytree.tree_map_only, torch.Tensor, lambda t: torch.zeros(t.shape, dtype=t.dtype))
            func(*like(args), **like(kwargs))


def _is_number_of_data(index: object) -> bool:
    is_integer = isinstance(index, torch.Tensor) and not index.is_floating_point() and index.dtype != torch.bool
    return depends_on_data(index) and (is_integer or isinstance(index, torch.SymInt))


def require_divisor_uncaught(divisor: Any) -> None:
    """Refuses a division by a number that tensor data may make 0, if the model may catch that; what sizes decide is
    asked.

    :raises ZeroDivisionError: a size is 0
    """
    if isinstance(divisor, int | float) or not isinstance(divisor, torch.Tensor | torch.SymInt | torch.SymFloat):
        return
    if depends_on_data(divisor):
        require_no_handler(ZeroDivisionError, "a division by 0")
    elif not isinstance(divisor, torch.Tensor):
        _ask(_OF_ZERO, divisor)


def require_domain_uncaught(name: str, number: Any) -> None:
    """Asks whether a number of sizes is one that `math.name` takes, if the model may catch what it raises otherwise.

    :raises ValueError, OverflowError: as `math.name` does
    """
    refusal = _DOMAINS.get(name)
    if refusal is not None and not depends_on_data(number):
        _ask(refusal, number)


def _ask(refusal: _Refusal, number: Any) -> None:
    if handler_of(refusal.kind) is not None and refusal.refuses(number):
        raise refusal.kind(refusal.text)


def asking_methods(stopped: list[Any]) -> Iterable[tuple[type, str, Callable[..., Any]]]:
    """The methods of symbolic numbers that raise of some numbers, for the time of a trace.

    :param stopped: what a handler of the model may take for its own
    """
    for kind in (torch.SymInt, torch.SymFloat):
        for name, (refusal, is_own) in _ASKED.items():
            if hasattr(kind, name):
                yield kind, name, _asking(getattr(kind, name), stopped, refusal, is_own=is_own)
        for name in ("__pow__", "__rpow__"):
            yield kind, name, _asking_powers(getattr(kind, name), is_exponent=name == "__rpow__")


def _asking(method: Callable[..., Any], stopped: list[Any], refusal: _Refusal, *, is_own: bool) -> Callable[..., Any]:
    @functools.wraps(method)
    def asked(number: Any, other: Any) -> Any:
        try:
            _require_number_uncaught(refusal, number if is_own else other)
        except RewriteError as error:
            stopped.append(error)
            raise
        return method(number, other)

    return asked


def _require_number_uncaught(refusal: _Refusal, number: Any) -> None:
    if refusal is _OF_ZERO:
        require_divisor_uncaught(number)
    elif isinstance(number, torch.SymInt) and not depends_on_data(number):
        _ask(refusal, number)
    elif depends_on_data(number):
        require_no_handler(refusal.kind, "a shift by a negative number")


def _asking_powers(method: Callable[..., Any], *, is_exponent: bool) -> Callable[..., Any]:
    """0 to the power of a negative number is a quotient by 0; of sizes, as a negative number is one of data."""

    @functools.wraps(method)
    def power(number: Any, other: Any) -> Any:
        base, exponent = (other, number) if is_exponent else (number, other)
        is_known = isinstance(other, _Number) and not any(map(depends_on_data, (base, exponent)))
        if is_known and handler_of(ZeroDivisionError) is not None and base == 0 and exponent < 0:
            raise ZeroDivisionError("0 cannot be raised to a negative power")
        return method(number, other)

    return power
