"""Guards for rewritten functions: over those that are named, and over an export that finds out which they are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from exportguard.declaration.options import PatchOptions
from exportguard.guard.opening import Guard, open_guard, torch_export_patches
from exportguard.rewrites.automatic import RewrittenExport
from exportguard.rewrites.selection import as_rewrites


@contextmanager
def torch_export_rewrite(rewrite: object, dump_rewriting: str | os.PathLike[str] | None = None) -> Iterator[Guard]:
    """Puts rewritten functions in force for the block, and the originals back at its end, also after an error.

    :param rewrite: a module, or methods, classes, (class, "name") pairs and dicts of a "target" with options of
        `transform_method`
    :param dump_rewriting: a folder for the sources before and after, with their difference
    :raises RewriteError: a function cannot be rewritten; nothing is changed then

    >>> import torch
    >>> class Clamped(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x if x.max() < 1 else x / x.max()
    >>> with torch_export_rewrite([(Clamped, "forward")]):
    ...     program = torch.export.export(Clamped(), (torch.rand(3),))
    """
    folder = os.fspath(dump_rewriting) if dump_rewriting is not None else ""
    with open_guard(PatchOptions.rewriting(as_rewrites(rewrite), folder)) as guard:
        yield guard


def export_with_rewriting(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> RewrittenExport:
    """torch.export under the guard; where it stops at a test on tensor data, that function is rewritten and it is
    tried again.

    `dynamic_shapes` is what torch.export takes. Nothing stays rewritten afterwards; give `rewritten` as `rewrite` to
    `torch_export_patches` to have the same again, or `save` it.

    :raises Exception: torch's own error, with a note on what was tried, when rewriting does not help

    >>> class Clamped(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x if x.max() < 1 else x / x.max()
    >>> [patch.target for patch in export_with_rewriting(Clamped(), (torch.rand(3),)).rewritten]
    ['exportguard.guard.rewriting.Clamped.forward']
    """
    with torch_export_patches(rewrite="auto") as guard:
        inputs = guard((tuple(args), dict(kwargs or {})))
        program = torch.export.export(model, *inputs, dynamic_shapes=dynamic_shapes, strict=False)
    return RewrittenExport(program=program, steps=guard.rewriting_steps)
