"""`stop_if_static`: an error at the line where a dynamic axis becomes static."""

from __future__ import annotations

import functools
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from exportguard.declaration.patch import Patch
from exportguard.errors import GuardError
from exportguard.model_code import is_installed, is_users

if TYPE_CHECKING:
    import sympy


class StaticAxisError(GuardError):
    """A dynamic axis became static while the model was traced."""


def _frames() -> Iterator[types.FrameType]:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def model_line() -> str:
    """The innermost line of the model's code that is running: "modeling_x.py:12: x = y.view(2, -1)".

    Behind a line of an installed package that no module's method has, as a helper for shapes, stands the line of the
    model that led there: "helper.py:60: …, called by model.py:12: …". Who calls torch.export is no part of the model.
    """
    frames = _model_frames()
    inner = next(frames, None)
    if inner is None:
        return "no line of the model, but when torch compared the axes of the inputs at the end"
    caller = None if _is_models_own(inner) else next(filter(_is_models_own, frames), None)
    lines = dict.fromkeys(_line_of(frame) for frame in (inner, caller) if frame is not None)  # one of both, or two
    return ", called by ".join(lines)


def _model_frames() -> Iterator[types.FrameType]:
    """What runs of the model and its libraries, from the inside out."""
    for frame in _frames():
        if frame.f_code.co_filename == torch.export.__file__:
            return
        if is_users(frame.f_code.co_filename):
            yield frame


def _is_models_own(frame: types.FrameType) -> bool:
    """Whether a frame is a method of a module, or of code that is nobody's package."""
    if not is_installed(frame.f_code.co_filename):
        return True
    return "self" in frame.f_code.co_varnames[:1] and isinstance(frame.f_locals.get("self"), torch.nn.Module)


def _line_of(frame: types.FrameType) -> str:
    file = frame.f_code.co_filename
    return f"{file}:{frame.f_lineno}: {linecache.getline(file, frame.f_lineno).strip()}"


def readable_axis(source: str) -> str:
    """Torch's name of a size or a number, as a reader would say it.

    >>> readable_axis("L['x']['y'].size()[1]"), readable_axis("L['n']")
    ('axis 1 of x.y', 'n')
    """
    path, _, axis = source.removeprefix("L").partition(".size()")
    steps = (step.strip("'\"[]") for step in path.split("["))
    name = ".".join(step for step in steps if step)
    return f"axis {axis.strip('[]')} of {name}" if axis else name


def _axis_of(shape_env: Any, symbol: sympy.Symbol) -> str | None:
    """The input axis that the symbol stands for; None for one that stands for something else."""
    sources = shape_env.var_to_sources.get(symbol) or []
    names = [source.name if isinstance(source.name, str) else source.name() for source in sources]
    return readable_axis(names[0]) if names else None


def refuse_static(original: Callable[..., None]) -> Callable[..., None]:
    """What torch calls when it finds a symbol equal to something else; a number is refused."""

    @functools.wraps(original)
    def set_replacement(self: Any, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        axis = _axis_of(self, a) if tgt.is_number else None
        if axis is not None:
            raise StaticAxisError(
                f"the dynamic {axis} ({a}) becomes {tgt} at {model_line()}; give another size in the example "
                "inputs if it is 0 or 1 there, rewrite that line, or do not ask for it to be dynamic"
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
