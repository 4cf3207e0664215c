"""What a model does where gradients are computed, `if torch.is_grad_enabled()`: a file, which computes none, does not.

A program is traced without gradients, and the model is run so wherever it is compared. Where it asks for them it may do
something else when it is called as it is where it is exported.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch.utils import _pytree as pytree

from exportguard.errors import REFUSALS, ExportError
from exportguard.inputs import CallInputs
from exportguard.rewrites.calls import Called
from exportguard.rewrites.reach import all_names
from exportguard.rewrites.state import KeptModule

from .resizing import with_other_data
from .rounding import agree
from .trial import ModelRun

#: Names under which code learns whether gradients are computed.
_ASKING = frozenset(
    ("is_grad_enabled", "requires_grad", "grad_fn", "is_leaf", "is_inference", "is_inference_mode_enabled")
)


def require_same_without_gradients(model: torch.nn.Module, call: CallInputs) -> None:
    """Refuses a model that asks for gradients and does something else without them, if they are computed here.

    Raises:
        ExportError: with the names that it asks by.
    """
    names = _asked_by(model) if torch.is_grad_enabled() else []
    run = ModelRun(model, call)
    if not names or not run.is_possible() or not run.of(call).is_affordable():
        return
    kept = KeptModule(model)
    calls = itertools.chain([call], with_other_data(call) if run.of(call).is_quick() else ())
    if not all(_does_the_same(kept, one) for one in calls):
        raise ExportError(
            f"forward asks whether gradients are computed ({', '.join(names)}), and does something else without them, "
            "as a file does, than where it is exported: to have what it does without gradients call to_onnx within "
            "torch.no_grad(), or let forward ask for self.training, or for an attribute of its own"
        )


def _asked_by(model: torch.nn.Module) -> list[str]:
    """The names by which what a call of the model may lead to asks, in a stable order."""
    return sorted(_ASKING & frozenset(name for code in Called.by(model).functions for name in all_names(code)))


def _does_the_same(kept: KeptModule, call: CallInputs) -> bool:
    results = list(_results(kept, call))
    return len(results) < 2 or agree(results[0], results[1])


def _results(kept: KeptModule, call: CallInputs) -> Iterator[list[object]]:
    """What the model returns with and without gradients, for as far as it takes the call."""
    for are_computed in (True, False):
        own = call.copied()
        try:
            with kept.call() as model, torch.set_grad_enabled(are_computed):
                leaves = pytree.tree_leaves(model(*own.args, **own.kwargs))
        except (*REFUSALS, ArithmeticError):
            return
        yield [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
