"""Whether a model tests tensor data in Python while it runs."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from exportguard import _core
from exportguard.model_code import is_installed, users_frame

_OF_TENSORS = ("__bool__", "__int__", "__float__", "__complex__", "__index__", "item", "tolist", "equal", "allclose")
_OF_TORCH = ("equal", "allclose", "is_nonzero")
_OWNERS: list[tuple[Any, str]] = [(torch.Tensor, name) for name in _OF_TENSORS] + [(torch, name) for name in _OF_TORCH]


@contextlib.contextmanager
def data_tests() -> Iterator[list[str]]:
    """The files of a user's own code that read data meanwhile; what installed packages test changes no result.

    Methods of `torch.Tensor` are replaced, for a mode of torch's would be asked at each operator.
    """
    found: list[str] = []
    changes = _core.KeptChanges()
    try:
        for owner, name in _OWNERS:
            changes.set_attribute(owner, name, _noting(getattr(owner, name), found))
        yield found
    finally:
        changes.undo()


def _noting(function: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        frame = users_frame(sys._getframe(1))
        if frame is not None and not is_installed(frame.f_code.co_filename):
            found.append(frame.f_code.co_filename)
        return function(*args, **kwargs)

    return noted
