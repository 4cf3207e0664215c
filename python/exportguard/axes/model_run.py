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


class KeptModule:
    """A module that is called again and again; after each call it holds what it held before the first."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    @functools.cached_property
    def _before(self) -> Snapshot:
        return snapshot_of(self.module)

    @functools.cached_property
    def _buffers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(buffer, buffer.detach().clone()) for buffer in self.module.buffers()]

    @contextlib.contextmanager
    def call(self) -> Iterator[torch.nn.Module]:
        """Runs a block that calls the module; the module and the random numbers are then as before."""
        buffers, before = self._buffers, self._before
        try:
            with same_random_numbers():
                yield self.module
        finally:
            before.restore(before.changes())
            with torch.no_grad():
                for buffer, content in buffers:
                    if not is_fake(buffer):
                        buffer.copy_(content)


class ModelRun:
    """A module, called at one size after the other."""

    def __init__(self, model: torch.nn.Module, known: CallInputs) -> None:
        """`known` is a call that the module takes."""
        self._kept, self._known = KeptModule(model), known
        self._works_without_data: bool | None = None

    def is_possible(self) -> bool:
        """Whether the module has data to run with."""
        model = self._kept.module
        return not any(tensor.is_meta or is_fake(tensor) for tensor in (*model.parameters(), *model.buffers()))

    def of(self, call: CallInputs) -> TriedCall:
        """Another call of the module."""
        return TriedCall(self, call)

    @functools.cached_property
    def weights(self) -> int:
        """How many numbers the module multiplies with."""
        return sum(weight.numel() for weight in self._kept.module.parameters())

    @functools.cached_property
    def known_outputs(self) -> list[Any]:
        """What the module returns for the call that it takes; nothing if it does not take it after all."""
        return self.outputs(self._known) or []

    def outputs(self, call: CallInputs) -> list[Any] | None:
        """The leaves of what the module returns; None if it refuses the call."""
        try:
            with self._kept.call() as model:
                own = call.copied()
                return pytree.tree_leaves(model(*own.args, **own.kwargs))
        except (*REFUSALS, ArithmeticError) as error:
            logger.debug("the model raises %s: %s", type(error).__name__, error)
            return None

    def refuses_without_data(self, tried: TriedCall) -> bool | None:
        """Whether the module refuses fake tensors of the sizes of a call; None if that says nothing about the sizes.

        It may be fake tensors that are refused. Models refuse sizes soon, so with its data it does not take long
        either; if that could be much to compute, fake tensors of the known call tell.
        """
        if self._works_without_data is False:
            return None
        if self._runs_without_data(tried.inputs):
            self._works_without_data = True
            return False
        if self._works_without_data is None and tried.is_affordable():
            if tried.outputs() is not None:
                self._works_without_data = False
            return tried.outputs() is None
        if self._works_without_data is None:
            self._works_without_data = self._runs_without_data(self._known)
        return True if self._works_without_data else None

    def _runs_without_data(self, call: CallInputs) -> bool:
        # Not at the top: it takes long to import, and whoever exports has it by now.
        from torch._subclasses.fake_tensor import FakeTensorMode

        mode = FakeTensorMode(allow_non_fake_inputs=True)
        try:
            with _torch_silent(), self._kept.call() as model, mode:
                args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (call.args, dict(call.kwargs)))
                model(*args, **kwargs)
        except Exception as error:  # the model's refusal, or that of fake tensors to tell their data
            logger.debug("without data the model raises %s: %s", type(error).__name__, error)
            return False
        return True


class TriedCall:
    """A call of a module: whether it is refused, and what it returns. Both are found out when they are first asked."""

    def __init__(self, run: ModelRun, inputs: CallInputs) -> None:
        self.inputs, self._run = inputs, run
        self._refused: bool | None = None
        self._outputs: list[Any] | None = None

    def refused(self) -> bool:
        """Whether the module does not take the call.

        Where that is much to compute it is run without its data, if it can be, which takes the same time whatever the
        sizes.
        """
        if self._refused is None and not self.is_quick():
            self._refused = self._run.refuses_without_data(self)
        return self.outputs() is None if self._refused is None else self._refused

    def outputs(self) -> list[Any] | None:
        """The leaves of what the module returns; None if it refuses."""
        if not self._refused and self._outputs is None:
            self._outputs = self._run.outputs(self.inputs)
            self._refused = self._outputs is None
        return self._outputs

    def forget_outputs(self) -> None:
        """They are computed again if somebody asks for them."""
        self._outputs = None

    def is_quick(self) -> bool:
        """Whether to run it takes less time than to run it without its data, which is some 0.1 ms an operator."""
        rows, products = self._work()
        return rows <= _QUICK_ROWS and products <= _QUICK_PRODUCTS

    def is_affordable(self) -> bool:
        """Whether it can be run, though it may take longer than without its data."""
        return self._work()[1] <= _AFFORDABLE_PRODUCTS

    def _work(self) -> tuple[int, int]:
        """The rows of the longest input, and how often a weight is multiplied: about each of them with each row."""
        leaves = [leaf for leaf in self.inputs.leaves() if isinstance(leaf, torch.Tensor)]
        rows = max((leaf.numel() // (_width(leaf) or 1) for leaf in leaves), default=1)
        return rows, rows * self._run.weights


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
