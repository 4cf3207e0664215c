"""The model and its program, run at sizes at which the program may be wrong."""

from __future__ import annotations

import enum
import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from exportguard.inputs import CallInputs
from exportguard.signature import traced_inputs

from .expressions import Sizes
from .model_run import ModelRun, TriedCall, same_random_numbers
from .program_run import GraphWithCutTables, ProgramRun
from .resizing import InputsOfOtherSizes, with_masks
from .rounding import coarser, coarsest_dtypes
from .vast import numbers_of_entries

logger = logging.getLogger(__name__)

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
        """`call` is what was exported, `inputs` then what became of it."""
        self._run, self._call, self._program = ModelRun(model, call), call, program
        self.inputs = traced_inputs(program)
        self._calls: dict[Any, TriedCall | None] = {}
        self._outcomes: dict[TriedCall, Outcome] = {}

    @functools.cached_property
    def _run_program(self) -> ProgramRun:
        return ProgramRun(self._program)

    @functools.cached_property
    def _computed_in(self) -> list[torch.dtype | None]:
        return coarsest_dtypes(self._program)

    @functools.cached_property
    def _others(self) -> InputsOfOtherSizes | None:
        return InputsOfOtherSizes(self.inputs, self._call) if self._run.is_possible() else None

    def refuses(self, sizes: Sizes) -> bool | None:
        """Whether the model itself does not take inputs of these sizes; None if that cannot be told."""
        call = self._at(sizes)
        refused = None if call is None else call.refused()
        logger.debug("the model at %s: %s", sizes, {None: "unknown", True: "refuses", False: "runs"}[refused])
        return refused

    @functools.cached_property
    def numbers_of_entries(self) -> frozenset[sympy.Expr]:
        """How many entries the tensors of the program have, for those that depend on the sizes of its inputs."""
        return numbers_of_entries(self._program)

    def has_other_ranks(self, sizes: Sizes) -> bool:
        """Whether what the model returns at these sizes has other ranks than the traced values, or another number."""
        call = self._at(sizes)
        values = None if call is None else call.outputs()
        return values is not None and [*map(_rank, values)] != [*map(_rank, self._run.known_outputs)]

    def is_quick(self, sizes: Sizes) -> bool:
        """Whether the model is run at these sizes in no time."""
        call = self._at(sizes)
        return call is not None and call.is_quick()

    def is_affordable(self, sizes: Sizes) -> bool:
        """Whether the model can be run at these sizes, and takes no more than seconds."""
        call = self._at(sizes)
        return call is not None and call.is_affordable()

    def outcome(self, sizes: Sizes) -> Outcome:
        """Whether model and program do the same at these sizes."""
        call = self._at(sizes)
        if call is None:
            return Outcome.UNKNOWN
        if call not in self._outcomes:
            self._outcomes[call] = self._compared(call, sizes)
            call.forget_outputs()
        return self._outcomes[call]

    def outcomes_by_masks(self, sizes: Sizes) -> Iterator[Outcome]:
        """Whether they do the same at these sizes, and once more with masks that leave a token out."""
        yield self.outcome(sizes)
        call = self._at(sizes)
        if call is not None:
            yield self.outcome_of(with_masks(call.inputs), sizes)

    def outcome_of(self, call: CallInputs, sizes: Sizes) -> Outcome:
        """Whether model and program do the same for a call, which has these sizes."""
        return self._compared(self._run.of(call), sizes)

    def _at(self, sizes: Sizes) -> TriedCall | None:
        key = tuple(sorted((str(symbol), size) for symbol, size in sizes.items()))
        if key not in self._calls:
            inputs = self._others(sizes) if self._others is not None else None
            self._calls[key] = None if inputs is None else self._run.of(inputs)
        return self._calls[key]

    def _compared(self, call: TriedCall, sizes: Sizes) -> Outcome:
        expected = call.outputs()
        if expected is None:
            return Outcome.REFUSED
        try:
            with same_random_numbers():
                got = self._run_program(call.inputs, sizes)
        except Exception as error:  # whatever an operator raises for shapes that do not go together
            logger.debug("the program at %s: %s", sizes, error)
            return Outcome.REPEATS if self._repeats(call.inputs, sizes, expected) else Outcome.DIFFERS
        return Outcome.AGREES if agree(expected, got, self._computed_in) else Outcome.DIFFERS

    def _repeats(self, call: CallInputs, sizes: Sizes, expected: Sequence[Any]) -> bool:
        """Whether the program does the same as long as what was cut to one entry may be repeated for all.

        A slice of a table that ends beyond it has fewer entries than were asked for. All models refuse that but for a
        single entry, which is broadcast.
        """
        try:
            with same_random_numbers():
                got = self._run_program(call, sizes, GraphWithCutTables)
        except Exception as error:  # as above
            logger.debug("the program at %s, with a table cut to one entry: %s", sizes, error)
            return False
        return agree(expected, got, self._computed_in)


def _rank(value: object) -> int | None:
    return value.dim() if isinstance(value, torch.Tensor) else None


def agree(expected: Sequence[Any], got: Sequence[Any], computed_in: Sequence[torch.dtype | None] | None = None) -> bool:
    """Whether two lists of outputs are the same but for the rounding of sums in the dtypes they are computed in."""
    dtypes = [None] * len(expected) if computed_in is None else computed_in
    if not len(expected) == len(got) == len(dtypes):
        return False
    return all(_same(one, other, dtype) for one, other, dtype in zip(expected, got, dtypes, strict=True))


def _same(expected: object, got: object, computed_in: torch.dtype | None) -> bool:
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
    bound = _EPSILONS * torch.finfo(coarser(expected.dtype, computed_in) or expected.dtype).eps * largest
    return torch.allclose(expected, got, rtol=0.0, atol=bound, equal_nan=True)


def _close_numbers(expected: Any, got: Any) -> bool:
    return abs(float(expected) - float(got)) <= 1e-6 * abs(float(expected))
