"""Loops that a size of the inputs ends within a step: `while True: …; if i == len(x): break`.

Python answers such a test for the traced sizes, and the loop would be written out for them. Whether a step holds such a
test is found by giving the other answer: where the step then leaves the loop, the size decides about its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.conditional import Run
from exportguard.rewrites.data import depends_on_data
from exportguard.rewrites.recording import Captured
from exportguard.rewrites.resizing import asked_of, in_place_of, unbound
from exportguard.rewrites.state import Snapshot
from exportguard.source.errors import RewriteError, forget

_MOST = 16  # questions of a step that are given the other answer


def leaves_by_size(body: Callable[..., tuple[Any, tuple[Any, ...]]], *arguments: Any) -> bool:
    """Whether a size of the inputs decides if a step, which goes on at the traced sizes, leaves its loop."""
    mode = torch._guards.detect_fake_mode()
    if mode is None or mode.shape_env is None:
        return False
    snapshot = Snapshot(functions=[body])
    if snapshot.holds_iterators():  # whose elements cannot be put back
        return False
    with asked_of(mode.shape_env) as asked:
        if not _goes_on(body, arguments, snapshot):
            return False
    tests = [question for question in dict.fromkeys(asked) if question.is_Boolean or question.is_Relational]
    for question in tests[-_MOST:]:
        with _answered_otherwise(mode.shape_env, question):
            if _goes_on(body, arguments, snapshot) is False:
                return True
    return False


def _goes_on(body: Callable[..., tuple[Any, tuple[Any, ...]]], arguments: tuple[Any, ...], snapshot: Snapshot) -> Any:
    """What a step says, of which nothing stays; None where it stops, or where tensor data decide."""
    aliases = aliases_now()
    before = aliases.stale_now()
    try:
        with unbound():
            run = Run(lambda: body(*arguments), snapshot, Captured())
    except RewriteError as reason:
        forget(reason)
        return None
    except (RuntimeError, ValueError, LookupError, TypeError, AssertionError):
        return None  # the other answer may contradict what follows
    finally:
        aliases.set_stale(before)
    if run.error is not None or depends_on_data(run.result[0]):
        return None
    return bool(run.result[0])


@contextmanager
def _answered_otherwise(shape_env: ShapeEnv, test: Any) -> Iterator[None]:
    """While open, a question about sizes of inputs is given the answer that does not hold."""

    def answered(original: Callable[..., Any], question: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(question, *args, **kwargs)
        return not answer if question == test else answer

    with in_place_of(shape_env, "evaluate_expr", answered):
        yield
