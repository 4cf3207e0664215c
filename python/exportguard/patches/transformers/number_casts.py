"""`torch_int` and `torch_float` of numbers made of sizes: `int` reads one as it is, and axes become constants."""

from __future__ import annotations

import functools
import math
import types
from typing import TYPE_CHECKING, Any, cast

import torch

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import CodeReplacement, Patch, Replacement
from exportguard.declaration.targets import resolve

if TYPE_CHECKING:
    from exportguard._core import Changes

_INT, _FLOAT = "transformers.utils.generic.torch_int", "transformers.utils.generic.torch_float"
_TRACED = "x.to(torch.{}) if torch.jit.is_tracing() and isinstance(x, torch.Tensor) else {}(x)"


def whole(x: Any) -> Any:
    """What `torch_int` makes of a number: of one of sizes a size."""
    if isinstance(x, torch.SymInt | torch.SymFloat):
        return x if isinstance(x, torch.SymInt) else math.trunc(x)
    return _original(_INT)(x)


def real(x: Any) -> Any:
    """What `torch_float` makes of a number: before transformers 5 a whole one, as `torch_int` does."""
    if isinstance(x, torch.SymInt | torch.SymFloat):
        is_whole = isinstance(_original(_FLOAT)(0.5), int)
        return whole(x) if is_whole else torch.sym_float(x)  # type: ignore[no-untyped-call]
    return _original(_FLOAT)(x)


# Their code runs in the place of the originals', in a module where nothing of this one is known.
def _torch_int(x: Any) -> Any:
    from exportguard.patches.transformers.number_casts import whole

    return whole(x)


def _torch_float(x: Any) -> Any:
    from exportguard.patches.transformers.number_casts import real

    return real(x)


@functools.cache
def _original(path: str) -> types.FunctionType:
    """The function as it was when it was asked for first, before any guard."""
    function = resolve(path).function
    return types.FunctionType(function.__code__, function.__globals__)


def _replace_code(changes: Changes) -> list[Replacement]:
    """Models have imported the functions by name, and hold them: they get other code."""
    made: list[Replacement] = []
    for path, new in ((_INT, _torch_int), (_FLOAT, _torch_float)):
        _original(path)
        made.append(CodeReplacement.of(path, resolve(path).function, cast(types.FunctionType, new)))
        made[-1].put(changes)
    return made


PATCHES = (
    Patch(
        name="casts of numbers",
        kind="transformers",
        target=(_INT, _FLOAT),
        reason="a number that is made of sizes is read as what it is in the example, and their axes become constants",
        upstream="https://github.com/huggingface/transformers/blob/main/src/transformers/utils/generic.py",
        probe=expecting(
            Expected(path=_INT, parameters="x", has=(_TRACED.format("int64", "int"),)),
            Expected(path=_FLOAT, parameters="x", has=(_TRACED.format("float32", "$kind"),)),
        ),
        apply=_replace_code,
    ),
)
