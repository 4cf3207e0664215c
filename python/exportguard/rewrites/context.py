"""The guard over rewritten functions alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from exportguard.guard import Guard, torch_export_patches


@contextmanager
def torch_export_rewrite(rewrite: Any, dump_rewriting: str | os.PathLike[str] | None = None) -> Iterator[Guard]:
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
    with torch_export_patches(
        patch=True,
        serializers=False,
        patch_sympy=False,
        patch_torch=False,
        patch_transformers=False,
        catch_constraints=False,
        rewrite=rewrite,
        dump_rewriting=folder,
    ) as guard:
        yield guard
