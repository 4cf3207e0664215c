"""A module, run as it is, without patches: whether it takes a call, and what it returns."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.errors import REFUSALS
from exportguard.inputs import CallInputs
from exportguard.rewrites.state import Snapshot, snapshot_of

logger = logging.getLogger(__name__)

# A model is run in full for no more than this many rows of inputs (attention compares each with each) and products with
# weights, which take some 0.1 s; and for no more than these products, which take a second, if it has to be.
_QUICK_ROWS = 1100
_QUICK_PRODUCTS = 2**31
_AFFORDABLE_PRODUCTS = 2**34


class ModelRun:
    """Runs a module again and again; after each run it holds what it held when it was first run here."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    @functools.cached_property
    def _before(self) -> Snapshot:
        return snapshot_of(self._model)

    @functools.cached_property
    def _weights(self) -> int:
        return sum(weight.numel() for weight in self._model.parameters())

    @functools.cached_property
    def _buffers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(buffer, buffer.detach().clone()) for buffer in self._model.buffers()]

    def is_possible(self) -> bool:
        """Whether the module has data to run with."""
        tensors = [*self._model.parameters(), *self._model.buffers()]
        return not any(tensor.is_meta or is_fake(tensor) for tensor in tensors)

    def refuses(self, call: CallInputs, known: CallInputs) -> bool:
        """Whether the module does not take a call; `known` is one that it takes."""
        if self.is_quick(call) or self.error_without_data(known) is not None:
            return self.outputs(call) is None
        return self.error_without_data(call) is not None

    def outputs(self, call: CallInputs) -> list[Any] | None:
        """The leaves of what the module returns; None if it refuses the call."""
        try:
            with self.kept():
                own = call.copied()
                return pytree.tree_leaves(self._model(*own.args, **own.kwargs))
        except (*REFUSALS, ArithmeticError) as error:
            logger.debug("the model raises %s: %s", type(error).__name__, error)
            return None

    def error_without_data(self, call: CallInputs) -> Exception | None:
        """What the module raises for fake tensors of the sizes of the call."""
        # Not at the top: it takes long to import, and whoever exports has it by now.
        from torch._subclasses.fake_tensor import FakeTensorMode

        mode = FakeTensorMode(allow_non_fake_inputs=True)
        try:
            with _torch_silent(), self.kept(), mode:
                args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (call.args, dict(call.kwargs)))
                self._model(*args, **kwargs)
        except Exception as error:  # the model's refusal, or that of fake tensors to tell their data
            return error
        return None

    def is_quick(self, call: CallInputs) -> bool:
        """Whether to run it takes less time than to run it without its data, which is some 0.1 ms an operator."""
        rows, products = self._work(call)
        return rows <= _QUICK_ROWS and products <= _QUICK_PRODUCTS

    def is_affordable(self, call: CallInputs) -> bool:
        """Whether it can be run, though it may take longer than without its data."""
        return self._work(call)[1] <= _AFFORDABLE_PRODUCTS

    def _work(self, call: CallInputs) -> tuple[int, int]:
        """The rows of the longest input, and how often a weight is multiplied: about each of them with each row."""
        leaves = [leaf for leaf in call.leaves() if isinstance(leaf, torch.Tensor)]
        rows = max((leaf.numel() // (_width(leaf) or 1) for leaf in leaves), default=1)
        return rows, rows * self._weights

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Runs a block that calls the module; the module and the random numbers are then as before."""
        before, buffers = self._before, self._buffers
        try:
            with same_random_numbers():
                yield
        finally:
            before.restore(before.changes())
            with torch.no_grad():
                for buffer, content in buffers:
                    if not is_fake(buffer):
                        buffer.copy_(content)


@contextlib.contextmanager
def same_random_numbers() -> Iterator[None]:
    """Runs a block without gradients and with the random numbers of every other one; those outside go on as before."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data, but belongs to a trace."""
    return hasattr(tensor, "fake_mode")


def _width(leaf: torch.Tensor) -> int:
    return leaf.shape[-1] if leaf.is_floating_point() and leaf.dim() > 0 else 1


@contextlib.contextmanager
def _torch_silent() -> Iterator[None]:
    """Without torch's log of a fake tensor that an operator refuses: here that is an answer."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before
