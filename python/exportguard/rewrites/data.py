"""What of a program depends on tensor data, and how a test of it is written in a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols
from torch.utils import _pytree as pytree

from exportguard.rewrites.contents import attributes_of_tensor
from exportguard.rewrites.state import MISSING, of_a_tensor
from exportguard.source.errors import RewriteError

_LONGEST_TEXT = 60


def is_tracing() -> bool:
    """Whether torch.export runs, so that tensor data is not there."""
    return torch.compiler.is_exporting() or torch._guards.detect_fake_mode() is not None


def depends_on_data(test: object) -> bool:
    """Whether Python cannot decide `test` at trace time because it depends on tensor data."""
    if isinstance(test, torch.Tensor):
        return is_tracing()
    is_symbolic = isinstance(test, torch.SymBool | torch.SymInt | torch.SymFloat)
    return is_symbolic and bool(has_free_unbacked_symbols(test))


def as_predicate(test: object) -> Any:
    """`test` as cond takes it: a bool tensor of rank 0, or a SymBool."""
    if isinstance(test, torch.Tensor):
        if test.numel() != 1:
            raise RewriteError(
                f"the truth value of a tensor of shape {tuple(test.shape)} is ambiguous; use any() or all()"
            )
        flat = test.reshape(())
        return flat if flat.dtype == torch.bool else flat != 0
    return test if isinstance(test, torch.SymBool) else test != 0


def as_flag(item: object) -> torch.Tensor:
    """The truth value of anything as a bool tensor of rank 0."""
    is_data = isinstance(item, torch.Tensor | torch.SymBool | torch.SymInt | torch.SymFloat)
    predicate = as_predicate(item) if is_data else bool(item)
    return predicate if isinstance(predicate, torch.Tensor) else torch.scalar_tensor(predicate, dtype=torch.bool)


def require_no_attributes(leaf: object) -> None:
    """Refuses a tensor with attributes, which are lost where a graph hands it on."""
    for name in attributes_of_tensor(leaf) if isinstance(leaf, torch.Tensor) else ():
        raise of_a_tensor(name)


def describe(item: object) -> str:
    """A value as an error message shows it: tensors by dtype and shape.

    >>> describe(torch.ones(2, 3, dtype=torch.int64)), describe(torch.ones(2))
    ('an int64 tensor of shape [2, 3]', 'a float32 tensor of shape [2]')
    """
    if isinstance(item, torch.Tensor):
        sizes = ", ".join(str(size) for size in item.shape)
        dtype = str(item.dtype).removeprefix("torch.")
        return f"{'an' if dtype.startswith('int') else 'a'} {dtype} tensor of shape [{sizes}]"
    if item is MISSING:
        return "nothing"
    text = repr(item)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."


def structure_of(item: object) -> str:
    """A value as an error message shows it where its structure matters: the parts of a container.

    >>> structure_of([1, (2, 3)]), structure_of({"a": 1}), structure_of(())
    ('a list of 2', "a dict of 'a'", 'an empty tuple')
    """
    if isinstance(item, dict) and item:
        return f"a dict of {', '.join(map(repr, item))}"
    if isinstance(item, list | tuple | dict):
        kind = next(base for base in (list, tuple, dict) if isinstance(item, base)).__name__
        parts = len(pytree.tree_flatten(item, is_leaf=lambda part: part is not item)[0])
        return f"a {kind} of {parts}" if parts else f"an empty {kind}"
    return describe(item)
