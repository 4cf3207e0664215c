"""Whether a model tests tensor data in Python while it runs."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch

from exportguard import _core
from exportguard.model_code import is_installed, users_frame

_OF_TENSORS = ("__bool__", "__int__", "__float__", "__complex__", "__index__", "item", "tolist", "equal", "allclose")
_OF_TORCH = ("equal", "allclose", "is_nonzero")
_OWNERS: list[tuple[Any, str]] = [(torch.Tensor, name) for name in _OF_TENSORS] + [(torch, name) for name in _OF_TORCH]

#: What the open blocks of this thread found, the innermost last; None where nothing is watched.
_FOUND: ContextVar[tuple[list[str], ...] | None] = ContextVar("exportguard.data_tests", default=None)


@contextlib.contextmanager
def watched_for_data_tests() -> Iterator[None]:
    """Lets `data_tests` of this block find something.

    Methods of `torch.Tensor` are replaced, for a mode of torch's would be asked at each operator. Python forgets then
    what it knows of the attributes of tensors, and runs slowly for some milliseconds: models are run many times within
    one block.
    """
    if _FOUND.get() is not None:
        yield
        return
    changes = _core.KeptChanges()
    try:
        _FOUND.set(())
        for owner, name in _OWNERS:
            changes.set_attribute(owner, name, _noting(getattr(owner, name)))
        yield
    finally:
        changes.undo()
        _FOUND.set(None)


@contextlib.contextmanager
def data_tests() -> Iterator[list[str]]:
    """The files of a user's own code that read data meanwhile; what installed packages test changes no result."""
    found: list[str] = []
    with watched_for_data_tests():
        token = _FOUND.set((*(_FOUND.get() or ()), found))
        try:
            yield found
        finally:
            _FOUND.reset(token)


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        innermost = (_FOUND.get() or ([],))[-1]
        frame = users_frame(sys._getframe(1))
        if frame is not None and not is_installed(frame.f_code.co_filename):
            innermost.append(frame.f_code.co_filename)
        return function(*args, **kwargs)

    return noted
