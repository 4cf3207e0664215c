"""What a model asks of its numbers has the answers of eager mode in a trace.

A trace has a `torch.SymInt` where eager mode has an int, and a `torch.SymBool` where it has a bool. There
`isinstance(n, int)` is False, so is `flag is True`, `match n` takes another case, and a text made of `n` is another
key: the program has what follows from an answer that eager mode never gives. `exportguard.rewrites.asking` has what is
answered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from exportguard.declaration import Patch
from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.opened import opened
from exportguard.declaration.options import PatchOptions
from exportguard.rewrites.asking import answered, answering_patches, asking_functions, is_answered
from exportguard.rewrites.calls import Called

_TRACER = "torch.export._trace._export_to_aten_ir_make_fx"


def with_answers(original: Callable[..., Any]) -> Callable[..., Any]:
    """The trace of a module, in which what it may call asks what it asks in eager mode.

    Where what stops an export is rewritten, each attempt sees to that itself.
    """

    @functools.wraps(original)
    def trace(mod: object, *args: Any, **kwargs: Any) -> Any:
        if is_answered():
            return original(mod, *args, **kwargs)
        called = Called.by(mod)
        patches = answering_patches(asking_functions(called))
        rewritten = opened(PatchOptions.rewriting(tuple(patches))) if patches else nullcontext()
        with rewritten, answered(called.modules):
            return original(mod, *args, **kwargs)

    return trace


PATCHES = (
    Patch(
        name="answers about numbers",
        kind="torch",
        target=_TRACER,
        awaits="torch.export._trace",
        reason="a model that asks a size or a flag for its type, or makes a text of it, gets another answer in a trace",
        upstream="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/export/_trace.py",
        is_in_traces=False,
        probe=expecting(
            Expected(path=_TRACER, parameters="mod, fake_args, ..."),
            Expected(path="torch.export._trace._export_for_training", has=("_export_to_aten_ir_make_fx",)),
        ),
        replace=with_answers,
    ),
)
