"""What a model does when it is called once more: a file has no state, and does the same each time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils import _pytree as pytree

from exportguard.devices import same_random_numbers
from exportguard.errors import REFUSALS, ExportError
from exportguard.inputs import CallInputs
from exportguard.rewrites.state import KeptModule

from .rounding import agree


def require_same_when_called_again(kept: KeptModule, call: CallInputs) -> None:
    """Refuses a model that a call left otherwise than it was, and that does something else for that.

    What is else for its buffers alone counts as the same: what a call leaves in these, a program returns.

    Raises:
        ExportError: with what the call changed.
    """
    if not kept.changed:
        return
    # With what the call left, and, for what a program returns, with the buffers that were there before.
    if not any(_is_same(kept, call, put_back) for put_back in (lambda: None, kept.put_buffers_back)):
        raise ExportError(
            f"forward changes what it holds ({', '.join(kept.changed)}), and does something else when it is called "
            "again, which a file does not: take that state as an input and return what becomes of it, or keep it in a "
            "buffer that forward writes into"
        )


def _is_same(kept: KeptModule, call: CallInputs, put_back: Callable[[], None]) -> bool:
    """Whether the second of two calls returns what the first does; so if the model takes none at all."""
    with kept.call() as model:
        first = _outputs(model, call)
        put_back()
        second = None if first is None else _outputs(model, call)
    return first is None or (second is not None and agree(first, second))


def _outputs(model: torch.nn.Module, call: CallInputs) -> list[object] | None:
    own = call.copied()
    try:
        with same_random_numbers():
            leaves = pytree.tree_leaves(model(*own.args, **own.kwargs))
    except (*REFUSALS, ArithmeticError):
        return None
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
