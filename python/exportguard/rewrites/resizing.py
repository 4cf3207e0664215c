"""Tensors that a loop gives another size in each step: what torch's operators see of them.

`while_loop` of torch (2.11 to 2.13) wants a state to have the sizes behind a step that it has before it, and so does
every pass that traces its body again. So the loop carries such a tensor under sizes that mean nothing: the step, the
test and what follows the loop each ask for its sizes anew, and what the step leaves is handed on under the sizes that
the step was given. No size of the one is ever taken for a size of the other: each has symbols of its own. Run, both
operators are copies; the converter leaves them out (src/lowering/aten/higher_order.cpp).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import (
    TLS,
    ShapeEnv,
    free_unbacked_symbols,
    has_free_unbacked_symbols,
    statically_known_true,
)
from torch.utils._sympy.symbol import symbol_is_type

from exportguard.common_sizes import parts_of
from exportguard.rewrites.numbers import MIXED
from exportguard.size_facts import OF_DATA


@torch.library.custom_op("exportguard::sized_anew", mutates_args=())
def sized_anew(x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """A copy, whose sizes along some axes only a run tells."""
    return x.clone()


@sized_anew.register_fake
def _(x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    fresh = torch.library.get_ctx().new_dynamic_size
    return x.new_empty([fresh() if axis in axes else size for axis, size in enumerate(x.shape)])


@torch.library.custom_op("exportguard::taken_for", mutates_args=())
def taken_for(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A copy, of which a trace takes for granted that it has the sizes of another tensor of its rank and dtype."""
    return x.clone()


@taken_for.register_fake
def _(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return other.new_empty(other.shape)


@torch.library.custom_op("exportguard::broadcast_anew", mutates_args=())
def broadcast_anew(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies in the sizes that all have together, which only a run tells where they are not known to be the same."""
    return [tensor.clone() for tensor in torch.broadcast_tensors(*tensors)]  # type: ignore[no-untyped-call]


@broadcast_anew.register_fake
def _(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    sizes = _sizes_together([tensor.shape for tensor in tensors])
    return [tensor.new_empty(sizes) for tensor in tensors]


def _sizes_together(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    sizes: list[Any] = []
    for behind in range(max(map(len, shapes)), 0, -1):
        found = [shape[-behind] for shape in shapes if len(shape) >= behind]
        wide = [size for size in found if not statically_known_true(size == 1)] or [1]
        is_one = all(statically_known_true(size == wide[0]) for size in wide)
        sizes.append(wide[0] if is_one else torch.library.get_ctx().new_dynamic_size())
    return sizes


@contextmanager
def unbound() -> Iterator[None]:
    """While open, what is asked of the sizes of inputs binds none; what is made sure of sizes of data is known."""
    mode = torch._guards.detect_fake_mode()
    shape_env = mode.shape_env if mode is not None else None
    if shape_env is None:
        yield
        return
    with shape_env.suppress_guards(), in_place_of(shape_env, "guard_or_defer_runtime_assert", _assured):
        yield


def _assured(original: Callable[..., Any], expression: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch._check`, which torch 2.11 to 2.13 leave out with the guards."""
    is_of_data = any(symbol_is_type(symbol, OF_DATA) for symbol in expression.free_symbols)
    before = ShapeEnv._suppress_guards_tls()
    TLS.suppress_guards = before and not is_of_data
    try:
        return original(expression, *args, **kwargs)
    finally:
        TLS.suppress_guards = before


@contextmanager
def in_place_of(shape_env: ShapeEnv, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """While open, a method of one environment is a function, which is given the method first."""
    before = vars(shape_env).get(name)
    vars(shape_env)[name] = functools.partial(function, getattr(shape_env, name))
    try:
        yield
    finally:
        if before is None:
            del vars(shape_env)[name]
        else:
            vars(shape_env)[name] = before


@contextmanager
def asked_of(shape_env: ShapeEnv) -> Iterator[list[Any]]:
    """While open, a list of what is asked of the sizes of inputs (torch 2.11 to 2.13: every question comes there)."""
    asked: list[Any] = []

    def noted(original: Callable[..., Any], question: Any, *args: Any, **kwargs: Any) -> Any:
        if question.free_symbols:
            asked.append(question)
        return original(question, *args, **kwargs)

    with in_place_of(shape_env, "evaluate_expr", noted):
        yield asked


#: Functions that take their tensors element by element.
_ELEMENT_BY_ELEMENT = MIXED | frozenset(
    ("true_divide", "logical_and", "logical_or", "logical_xor", "fmax", "fmin", "hypot", "copysign")
)


def brought_together(func: Callable[..., Any], args: Any) -> Any:
    """The arguments of a function, and of one of elements with its tensors broadcast where only a run tells how.

    torch (2.11 to 2.13) takes sizes of tensor data for the same, and stops where it cannot; in eager mode one of them
    may be 1, as where `x[0::2] + x[1::2]` has three rows. Sizes that are symbols, and what those make together, are
    left to torch, as patches/torch/broadcast_data_sizes.py has it.
    """
    if getattr(func, "__name__", "") not in _ELEMENT_BY_ELEMENT:
        return args
    places = [place for place, item in enumerate(args) if isinstance(item, torch.Tensor) and item.dim()]
    shapes = [args[place].shape for place in places]
    rank = max(map(len, shapes), default=0)
    axes = ([shape[-behind] for shape in shapes if len(shape) >= behind] for behind in range(1, rank + 1))
    if not any(map(_are_open, axes)):
        return args
    made = dict(zip(places, broadcast_anew([args[place] for place in places]), strict=True))
    return tuple(made.get(place, item) for place, item in enumerate(args))


def _is_of_symbols(size: torch.SymInt) -> bool:
    return all(part.is_symbol for part in parts_of(size.node.expr))


def _are_open(sizes: Sequence[Any]) -> bool:
    """Whether a run alone tells what sizes of one axis are together."""
    of_data = [s for s in sizes if isinstance(s, torch.SymInt) and has_free_unbacked_symbols(s)]
    wide = [size for size in sizes if not (isinstance(size, int) and size == 1)]
    if not of_data or len(wide) == 1 or all(map(_is_of_symbols, of_data)):
        return False
    with disable_proxy_modes_tracing():
        return not all(statically_known_true(size == wide[0]) for size in wide)


def symbols_of(sizes: Iterable[Any]) -> set[Any]:
    """The unbacked symbols of which sizes are made."""
    return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in free_unbacked_symbols(size)}
