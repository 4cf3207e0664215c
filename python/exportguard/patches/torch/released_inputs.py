"""What a trace knows of sizes is let go of with its program.

A `ShapeEnv` keeps the fake inputs, whose sizes keep the `ShapeEnv`. That circle goes through C++, where Python's
collector does not see it: every export with a dynamic axis stayed in memory for good, with all expressions of its
sizes (torch 2.11 to 2.13; `torch._dynamo` lets go of them in the same way). Calls of its methods that torch remembers
without an end keep it, too.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, by_target

_MADE = "torch.export._trace.make_fake_inputs"
_TRACED = "torch.export._trace._fakify_module_inputs"

#: The environments that exports made for themselves.
_own: weakref.WeakSet[Any] = weakref.WeakSet()


def noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """`make_fake_inputs`, whose environment is noted if it makes one; within another trace it takes that one's."""
    from torch._guards import TracingContext  # takes long to import, and whoever exports has it by now

    @functools.wraps(original)
    def make_fake_inputs(*args: Any, **kwargs: Any) -> Any:
        is_own = TracingContext.try_get() is None
        fake_mode, *others = original(*args, **kwargs)
        if is_own and fake_mode.shape_env is not None:
            _own.add(fake_mode.shape_env)
        return (fake_mode, *others)

    return make_fake_inputs


def releasing(original: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
    """What is open while the model is traced: behind it the constraints are solved, and nobody asks for the inputs."""

    @functools.wraps(original)
    @contextmanager
    def fakify_module_inputs(args: Any, kwargs: Any, fake_mode: Any) -> Iterator[Any]:
        try:
            with original(args, kwargs, fake_mode) as inputs:
                yield inputs
        finally:
            if fake_mode.shape_env in _own:
                _release(fake_mode.shape_env)

    return fakify_module_inputs


def _release(environment: Any) -> None:
    """Lets go of the inputs, and of what was remembered of the environment: some of its methods remember all calls, of
    every environment there was, and for good."""
    environment.tracked_fakes = None
    for function in vars(type(environment)).values():
        getattr(function, "cache_clear", bool)()


_REPLACEMENTS = {_MADE: noting, _TRACED: releasing}


PATCHES = (
    Patch(
        name="inputs of a trace that has ended",
        kind="torch",
        target=tuple(_REPLACEMENTS),
        reason="what torch knows of the sizes of an export stays in memory for good, and so of every one in a process",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/non_strict_utils.py",
        is_in_traces=False,
        probe=expecting(
            Expected(path=_MADE, parameters="nn_module, args, kwargs, dynamic_shapes, ...", has=("ShapeEnv",)),
            Expected(path=_TRACED, parameters="args, kwargs, fake_mode"),
            Expected(
                path="torch._export.non_strict_utils.produce_guards_and_solve_constraints",
                has=("shape_env.tracked_fakes",),
            ),
        ),
        replace=by_target(_REPLACEMENTS),
    ),
)
