"""The function inside descriptors and decorators, and the same descriptors and decorators around another one."""

from __future__ import annotations

import functools
import types
from typing import Any

from exportguard.source.compiling import holds
from exportguard.source.errors import RewriteError


def innermost(function: object) -> types.FunctionType:
    """The user's function inside descriptors and decorators that keep `__wrapped__`.

    :raises RewriteError: there is none, as for a built-in function
    """
    current = _inside_of(function)
    if not isinstance(current, types.FunctionType):
        raise RewriteError(f"{function!r} is not a Python function; only those can be rewritten")
    return current


def plain(value: object) -> Any:
    """The innermost function of `value`, or what it is if there is none."""
    current = _inside_of(value)
    return current if isinstance(current, types.FunctionType) else value


def _inside_of(value: object) -> object:
    """What is left without descriptors and decorators."""
    current = value
    while (inner := _one_inside(current)) is not None:
        current = inner
    return current


def _one_inside(outer: object) -> Any:
    if isinstance(outer, staticmethod | classmethod | types.MethodType):
        return outer.__func__
    if isinstance(outer, property):
        return outer.fget
    if isinstance(outer, functools.cached_property):
        return outer.func
    return getattr(outer, "__wrapped__", None)


def rewrap(outer: object, old: types.FunctionType, new: types.FunctionType) -> Any:
    """`outer` with `old` replaced by `new` inside its descriptors and decorators; `outer` itself is left alone.

    :raises RewriteError: a decorator does not keep the function where it can be replaced
    """
    if outer is old:
        return new
    if isinstance(outer, staticmethod | classmethod):
        return type(outer)(rewrap(outer.__func__, old, new))
    if isinstance(outer, types.MethodType):
        return types.MethodType(rewrap(outer.__func__, old, new), outer.__self__)
    if isinstance(outer, property):
        return property(rewrap(outer.fget, old, new), outer.fset, outer.fdel, outer.__doc__)
    if isinstance(outer, functools.cached_property):
        return _cached_anew(outer, rewrap(outer.func, old, new))
    return _rewrap_closure(outer, old, new)


def _cached_anew(outer: functools.cached_property[Any], function: Any) -> functools.cached_property[Any]:
    made = functools.cached_property(function)
    made.attrname = outer.attrname  # given when the class was made, which does not happen again
    return made


def _rewrap_closure(outer: object, old: types.FunctionType, new: types.FunctionType) -> Any:
    inner = getattr(outer, "__wrapped__", None)
    if not isinstance(outer, types.FunctionType) or inner is None:
        raise RewriteError(f"{outer!r} is a decorator that hides {old.__qualname__}; rewrite the function by hand")
    replaced = rewrap(inner, old, new)
    cells = [types.CellType(replaced) if holds(cell, inner) else cell for cell in outer.__closure__ or ()]
    if not any(holds(cell, replaced) for cell in cells):
        raise RewriteError(
            f"the decorator of {old.__qualname__} does not keep it in a closure; rewrite the function by hand"
        )
    made = types.FunctionType(outer.__code__, outer.__globals__, outer.__name__, outer.__defaults__, tuple(cells))
    made.__kwdefaults__ = outer.__kwdefaults__
    functools.update_wrapper(made, outer)
    made.__wrapped__ = replaced  # type: ignore[attr-defined]
    return made
