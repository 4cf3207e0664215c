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
from exportguard.rewrites.state import KeptModule

from .asked_gradients import asked_by
from .ending import Ending, EndlessError, Watched
from .model_run import ModelRun
from .resizing import is_of_reals, with_other_data
from .rounding import agree

#: Functions by which Python learns what a tensor holds, or how much of it there is that something holds for.
_TELLING_DATA = frozenset(
    (
        *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__", "__array__", "__format__"),
        *("item", "tolist", "numpy", "equal", "allclose", "is_nonzero", "nonzero", "argwhere", "masked_select"),
        *("unique", "unique_consecutive"),
    )
)


def require_same_without_gradients(model: torch.nn.Module, call: CallInputs) -> None:
    """Refuses a model that asks for gradients and does something else without them, if they are computed here.

    Raises:
        ExportError: with the names that it asks by.
    """
    names = asked_by(model) if torch.is_grad_enabled() else []
    run = ModelRun(model, call)
    if not names or not run.is_possible() or not run.of(call).is_affordable():
        return
    runs = _Runs(model, call)
    with run.of(call).threads():
        first = list(runs.of(call))
        others = with_other_data(call) if any(one.asks_data for one in first) and run.of(call).is_quick() else ()
        is_same = all(map(_is_same, itertools.chain([first], (list(runs.of(other)) for other in others))))
    if not is_same:
        raise ExportError(
            f"forward asks whether gradients are computed ({', '.join(names)}), and does something else without them, "
            "as a file does, than where it is exported: to have what it does without gradients call to_onnx within "
            "torch.no_grad(), or let forward ask for self.training, or for an attribute of its own"
        )


def _is_same(runs: Sequence[_Run]) -> bool:
    """Whether both call the same functions of torch, or return the same by others; so if the model takes no call.

    Where the functions are the same, torch has kernels of its own for gradients, whose rounding large numbers show.
    """
    return len(runs) < 2 or runs[0].calls == runs[1].calls or agree(runs[0].outputs, runs[1].outputs)


@dataclass(frozen=True)
class _Run:
    """What one call returned, the functions of torch with their arguments, and whether Python learned some data."""

    outputs: Sequence[object]
    calls: Sequence[object]
    asks_data: bool


class _Runs:
    """What a model returns, and calls, with and without gradients."""

    def __init__(self, model: torch.nn.Module, known: CallInputs) -> None:
        self._kept = KeptModule(model)
        self._ending = Ending(lambda watched: self._one(known, watched, are_computed=True))

    def of(self, call: CallInputs) -> Iterator[_Run]:
        """Both, for as far as the model takes the call."""
        for are_computed in (True, False):

            def run(watched: Watched, are_computed: bool = are_computed) -> _Run:
                return self._one(call, watched, are_computed=are_computed)

            try:
                yield self._ending.ended(run)
            except (*REFUSALS, ArithmeticError, EndlessError):
                return

    def _one(self, call: CallInputs, watched: Watched, *, are_computed: bool) -> _Run:
        own = call.copied()
        recorder = _Recorder([leaf for leaf in own.leaves() if is_of_reals(leaf)])
        with self._kept.call() as model, torch.set_grad_enabled(are_computed), recorder:
            recorder.known([*model.parameters(), *model.buffers(), *own.leaves()])
            leaves = pytree.tree_leaves(watched(lambda: model(*own.args, **own.kwargs)))
        outputs = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return _Run(outputs, [*recorder.calls, recorder.known(leaves)], recorder.asks_data)


class _Recorder(TorchFunctionMode):
    """Notes the functions of torch that are called, their numbers, and which of the tensors met so far they take.

    `asks_data` if Python learned what some tensor holds that may hold something else for other `inputs`.
    """

    def __init__(self, inputs: Sequence[object]) -> None:
        super().__init__()
        self.calls: list[object] = []
        self.asks_data = False
        # By id: the call that made it and its place there, and the tensor, kept so that the id stays its own.
        self._tensors: dict[int, tuple[tuple[int, int], torch.Tensor]] = {}
        self._given = 0
        self._changing = {_memory(leaf) for leaf in inputs if isinstance(leaf, torch.Tensor)}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch._C._set_grad_enabled:  # a `with torch.no_grad()` goes back to what it came from
            return func(*args, **(kwargs or {}))
        given = _leaves((*args, *kwargs.values()) if kwargs else args)
        self.calls.append((func, self.known(given)))
        may_change = self._may_change(given)
        self.asks_data = self.asks_data or (may_change and _tells_data(func, given))
        result = func(*args, **(kwargs or {}))
        for place, leaf in enumerate(_leaves((result,))):
            if isinstance(leaf, torch.Tensor):
                # Also of what returns its operand for some kernels' results and a copy for others', as `contiguous`.
                self._tensors[id(leaf)] = ((len(self.calls), place), leaf)
                given.append(leaf)
        if may_change:  # what it gives, and what it writes into
            self._changing.update(_memory(leaf) for leaf in given if isinstance(leaf, torch.Tensor))
        return result

    def _may_change(self, leaves: Sequence[object]) -> bool:
        return any(isinstance(leaf, torch.Tensor) and _memory(leaf) in self._changing for leaf in leaves)

    def known(self, leaves: Sequence[object]) -> tuple[object, ...]:
        """Values that are the same in two runs which do the same."""
        return tuple(self._place_of(leaf) if isinstance(leaf, torch.Tensor) else _told(leaf) for leaf in leaves)

    def _place_of(self, tensor: torch.Tensor) -> tuple[int, int]:
        if id(tensor) not in self._tensors:
            self._given += 1
            self._tensors[id(tensor)] = ((0, self._given), tensor)
        return self._tensors[id(tensor)][0]


def _leaves(values: Sequence[object]) -> list[object]:
    """The values, and what lies in those that hold others; most are tensors and numbers."""
    found: list[object] = []
    for value in values:
        if isinstance(value, torch.Tensor | int | float | None):
            found.append(value)
        else:
            found += pytree.tree_leaves(value)
    return found


def _memory(tensor: torch.Tensor) -> int:
    """Where the numbers lie that a tensor shares with its views; one place for all that have no memory of theirs."""
    if tensor.layout is not torch.strided:
        return 0
    return tensor.untyped_storage().data_ptr()


def _tells_data(func: Any, given: Sequence[object]) -> bool:
    """Whether Python learns what a tensor holds, so that other data may go another way."""
    name = getattr(func, "__name__", "")
    masks = (leaf for leaf in given[1:] if isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.bool, torch.uint8))
    return name in _TELLING_DATA or (name == "__getitem__" and any(True for _ in masks))


def _told(leaf: object) -> object:
    """What the representation of a value says of it; of an object its class."""
    is_value = isinstance(leaf, int | float | complex | str | slice | torch.dtype | torch.device | None)
    return repr(leaf) if is_value else type(leaf)
