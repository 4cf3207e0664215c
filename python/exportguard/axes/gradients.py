"""What a model does where gradients are computed, `if torch.is_grad_enabled()`: a file, which computes none, does not.

A program is traced without gradients, and the model is run so wherever it is compared. Where it asks for them it may do
something else when it is called as it is where it is exported.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
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
    """Whether it calls the same functions of torch both ways, or returns the same by others.

    Where the functions are the same, torch has kernels of its own for gradients, whose rounding large numbers show.
    """
    runs = list(_runs(kept, call))
    return len(runs) < 2 or runs[0].calls == runs[1].calls or agree(runs[0].outputs, runs[1].outputs)


@dataclass(frozen=True)
class _Run:
    outputs: Sequence[object]
    calls: Sequence[object]


def _runs(kept: KeptModule, call: CallInputs) -> Iterator[_Run]:
    """What the model returns, and calls, with and without gradients, for as far as it takes the call."""
    for are_computed in (True, False):
        own, recorder = call.copied(), _Recorder()
        try:
            with kept.call() as model, torch.set_grad_enabled(are_computed), recorder:
                recorder.known([*model.parameters(), *model.buffers(), *own.leaves()])
                leaves = pytree.tree_leaves(model(*own.args, **own.kwargs))
        except (*REFUSALS, ArithmeticError):
            return
        outputs = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        yield _Run(outputs, [*recorder.calls, recorder.known(leaves)])


class _Recorder(TorchFunctionMode):
    """Notes the functions of torch that are called, their numbers, and which of the tensors met so far they take."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []
        # By id: the call that made it and its place there, and the tensor, kept so that the id stays its own.
        self._tensors: dict[int, tuple[tuple[int, int], torch.Tensor]] = {}
        self._given = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.calls.append((func, self.known(pytree.tree_leaves((args, kwargs or {})))))
        result = func(*args, **(kwargs or {}))
        for place, leaf in enumerate(pytree.tree_leaves(result)):
            if isinstance(leaf, torch.Tensor):
                # Also of what returns its operand for some kernels' results and a copy for others', as `contiguous`.
                self._tensors[id(leaf)] = ((len(self.calls), place), leaf)
        return result

    def known(self, leaves: Sequence[object]) -> tuple[object, ...]:
        """Values that are the same in two runs which do the same."""
        return tuple(self._place_of(leaf) if isinstance(leaf, torch.Tensor) else _told(leaf) for leaf in leaves)

    def _place_of(self, tensor: torch.Tensor) -> tuple[int, int]:
        if id(tensor) not in self._tensors:
            self._given += 1
            self._tensors[id(tensor)] = ((0, self._given), tensor)
        return self._tensors[id(tensor)][0]


def _told(leaf: object) -> object:
    """What the representation of a value says of it; of an object its class."""
    is_value = isinstance(leaf, int | float | complex | str | slice | torch.dtype | torch.device | None)
    return repr(leaf) if is_value else type(leaf)
