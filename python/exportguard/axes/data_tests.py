"""Whether a model tests tensor data in Python while it runs."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from exportguard.model_code import is_installed, is_users

_TORCH = str(Path(torch.__file__).parent)
_OF_TENSORS = ("__bool__", "__int__", "__float__", "__complex__", "__index__", "item", "tolist", "equal", "allclose")
_OF_TORCH = ("equal", "allclose", "is_nonzero")
_OWNERS: list[tuple[Any, str]] = [(torch.Tensor, name) for name in _OF_TENSORS] + [(torch, name) for name in _OF_TORCH]


@contextlib.contextmanager
def data_tests() -> Iterator[list[str]]:
    """The files of a user's own code that read data meanwhile; what installed packages test changes no result.

    Methods of `torch.Tensor` are replaced, for a mode of torch's would be asked at each operator.
    """
    found: list[str] = []
    before = [vars(owner).get(name) for owner, name in _OWNERS]
    for owner, name in _OWNERS:
        setattr(owner, name, _noting(getattr(owner, name), found))
    try:
        yield found
    finally:
        for (owner, name), function in zip(_OWNERS, before, strict=True):
            if function is None:
                delattr(owner, name)  # it was inherited
            else:
                setattr(owner, name, function)


def _noting(function: Callable[..., Any], found: list[str]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        file = _file_that_calls(sys._getframe(1))
        if is_users(file) and not is_installed(file):
            found.append(file)
        return function(*args, **kwargs)

    return noted


def _file_that_calls(frame: FrameType | None) -> str:
    """Beneath what torch calls for it."""
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename
