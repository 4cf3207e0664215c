"""What a model does when it is called once more: a file has no state, and does the same each time."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from exportguard.devices import same_random_numbers
from exportguard.errors import REFUSALS, ExportError
from exportguard.inputs import CallInputs
from exportguard.rewrites.state import KeptModule

from .rounding import agree


def require_same_when_called_again(kept: KeptModule, call: CallInputs) -> None:
    """Refuses a model that a call left otherwise than it was, and that does something else for that.

    Buffers hold the same for both calls: what a call writes into them, a program returns.

    Raises:
        ExportError: with what the call changed.
    """
    if not kept.changed:
        return
    try:
        with kept.call() as model:
            first = _outputs(model, call)
            kept.put_buffers_back()
            is_same = agree(first, _outputs(model, call))
    except (*REFUSALS, ArithmeticError):
        is_same = False
    if not is_same:
        raise ExportError(
            f"forward changes what it holds ({', '.join(kept.changed)}), and does something else when it is called "
            "again, which a file does not: take that state as an input and return what becomes of it, or keep it in a "
            "buffer that forward writes into"
        )


def _outputs(model: torch.nn.Module, call: CallInputs) -> list[object]:
    own = call.copied()
    with same_random_numbers():
        leaves = pytree.tree_leaves(model(*own.args, **own.kwargs))
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
