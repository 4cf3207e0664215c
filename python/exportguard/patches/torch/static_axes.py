"""`stop_if_static`: an error at the line where a dynamic axis becomes static."""

from __future__ import annotations

import functools
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from exportguard.errors import GuardError
from exportguard.patches.declaration import Patch

if TYPE_CHECKING:
    import sympy

_NOT_THE_MODEL = ("/torch/", "/sympy/", "/contextlib.py", "/functools.py", "/exportguard/", "<")


class StaticAxisError(GuardError):
    """A dynamic axis became static while the model was traced."""


def _frames() -> Iterator[types.FrameType]:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def model_line() -> str:
    """The innermost line of the model's code that is running: "modeling_x.py:12: x = y.view(2, -1)"."""
    for frame in _frames():
        file = frame.f_code.co_filename
        if not any(part in file for part in _NOT_THE_MODEL):
            return f"{file}:{frame.f_lineno}: {linecache.getline(file, frame.f_lineno).strip()}"
    return "an unknown line"


def _axis_of(shape_env: Any, symbol: sympy.Symbol) -> str | None:
    """The input axis that the symbol stands for; None for one that stands for something else."""
    sources = shape_env.var_to_sources.get(symbol) or []
    names = [source.name if isinstance(source.name, str) else source.name() for source in sources]
    return names[0] if names else None


def refuse_static(original: Callable[..., None]) -> Callable[..., None]:
    """What torch calls when it finds a symbol equal to something else; a number is refused."""

    @functools.wraps(original)
    def set_replacement(self: Any, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        axis = _axis_of(self, a) if tgt.is_number else None
        if axis is not None:
            raise StaticAxisError(
                f"the dynamic axis {axis} ({a}) becomes {tgt} at {model_line()}; give another size in the example "
                "inputs if it is 0 or 1 there, rewrite that line, or do not ask for this axis to be dynamic"
            )
        original(self, a, tgt, msg)

    return set_replacement


PATCHES = (
    Patch(
        name="static axes",
        kind="static_check",
        target="torch.fx.experimental.symbolic_shapes.ShapeEnv._set_replacement",
        reason="shows the line of the model that fixes a dynamic axis",
        upstream="https://github.com/pytorch/pytorch/pull/137029",
        replace=refuse_static,
    ),
)
