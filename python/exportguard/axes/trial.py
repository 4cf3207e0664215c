"""The model and its program, run at sizes at which the program may be wrong."""

from __future__ import annotations

import contextlib
import enum
import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from exportguard.errors import REFUSALS
from exportguard.inputs import CallInputs
from exportguard.rewrites.state import Snapshot

from .expressions import Sizes
from .program_run import GraphWithCutTables, ProgramRun, copied
from .resizing import InputsOfOtherSizes

logger = logging.getLogger(__name__)

# A model is run in full for no more than this many rows of inputs (attention compares each with each) and products with
# weights, which take some 0.1 s; and for no more than these products, which take a second, if it has to be.
_QUICK_ROWS = 1100
_QUICK_PRODUCTS = 2**31
_AFFORDABLE_PRODUCTS = 2**34

# What a result may differ by where both sides do the same arithmetic, in parts of the largest value: epsilons of it.
_EPSILONS = 256


class Outcome(enum.Enum):
    """What a trial shows."""

    REFUSED = "the model refuses these sizes"
    AGREES = "the program does what the model does"
    REPEATS = "the model takes one entry of a table for all, where it has no more of them, and so does the program"
    DIFFERS = "the program does something else than the model"
    UNKNOWN = "it could not be tried"


class Trial:
    """Runs a model as it is, without patches, beside the program that was made of it.

    What was found out at one point is remembered: guards share their trials.
    """

    def __init__(self, model: torch.nn.Module, call: CallInputs, program: ExportedProgram) -> None:
        """`call` is what was exported."""
        self._model, self._run_program = model, ProgramRun(program)
        self._inputs = InputsOfOtherSizes(program, call)
        self._call = call
        self._works_without_data: bool | None = None
        self._is_possible = not any(one.is_meta or is_fake(one) for one in _tensors_of(model))
        self._points: dict[Any, _Point] = {}

    @functools.cached_property
    def _state(self) -> _State:
        return _State(self._model)

    def refuses(self, sizes: Sizes) -> bool | None:
        """Whether the model itself does not take inputs of these sizes; None if that cannot be told.

        Where that is much to compute it is run without its data, if it can be, which takes the same time whatever the
        sizes.
        """
        point = self._at(sizes)
        if point.call is None:
            return None
        if point.refused is None:
            point.refused = self._refused(point)
            logger.debug("the model at %s: %s", sizes, "refuses" if point.refused else "runs")
        return point.refused

    def outcome(self, sizes: Sizes) -> Outcome:
        """Whether model and program do the same at these sizes."""
        point = self._at(sizes)
        if point.call is None:
            return Outcome.UNKNOWN
        if point.outcome is None:
            point.outcome = self._compared(point.call, sizes, self._expected(point))
            point.expected = None
        return point.outcome

    def outcome_of(self, call: CallInputs, sizes: Sizes) -> Outcome:
        """Whether model and program do the same for a call, which has these sizes."""
        return self._compared(call, sizes, _outputs(self._model, call, self._state))

    def _at(self, sizes: Sizes) -> _Point:
        key = tuple(sorted((str(symbol), size) for symbol, size in sizes.items()))
        if key not in self._points:
            self._points[key] = _Point(self._inputs(sizes) if self._is_possible else None)
        return self._points[key]

    def _refused(self, point: _Point) -> bool:
        assert point.call is not None
        if _is_quick(self._model, point.call) or self._works_without_data is False:
            return self._expected(point) is None
        if self._error_without_data(point.call) is None:
            self._works_without_data = True
            return False

        # It may be fake tensors that are refused, and not their sizes. Models refuse sizes soon, so with its data it
        # does not take long either; if that could be much to compute, fake tensors of the example tell.
        if self._works_without_data is None and _is_affordable(self._model, point.call):
            self._works_without_data = None if self._expected(point) is None else False
            return self._works_without_data is None
        if self._works_without_data is None:
            self._works_without_data = self._error_without_data(self._call) is None
        return self._works_without_data or self._expected(point) is None

    def _error_without_data(self, call: CallInputs) -> Exception | None:
        return _error_without_data(self._model, call, self._state)

    def _expected(self, point: _Point) -> list[Any] | None:
        """What the model returns; None if it refuses."""
        if point.refused is None or (not point.refused and point.expected is None):
            assert point.call is not None
            point.expected = _outputs(self._model, point.call, self._state)
            point.refused = point.expected is None
        return point.expected

    def _compared(self, call: CallInputs, sizes: Sizes, expected: list[Any] | None) -> Outcome:
        if expected is None:
            return Outcome.REFUSED
        try:
            with _same_random_numbers():
                got = self._run_program(call, sizes)
        except Exception as error:  # whatever an operator raises for shapes that do not go together
            logger.debug("the program at %s: %s", sizes, error)
            return Outcome.REPEATS if self._repeats(call, sizes, expected) else Outcome.DIFFERS
        return Outcome.AGREES if agree(expected, got) else Outcome.DIFFERS

    def _repeats(self, call: CallInputs, sizes: Sizes, expected: Sequence[Any]) -> bool:
        """Whether the program does the same as long as what was cut to one entry may be repeated for all.

        A slice of a table that ends beyond it has fewer entries than were asked for. All models refuse that but for a
        single entry, which is broadcast.
        """
        try:
            with _same_random_numbers():
                got = self._run_program(call, sizes, GraphWithCutTables)
        except Exception as error:  # as above
            logger.debug("the program at %s, with a table cut to one entry: %s", sizes, error)
            return False
        return agree(expected, got)


@dataclass
class _Point:
    """Inputs of some sizes, None if there are none; and what is known of them, None if it is not known yet."""

    call: CallInputs | None
    refused: bool | None = None
    expected: list[Any] | None = None
    outcome: Outcome | None = None


def refuses(model: torch.nn.Module, call: CallInputs, known: CallInputs) -> bool:
    """Whether the model does not take a call; `known` is one that it takes."""
    state = _State(model)
    if _is_quick(model, call) or _error_without_data(model, known, state) is not None:
        return _outputs(model, call, state) is None
    return _error_without_data(model, call, state) is not None


def _outputs(model: torch.nn.Module, call: CallInputs, state: _State) -> list[Any] | None:
    """The leaves of what the model returns; None if it refuses the call."""
    try:
        with state.kept():
            return pytree.tree_leaves(model(*copied(call.args), **copied(dict(call.kwargs))))
    except (*REFUSALS, ArithmeticError) as error:
        logger.debug("the model raises %s: %s", type(error).__name__, error)
        return None


def _is_quick(model: torch.nn.Module, call: CallInputs) -> bool:
    """Whether to run the model takes less time than to run it without its data, which is some 0.1 ms an operator."""
    rows, products = _work(model, call)
    return rows <= _QUICK_ROWS and products <= _QUICK_PRODUCTS


def _is_affordable(model: torch.nn.Module, call: CallInputs) -> bool:
    """Whether the model can be run, though it may take longer than without its data."""
    return _work(model, call)[1] <= _AFFORDABLE_PRODUCTS


def _work(model: torch.nn.Module, call: CallInputs) -> tuple[int, int]:
    """The rows of the longest input, and how often a weight is multiplied: about each of them with each row."""
    leaves = [leaf for leaf in pytree.tree_leaves((call.args, dict(call.kwargs))) if isinstance(leaf, torch.Tensor)]
    rows = max((leaf.numel() // (_width(leaf) or 1) for leaf in leaves), default=1)
    weights = sum(one.numel() for one in model.parameters())
    return rows, rows * weights


def _width(leaf: torch.Tensor) -> int:
    return leaf.shape[-1] if leaf.is_floating_point() and leaf.dim() > 0 else 1


def _error_without_data(model: torch.nn.Module, call: CallInputs, state: _State) -> Exception | None:
    """What the model raises for fake tensors of the sizes of the call."""
    # Not at the top: it takes long to import, and whoever exports has it by now.
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _torch_silent(), state.kept(), mode:
            args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (call.args, dict(call.kwargs)))
            model(*args, **kwargs)
    except Exception as error:  # the model's refusal, or that of fake tensors to tell their data
        return error
    return None


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


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Runs a block without gradients and with the random numbers of every other one; those outside go on as before."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


class _State:
    """What a model holds: its attributes and its buffers."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._snapshot = Snapshot(model.modules())
        self._buffers = [(one, one.detach().clone()) for one in model.buffers()]

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Runs a block that calls the model; the model and the random numbers are then as before."""
        try:
            with _same_random_numbers():
                yield
        finally:
            self._snapshot.restore(self._snapshot.changes())
            with torch.no_grad():
                for buffer, before in self._buffers:
                    if not is_fake(buffer):
                        buffer.copy_(before)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data, but belongs to a trace."""
    return hasattr(tensor, "fake_mode")


def _tensors_of(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def agree(expected: Sequence[Any], got: Sequence[Any]) -> bool:
    """Whether two lists of outputs are the same but for the rounding of sums."""
    if len(expected) != len(got):
        return False
    return all(_same(one, other) for one, other in zip(expected, got, strict=True))


def _same(expected: Any, got: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        return (
            bool(expected == got) if not isinstance(expected, torch.Tensor | float) else _close_numbers(expected, got)
        )
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return False
    if torch.equal(expected, got):
        return True
    if not expected.is_floating_point() and not expected.is_complex():
        return False
    finite = expected[torch.isfinite(expected)]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    bound = _EPSILONS * torch.finfo(expected.dtype).eps * largest
    return torch.allclose(expected, got, rtol=0.0, atol=bound, equal_nan=True)


def _close_numbers(expected: Any, got: Any) -> bool:
    return abs(float(expected) - float(got)) <= 1e-6 * abs(float(expected))
