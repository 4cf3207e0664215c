"""What a model does when it is called once more: a file has no state, and does the same each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.utils import _pytree as pytree

from exportguard.devices import same_random_numbers
from exportguard.errors import REFUSALS, ExportError
from exportguard.inputs import CallInputs
from exportguard.rewrites.state import KeptModule

from .rounding import agree

_TIMES = 4  # one after the other: what counts may begin with the third


def require_same_when_called_again(kept: KeptModule, call: CallInputs, others: Sequence[CallInputs] = ()) -> None:
    """Refuses a model that a call left otherwise than it was, and that does something else for that.

    It is called several times, then with other sizes, and once more. What is else for its buffers alone counts as the
    same: what a call leaves in these, a program returns.

    Raises:
        ExportError: with what the calls changed.
    """
    if not kept.changed:
        return
    calls = [call] * _TIMES + [*others, call]
    expected = {id(each): _alone(kept, each) for each in (call, *others)}
    # With what the call left, and, for what a program returns, with the buffers that were there before.
    if not any(_is_same(kept, calls, expected, put_back) for put_back in (lambda: None, kept.put_buffers_back)):
        raise ExportError(
            f"forward changes what it holds ({', '.join(kept.changed)}), and does something else when it is called "
            "again, which a file does not: take that state as an input and return what becomes of it, or keep it in a "
            "buffer that forward writes into"
        )


def _alone(kept: KeptModule, call: CallInputs) -> list[object] | None:
    """What a call returns that is the first; None if the model does not take it."""
    with kept.call() as model:
        return _outputs(model, call)


def _is_same(
    kept: KeptModule,
    calls: Sequence[CallInputs],
    expected: Mapping[int, list[object] | None],
    put_back: Callable[[], None],
) -> bool:
    """Whether calls in a row return what each does alone, as far as the model takes them."""
    with kept.call() as model:
        for call in calls:
            alone, found = expected[id(call)], _outputs(model, call)
            if alone is not None and (found is None or not agree(alone, found)):
                return False
            put_back()
    return True


def _outputs(model: torch.nn.Module, call: CallInputs) -> list[object] | None:
    own = call.copied()
    try:
        with same_random_numbers():
            leaves = pytree.tree_leaves(model(*own.args, **own.kwargs))
    except (*REFUSALS, ArithmeticError):
        return None
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
