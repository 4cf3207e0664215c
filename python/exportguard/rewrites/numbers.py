"""Python numbers that a graph holds as tensors: they compute as Python's numbers do.

A number of a loop or of a branch becomes a tensor of rank 0, int64 or float64 (bool for truth values), and is marked.
Arithmetic of numbers alone gives a number again, with Python's rules: `/` gives a float, truth values count as 0 and 1.
With a tensor it decides the dtype of the result no more than a Python number would: it is cast to the tensor's dtype,
or to the default one if its kind is higher. Integers beyond 64 bits do not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

_MARK = "exportguard_number"
_DIVISIONS = frozenset(("div", "true_divide", "__rdiv__", "__rtruediv__", "__truediv__"))
_ARITHMETIC = _DIVISIONS | frozenset(
    (
        *("add", "sub", "mul", "floor_divide", "remainder", "pow", "neg", "abs", "rsub", "fmod", "positive"),
        *("__add__", "__sub__", "__mul__", "__floordiv__", "__mod__", "__pow__", "__neg__", "__abs__", "__pos__"),
        *("__radd__", "__rsub__", "__rmul__", "__rfloordiv__", "__rmod__", "__rpow__", "maximum", "minimum"),
    )
)
_COMPARISONS = frozenset(
    ("eq", "ne", "lt", "le", "gt", "ge", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
)
_WITH_TENSORS = ("where", "clamp", "clamp_min", "clamp_max", "lerp", "addcmul", "xlogy", "atan2")
_MIXED = _ARITHMETIC | _COMPARISONS | frozenset(_WITH_TENSORS)
_IN_PLACE = {f"{name}_": name for name in ("add", "sub", "mul", "div", "pow", "remainder", "floor_divide")} | {
    f"__i{name}__": f"__{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
}


@dataclass(frozen=True)
class Affine:
    """A number as a loop's own number plus a constant, with the bounds of the former: sizes, or None."""

    root: object
    offset: int = 0
    low: Any = None
    high: Any = None


def as_number(tensor: torch.Tensor, affine: Affine | None = None) -> torch.Tensor:
    """Marks a tensor that stands for a Python number."""
    setattr(tensor, _MARK, affine or Affine(object()))
    return tensor


def is_number(item: Any) -> bool:
    """Whether a value is a tensor that stands for a Python number."""
    return isinstance(item, torch.Tensor) and hasattr(item, _MARK)


def affine_of(item: Any) -> Affine | None:
    """What is known of a number of a loop."""
    return getattr(item, _MARK, None) if isinstance(item, torch.Tensor) else None


def number_tensor(number: Any) -> torch.Tensor:
    """A Python or symbolic number as the tensor that stands for it."""
    if isinstance(number, torch.Tensor):
        return number
    dtype = torch.bool if isinstance(number, bool) else torch.int64
    if isinstance(number, float | torch.SymFloat):
        dtype = torch.float64
    if isinstance(number, torch.SymInt | torch.SymFloat):
        return torch.scalar_tensor(number, dtype=dtype)  # type: ignore[arg-type]
    return torch.full((), number, dtype=dtype)


def with_numbers(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Calls a torch function whose arguments may be numbers."""
    name = getattr(func, "__name__", "")
    if name not in _MIXED and name not in _IN_PLACE:
        return func(*args, **kwargs)
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not any(is_number(leaf) for leaf in leaves):
        return func(*args, **kwargs)
    if name in _IN_PLACE and is_number(args[0]):  # `n += 1` of a number makes another number
        name = _IN_PLACE[name]
        func = getattr(torch.Tensor, name)
    others = [leaf for leaf in leaves if not is_number(leaf)]
    if others:
        args, kwargs = pytree.tree_map(lambda leaf: _beside(leaf, others), (args, kwargs))
        return func(*args, **kwargs)
    if name in _COMPARISONS:
        return as_number(func(*args, **kwargs))
    return _arithmetic(name, func, args, kwargs) if name in _ARITHMETIC else func(*args, **kwargs)


def _arithmetic(name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    affine = _moved(name, args)
    args, kwargs = pytree.tree_map(lambda leaf: _operand(leaf, name in _DIVISIONS), (args, kwargs))
    result = func(*args, **kwargs)
    return as_number(result, affine) if isinstance(result, torch.Tensor) else result


def _operand(leaf: Any, divides: bool) -> Any:
    """A number as Python's arithmetic takes it."""
    if isinstance(leaf, float) or (divides and isinstance(leaf, int)):
        return torch.full((), leaf, dtype=torch.float64)
    if isinstance(leaf, bool):
        return int(leaf)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if divides and not leaf.is_floating_point():
        return leaf.to(torch.float64)
    return leaf.to(torch.int64) if leaf.dtype == torch.bool else leaf


def _moved(name: str, args: Any) -> Affine | None:
    """What is known of `i + 3`, `3 + i` and `i - 3`."""
    if len(args) != 2:
        return None
    first, second = args
    if name in ("add", "__add__", "__radd__") and isinstance(first, int):
        first, second = second, first
    known = affine_of(first)
    if known is None or not isinstance(second, int) or isinstance(second, bool):
        return None
    if name in ("add", "__add__", "__radd__"):
        return Affine(known.root, known.offset + second, known.low, known.high)
    return Affine(known.root, known.offset - second, known.low, known.high) if name in ("sub", "__sub__") else None


def _rank(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1


def _beside(leaf: Any, others: list[torch.Tensor]) -> Any:
    """A number with the dtype that it has beside tensors."""
    if not is_number(leaf):
        return leaf
    dtype = others[0].dtype
    for other in others[1:]:
        dtype = torch.promote_types(dtype, other.dtype)
    if _rank(leaf.dtype) > _rank(dtype):
        dtype = torch.get_default_dtype() if leaf.is_floating_point() else torch.int64
    return leaf if leaf.dtype == dtype else leaf.to(dtype)
