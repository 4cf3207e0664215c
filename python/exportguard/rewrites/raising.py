"""What eager mode raises where tensor data says so, and no program does: if the model may catch it, the export stops.

A quotient by 0, an index out of bounds, the root of a negative number and a matrix that is not positive definite end a
run in eager mode, or the statement in a `try`. A program goes on with infinity or NaN, or stops, and has no handlers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols, statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.catching import handler_of
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
_OF_SOME = frozenset(("max", "min", "amax", "amin", "argmax", "argmin", "aminmax"))
#: Methods of symbolic numbers that divide, and whether the number is what another one is divided by.
_DIVIDING = {
    **dict.fromkeys(("__truediv__", "__floordiv__", "__mod__"), False),
    **dict.fromkeys(("__rtruediv__", "__rfloordiv__", "__rmod__"), True),
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
    elif name in _OF_SOME and args and has_free_unbacked_symbols(args[0].numel()):
        require_no_handler((RuntimeError, IndexError), f"torch.{name} of nothing")
    elif name in ("__getitem__", "select") and any(map(_is_number_of_data, pytree.tree_leaves(args[1:]))):
        require_no_handler(IndexError, "an index out of bounds")


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
    elif (
        not isinstance(divisor, torch.Tensor)
        and not statically_known_true(divisor != 0)
        and handler_of(ZeroDivisionError) is not None
        and divisor == 0
    ):
        raise ZeroDivisionError("division by zero")


def dividing_methods(stopped: list[Any]) -> Iterable[tuple[type, str, Callable[..., Any]]]:
    """The methods of symbolic numbers that divide, for the time of a trace.

    :param stopped: what a handler of the model may take for its own
    """
    for kind in (torch.SymInt, torch.SymFloat):
        for name, is_divisor in _DIVIDING.items():
            if hasattr(kind, name):
                yield kind, name, _asking(getattr(kind, name), stopped, is_divisor=is_divisor)


def _asking(method: Callable[..., Any], stopped: list[Any], *, is_divisor: bool) -> Callable[..., Any]:
    @functools.wraps(method)
    def divided(number: Any, other: Any) -> Any:
        try:
            require_divisor_uncaught(number if is_divisor else other)
        except RewriteError as error:
            stopped.append(error)
            raise
        return method(number, other)

    return divided
