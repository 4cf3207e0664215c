"""What torch makes of a list whose length only a run knows: `stack`, `cat`, `pad_sequence`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols
from torch.utils import _pytree as pytree

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.collected import Grown, is_open, joined, note_stacked, refuse, require_one_size
from exportguard.rewrites.packed_rows import Parts
from exportguard.rewrites.raising import require_no_handler
from exportguard.rewrites.streams import gathered


def require_elements(grown: Grown) -> None:
    """Tells torch that a list has elements where sizes of inputs decide it: what joins them asks for one in Python."""
    length = grown.length()
    if isinstance(length, torch.SymInt) and not has_free_unbacked_symbols(length):
        torch._check(length > 0)  # type: ignore[no-untyped-call]


def of_open_list(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """What a torch function makes of a list of unknown length.

    :raises RewriteError: for all but those that join its elements
    """
    joining = _JOINING.get(getattr(func, "__name__", ""))
    if joining is None or not args or not is_open(args[0]):
        refuse(f"torch.{getattr(func, '__name__', func)}")
    require_elements(args[0])
    if has_free_unbacked_symbols(args[0].length()):
        require_no_handler(RuntimeError, "a list without elements")
    if joining is _stack:  # which wants one size in Python as well
        note_stacked(args[0].parts)
    else:
        require_one_size(args[0].parts, "joined")
    rows = joined(args[0].parts, promotes=True, packs=True).rows
    if isinstance(rows, Parts):
        return _JOINING_PARTS[joining](rows, *args[1:], **kwargs)
    if not isinstance(rows, torch.Tensor):
        refuse("joining elements that are no tensors")
    return joining(rows, *args[1:], **kwargs)


def pad_sequence(sequences: Any, *arguments: Any, **options: Any) -> Any:
    """`torch.nn.utils.rnn.pad_sequence`, which goes through a list in Python."""
    listed = gathered(sequences)
    if not is_open(listed):
        return torch.nn.utils.rnn.pad_sequence(listed, *arguments, **options)
    aliases_now().read(leaf for leaf in pytree.tree_leaves(listed) if isinstance(leaf, torch.Tensor))
    return of_open_list(torch.nn.utils.rnn.pad_sequence, (listed, *arguments), options)


def _stack(rows: torch.Tensor, dim: int = 0) -> torch.Tensor:
    return torch.movedim(rows, 0, dim)


def _cat(rows: torch.Tensor, dim: int = 0, *, axis: int | None = None) -> torch.Tensor:
    dim = dim if axis is None else axis
    place = dim if dim >= 0 else dim + rows.dim() - 1
    return torch.movedim(rows, 0, place).flatten(place, place + 1)


def _pad_sequence(rows: torch.Tensor, batch_first: bool = False, *_: Any, **__: Any) -> torch.Tensor:
    return rows if batch_first else rows.transpose(0, 1)  # rows of a loop have one length


_JOINING: dict[str, Callable[..., Any]] = {
    **{"stack": _stack, "pad_sequence": _pad_sequence},
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
}

#: The same of elements of several sizes.
_JOINING_PARTS: dict[Callable[..., Any], Callable[..., Any]] = {
    _stack: lambda parts, dim=0: _stack(parts.stacked(), dim),
    _cat: lambda parts, dim=0, *, axis=None: parts.joined(dim if axis is None else axis),
    _pad_sequence: Parts.padded,
}
