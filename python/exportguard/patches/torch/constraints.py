"""`catch_constraints`: an axis that was asked dynamic and became static is told, and the export goes on."""

from __future__ import annotations

import contextlib
import functools
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import torch

from exportguard.declaration.patch import Patch
from exportguard.export_errors import without_addresses

_RESIZING = ("aten.resize_.default", "aten.resize_as_.default", "aten.set_.source_Tensor")

logger = logging.getLogger(__name__)

#: How much it matters that an axis became static: whoever traces for a report of the axes tells it there.
_LEVEL: ContextVar[int] = ContextVar("exportguard.constraints", default=logging.WARNING)


@contextlib.contextmanager
def static_axes_reported() -> Iterator[None]:
    """Within the block an axis that became static is no warning: the report on the axes says so in the end, or that
    another program or a branch keeps it."""
    token = _LEVEL.set(logging.INFO)
    try:
        yield
    finally:
        _LEVEL.reset(token)


def log_violation(original: Callable[..., None]) -> Callable[..., None]:
    """The check of the constraints, its exception logged: what it decides is known by then, and nothing follows it."""

    # Not at the top: symbolic shapes take long to import, and whoever exports has them by now.
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

    @functools.wraps(original)
    def produce_guards_and_solve_constraints(*args: Any, **kwargs: Any) -> None:
        fake_mode, module = (*args[:2], kwargs.get("fake_mode"), kwargs.get("gm"))[:2]
        if fake_mode is not None and module is not None:
            _require_no_more_axes(fake_mode.shape_env, module.graph)
        try:
            original(*args, **kwargs)
        except ConstraintViolationError as error:
            logger.log(_LEVEL.get(), "an axis that was asked dynamic is not: %s", error)
        except (NotImplementedError, ValueError) as error:
            # torch 2.11 to 2.13: of a sum of three terms that a number is to divide its solver takes two.
            if not (_is_of_sympy(error) or _is_of_solver(error)):
                raise
            logger.log(_LEVEL.get(), "the conditions on the dynamic axes cannot be solved: %s", error)

    return produce_guards_and_solve_constraints


def _require_no_more_axes(shape_env: Any, graph: torch.fx.Graph) -> None:
    """An input that got an axis in place has none that was asked for it, for which torch 2.11 to 2.13 look there.

    Raises:
        RuntimeError: there is one.
    """
    for tracked in () if shape_env is None else shape_env.tracked_fakes or ():
        asked = getattr(tracked.symbolic_context, "dynamic_sizes", None)
        if asked is not None and isinstance(tracked.fake, torch.Tensor) and tracked.fake.dim() > len(asked):
            lines = (node.meta.get("stack_trace") or "" for node in graph.nodes if _adds_an_axis(node))
            raise RuntimeError(
                f"an input of {len(asked)} axes has {tracked.fake.dim()} of them afterwards, for forward changes the "
                f"input itself:\n{next(lines, '')}"
            )


def _adds_an_axis(node: torch.fx.Node) -> bool:
    """Whether an operator gives an input one more axis in place."""
    source = node.args[0] if node.args else None
    is_of_input = isinstance(source, torch.fx.Node) and source.op == "placeholder"
    return is_of_input and str(node.target) in ("aten.unsqueeze_.default", "aten.as_strided_.default", *_RESIZING)


def _is_of_solver(error: BaseException) -> bool:
    """Whether what solves the conditions on the axes raised it, which only words what torch tells of them."""
    return any(frame.name == "_is_supported_congruence" for frame in traceback.extract_tb(error.__traceback__))


def _is_of_sympy(error: BaseException) -> bool:
    """Whether sympy raised it, which torch asks to solve conditions for the text of a suggestion."""
    innermost = list(traceback.walk_tb(error.__traceback__))[-1][0]
    return str(innermost.f_globals.get("__name__", "")).startswith("sympy.")


def log_specialization(original: Callable[..., str | None]) -> Callable[..., str | None]:
    """The check of one `Dim.DYNAMIC` axis, its complaint logged.

    What it finds of a symbol, and narrows its range to, it does not find again for all other axes of that symbol.
    """
    last: list[Any] = [None, set()]  # the ranges of one export, and what was checked in it

    @functools.wraps(original)
    def constrain_user_specified_dimhint_range(*args: Any, **kwargs: Any) -> str | None:
        checked, ranges = _checked(args, kwargs)
        if last[0] is not ranges:
            last[:] = [ranges, set()]
        if checked is not None and checked in last[1]:
            return None
        complaint = original(*args, **kwargs)
        if not complaint and checked is not None:
            last[1].add(checked)
        if complaint:
            told = without_addresses(complaint.removeprefix("- "))
            logger.log(_LEVEL.get(), "an axis that was asked dynamic is not: %s", told)
        return None

    return constrain_user_specified_dimhint_range


def _checked(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """What decides the check of a size, None for one that is a number; and the ranges that it narrows."""
    if kwargs or len(args) < 4:
        return None, None
    size, _, dim, ranges = args[:4]
    if not isinstance(size, torch.SymInt) or size.node.maybe_as_int() is not None:
        return None, ranges
    return (size.node.expr, size.node._expr, dim.type, dim.min, dim.max), ranges


PATCHES = (
    Patch(
        name="constraint violations",
        kind="constraints",
        target="torch.export._trace.produce_guards_and_solve_constraints",
        reason="one axis that cannot be dynamic stops the export of all others",
        upstream="https://github.com/pytorch/pytorch/issues/140011",
        replace=log_violation,
    ),
    Patch(
        name="specialized dynamic axes",
        kind="constraints",
        target="torch._export.non_strict_utils._constrain_user_specified_dimhint_range",
        reason="one axis that cannot be dynamic stops the export of all others",
        upstream="https://github.com/pytorch/pytorch/issues/147264",
        replace=log_specialization,
    ),
)
