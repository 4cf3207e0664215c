"""Watches an export in which rewritten functions run: what a handler of the model must not swallow, numbers that are
tensors, and names that share memory in Python and not in the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

from exportguard.rewrites.catching import handler_of
from exportguard.rewrites.numbers import with_numbers
from exportguard.source.errors import noted_errors

if TYPE_CHECKING:
    from exportguard._core import Changes

_WATCHED = "__exportguard_watched__"
_OPEN: list[Watch] = []


class Watch(TorchFunctionMode):
    """Sees every torch function that runs while a program is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.swallowed: list[Exception] = []  # what torch raised where a handler of the model may take it for its own

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            return with_numbers(func, args, kwargs)
        except Exception as error:
            self.note_stop(error)
            raise

    def note_stop(self, error: Exception) -> None:
        """Notes an error at a test on tensor data that a handler of the model would take for one of its own."""
        if is_stop(error) and handler_of(type(error)) is not None:
            self.swallowed.append(error)


def is_stop(error: BaseException) -> bool:
    """Whether torch wanted the value of a tensor that it does not have."""
    from torch._dynamo.exc import UserError
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    stops = (UserError, GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
    return isinstance(error, stops) or "data-dependent" in str(error)


def watch_exports(changes: Changes) -> None:
    """Puts every torch.export under a watch until the changes are undone."""
    from torch.export import _trace
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    original = _trace._export
    if getattr(original, _WATCHED, False):
        return

    @functools.wraps(original)
    def export(*args: Any, **kwargs: Any) -> Any:
        return _run_watched(lambda: original(*args, **kwargs))

    setattr(export, _WATCHED, True)
    changes.set_attribute(_trace, "_export", export)
    # torch 2.11 to 2.13: what a test on a symbolic number raises is made here, outside of any torch function.
    make_error = ShapeEnv._make_data_dependent_error
    changes.set_attribute(ShapeEnv, "_make_data_dependent_error", _noting(make_error))


def _noting(make_error: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_error)
    def make(*args: Any, **kwargs: Any) -> Any:
        error = make_error(*args, **kwargs)
        if _OPEN:
            _OPEN[-1].note_stop(error)
        return error

    return make


def _run_watched(export: Callable[[], Any]) -> Any:
    """The program, unless the model swallowed what was not meant for it."""
    watch = Watch()
    _OPEN.append(watch)
    try:
        with noted_errors() as noted, watch:
            program = export()
    finally:
        _OPEN.pop()
    for error in [*noted, *watch.swallowed]:
        raise error
    return program
