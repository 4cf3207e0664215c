"""The model and its program, run at sizes at which the program may be wrong."""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from exportguard.devices import QUICK_PRODUCTS, same_random_numbers
from exportguard.inputs import CallInputs
from exportguard.lost_buffers import tell_lost

from .bodies import Course, ManyStepsError
from .bound import Answer
from .examples import sizes_of_examples
from .expressions import Sizes
from .left_behind import Key, Written, is_lost, left_otherwise
from .model_run import AFFORDABLE_PRODUCTS, ModelRun, TriedCall
from .resizing import InputsOfOtherSizes, with_data_at_ends, with_masks, with_other_data
from .rounding import agree, difference, rank
from .symbolic_sizes import Asked
from .traced_program import TracedProgram
from .true_shapes import GraphWithCutTables, OtherShapeError
from .vast import Room, numbers_of_entries
from .work import Work

logger = logging.getLogger(__name__)

_LOOKS = 2  # with other data, at sizes that answer a test of the model otherwise
_OTHER_WEIGHTS = (100.0, 1e-3)
_BRIEF_STEPS = 4096  # of loops, which data may count: a few tenths of a second
_COURSES = 12  # of two programs through their branches
_LARGER = (3, 5)  # of the changes of `with_other_data`: a hundred times as much, of either sign
_FEW_CALLS = 512  # of operators, which take a few milliseconds


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

    def __init__(
        self, run: ModelRun, program: TracedProgram, *, is_thorough: bool = False, returns_written: bool = True
    ) -> None:
        """The program was traced with the call that `run` knows. `returns_written` if a file returns what the program
        leaves in inputs and buffers."""
        self._run, self._program = run, program
        self._is_thorough, self._returns_written = is_thorough, returns_written
        #: The tests of the user's own code that have another answer at these sizes than in the trace.
        self.tests_at: Callable[[Sizes], Iterable[sympy.Basic]] = lambda sizes: ()
        #: Some of the numbers that the user's own code has where it tests sizes.
        self.numbers: Sequence[int] = ()
        self._with_ends: set[TriedCall] = set()
        self._looked_at: collections.Counter[sympy.Basic] = collections.Counter()
        self._calls: dict[Any, TriedCall | None] = {}
        self._sizes: dict[Any, Sizes] = {}
        self._ways: dict[Any, Asked | None] = {}
        self._outcomes: dict[TriedCall, Outcome] = {}
        self._refused_vast: dict[Any, bool] = {}

    @functools.cached_property
    def _others(self) -> InputsOfOtherSizes | None:
        return InputsOfOtherSizes(self._program.inputs, self._run.known) if self._run.is_possible() else None

    def refuses(self, sizes: Sizes) -> bool | None:
        """Whether the model itself does not take inputs of these sizes; None if that cannot be told."""
        call = self._at(sizes)
        refused = (self._refuses_vast(sizes) or None) if call is None else call.refused()
        logger.debug("the model at %s: %s", sizes, {None: "unknown", True: "refuses", False: "runs"}[refused])
        return refused

    @functools.cached_property
    def numbers_of_entries(self) -> frozenset[sympy.Expr]:
        """How many entries the tensors of the program have, for those that depend on the sizes of its inputs."""
        return numbers_of_entries(self._program.nodes)

    @functools.cached_property
    def _room(self) -> Room:
        return Room(self.numbers_of_entries)

    @functools.cached_property
    def _work(self) -> Work:
        return Work(self._program.nodes)

    def is_little_work(self, sizes: Sizes) -> bool:
        """Whether the program computes no more than seconds at these sizes."""
        return self._work.products(sizes) <= AFFORDABLE_PRODUCTS

    @property
    def is_of_own_module(self) -> bool:
        """Whether the class of the model is the user's own."""
        return self._run.is_own

    @functools.cached_property
    def may_try_many(self) -> bool:
        """Whether the program may be run at many sizes: that was asked for, or takes little time."""
        return self._is_thorough or self._is_of_few_calls

    @functools.cached_property
    def _is_of_few_calls(self) -> bool:
        return self._program.number_of_calls <= _FEW_CALLS

    def has_other_ranks(self, sizes: Sizes) -> bool:
        """Whether what the model returns at these sizes has other ranks than the traced values, or another number."""
        call = self._at(sizes)
        values = None if call is None else call.outputs()
        return values is not None and [*map(rank, values)] != [*map(rank, self._run.known_outputs)]

    def answers(self, sizes: Sizes, *, is_thorough: bool = False) -> Iterator[Answer]:
        """What the model returns at these sizes, and for larger numbers; nothing if it refuses them, or takes time."""
        call = self._at(sizes) if self.is_quick(sizes) else None
        if call is None or call.outputs() is None:
            return
        larger = itertools.islice(with_other_data(call.inputs), *_LARGER) if is_thorough else ()
        for one in (call, *map(self._run.of, larger)):
            outputs = one.outputs()
            if outputs is not None:
                yield Answer(one.inputs.leaves(), outputs)

    def is_quick(self, sizes: Sizes) -> bool:
        """Whether the model is run at these sizes in no time."""
        call = self._at(sizes)
        return call is not None and call.is_quick() and self.is_little_work(sizes)

    def is_affordable(self, sizes: Sizes) -> bool:
        """Whether the model can be run at these sizes, and takes no more than seconds."""
        call = self._at(sizes)
        return call is not None and call.is_affordable() and self.is_little_work(sizes)

    def outcome(self, sizes: Sizes, *, with_ends: bool = False) -> Outcome:
        """Whether model and program do the same at these sizes; `with_ends` for data at the ends in any case."""
        call = self._at(sizes)
        if call is None:
            return Outcome.REFUSED if self._refuses_vast(sizes) else Outcome.UNKNOWN
        is_open = with_ends and self._outcomes.get(call) == Outcome.AGREES and call not in self._with_ends
        if call not in self._outcomes or is_open:
            self._outcomes[call] = self._compared(call, sizes, with_ends=with_ends)
            call.forget_outputs()
        return self._outcomes[call]

    def asked_at(self, sizes: Sizes) -> Asked:
        """What the model asks of these sizes, in the symbols of the trace; nothing where that cannot be told."""
        call = self._at(sizes)
        return Asked() if call is None else self._run.asked(call.inputs, self._program.inputs.sizes)

    def way_at(self, sizes: Sizes) -> Asked | None:
        """What the model asks of these sizes alone, none of its data; None where that cannot be told: numbers among the
        inputs are asked as they are."""
        key, leaves = _key(sizes), self._program.inputs.leaves
        if key not in self._ways:
            has_numbers = any(isinstance(leaf, torch.SymInt | torch.SymFloat) for leaf in leaves)
            call = self._at(sizes) if not has_numbers else None
            asked = None if call is None else self._run.asked_of_sizes(call.inputs, self._program.inputs.sizes)
            self._ways[key] = None if asked is None or asked.is_cut_short else asked
        return self._ways[key]

    def refused_sizes(self) -> list[Sizes]:
        """Those that were tried and that the model refuses."""
        return [self._sizes[key] for key, call in self._calls.items() if call is not None and call.is_known_refused]

    def agreed_sizes(self) -> list[Sizes]:
        """Those at which the program was found to do what the model does."""
        agreed = {call for call, outcome in self._outcomes.items() if outcome == Outcome.AGREES}
        return [self._sizes[key] for key, call in self._calls.items() if call in agreed]

    def inputs_at(self, sizes: Sizes) -> CallInputs | None:
        """Inputs of these sizes; None if they would be too large, or the model has no data to run with."""
        call = self._at(sizes)
        return None if call is None else call.inputs

    def has_agreed(self, sizes: Sizes) -> bool:
        """Whether they were found to do the same at these sizes; nothing is run for the answer."""
        call = self._calls.get(_key(sizes))
        return call is not None and self._outcomes.get(call) == Outcome.AGREES

    def difference_as_traced(self) -> str:
        """What the program does otherwise than the model for the call that it was traced with.

        A trace keeps what tensors hold, not which objects they are: a test of that has one answer in it and another in
        the model, at every size. Nothing if that cannot be found out: the model has no data, refuses the call or takes
        long; or if they were found to do the same at any sizes, but for short programs of a user's own model.
        """
        is_looked_at = self._run.is_own and self._is_of_few_calls  # they may agree at other sizes alone
        if Outcome.AGREES in self._outcomes.values() and not is_looked_at:
            return ""
        call = self._run.of(self._run.known)
        expected = call.outputs() if self._run.is_possible() and call.is_affordable() else None
        if expected is None:
            return ""
        sizes = next((sizes for _, sizes in sizes_of_examples(self._program.inputs, [self._run.known])), {})
        try:
            with same_random_numbers(), call.threads():
                got = self._program.run(call.inputs, sizes)
        except OtherShapeError as error:
            return str(error)
        except NotImplementedError as error:  # an operator that runs nowhere but in ONNX
            logger.debug("as it was traced the program cannot be run: %s", error)
            return ""
        except Exception as error:  # whatever an operator raises for what it is given, and the model's does not
            return f"it stops: {_first_line(error)}"
        try:
            if told_difference := difference(expected, got, self._program.computed_in):
                return told_difference
            place = self._left_otherwise(call.written, call.inputs)
            return f"it leaves something else in {place}" if place else ""
        except Exception as error:  # a dtype that torch cannot compare
            logger.debug("as it was traced the program cannot be compared: %s", error)
            return ""

    def outcomes_by_masks(self, sizes: Sizes) -> Iterator[Outcome]:
        """Whether they do the same at these sizes, and once more with masks that leave a token out."""
        yield self.outcome(sizes)
        call = self._at(sizes)
        if call is not None:
            yield self.outcome_of(with_masks(call.inputs), sizes)

    def require_same_when_called_again(self) -> None:
        """Refuses a model that does something else when it is called again, at sizes that were tried among others."""
        self._run.require_same_when_called_again(call for call in self._calls.values() if call is not None)

    def outcome_of(self, call: CallInputs, sizes: Sizes) -> Outcome:
        """Whether model and program do the same for a call, which has these sizes."""
        return self._compared(self._run.of(call), sizes)

    def goes_as(self, other: TracedProgram, sizes: Sizes) -> bool:
        """Whether the program does what another one does, which was traced at these sizes, whichever way branches go.

        What a branch makes may be used in another alone, and few data lead into both.
        """
        call = self._at(sizes)
        own = None if call is None else next((own for _, own in sizes_of_examples(other.inputs, [call.inputs])), None)
        if call is None or own is None or not call.is_quick() or not (self._program.branches or other.branches):
            return True
        with call.threads():
            return all(self._goes_as(other, call.inputs, (sizes, own), ways) for ways in range(_COURSES))

    def _goes_as(self, other: TracedProgram, call: CallInputs, sizes: tuple[Sizes, Sizes], ways: int) -> bool:
        try:
            with same_random_numbers():
                expected = other.run(call, sizes[1], course=Course(_BRIEF_STEPS, ways))
        except Exception as error:  # a shape that comes of ways which do not go together
            logger.debug("the other program at %s: %s", sizes[1], error)
            return True
        try:
            with same_random_numbers():
                got = self._program.run(call, sizes[0], course=Course(_BRIEF_STEPS, ways))
        except Exception as error:  # as above, but the other one runs
            logger.debug("the program at %s: %s", sizes[0], error)
            return isinstance(error, ManyStepsError)
        is_same = agree(expected, got, self._program.computed_in)
        return is_same and not self._left_otherwise(other.written, call)

    def _refuses_vast(self, sizes: Sizes) -> bool:
        """Whether the model refuses inputs that are too large to be made, as a window refuses a second place."""
        others, key = self._others, _key(sizes)
        if key not in self._refused_vast:
            self._refused_vast[key] = others is not None and self._run.refuses_sizes(lambda: others.without_data(sizes))
        return self._refused_vast[key]

    def _at(self, sizes: Sizes) -> TriedCall | None:
        key = _key(sizes)
        if key not in self._calls:
            inputs = self._others(sizes) if self._others is not None and self._room.is_there(sizes) else None
            call = self._calls[key] = None if inputs is None else self._run.of(inputs)
            self._sizes[key] = dict(sizes)
            if call is not None:
                call.is_little = lambda: 0 < self._work.products(sizes) <= QUICK_PRODUCTS
        return self._calls[key]

    def _compared(self, call: TriedCall, sizes: Sizes, *, with_ends: bool = False) -> Outcome:
        """With other data as well where one of both tests it, or the model a size: they may agree for what it is."""
        outcome = self._compared_for_its_data(call, sizes)
        is_of_a_test = outcome == Outcome.AGREES and (with_ends or self._is_behind_another_test(call, sizes))
        self._with_ends |= {call} if is_of_a_test else set()
        is_chance = is_of_a_test or call.tests_data() or (self._program.branches and self._is_of_few_calls)
        if outcome not in (Outcome.AGREES, Outcome.REPEATS) or not is_chance:
            return outcome
        ends = with_data_at_ends(call.inputs, self.numbers) if is_of_a_test else ()
        inputs = itertools.chain(with_other_data(call.inputs), ends)
        # What takes up to a second is run with every fourth of them: a sign, two magnitudes, an infinite number.
        chosen = itertools.islice(inputs, 0, None, 1 if call.is_quick() else 4)
        others = (self._run.of(other, is_brief=True) for other in chosen)
        differs = any(self._compared_for_its_data(other, sizes) == Outcome.DIFFERS for other in others)
        differs = differs or (is_of_a_test and call.is_quick() and self._differs_for_other_weights(call, sizes))
        return Outcome.DIFFERS if differs else outcome

    def _differs_for_other_weights(self, call: TriedCall, sizes: Sizes) -> bool:
        """The same for larger and smaller weights: what a model of tokens computes has no other magnitude."""
        for factor in _OTHER_WEIGHTS:
            with self._run.weights_times(factor):
                if self._compared_for_its_data(self._run.of(call.inputs, is_brief=True), sizes) == Outcome.DIFFERS:
                    return True
        return False

    def _is_behind_another_test(self, call: TriedCall, sizes: Sizes) -> bool:
        """Whether a test of sizes has another answer there that was not looked at with other data more than once."""
        tests = [test for test in self.tests_at(sizes) if self._looked_at[test] < _LOOKS and call.is_affordable()]
        self._looked_at.update(tests)
        return bool(tests)

    def _compared_for_its_data(self, call: TriedCall, sizes: Sizes) -> Outcome:
        """With weights of low rank, where that is quicker; what is not the same with them is compared as it is."""
        known_structure = self._known_structure  # of a call with the module's own weights
        if call.is_of_many_products() and not self._program.branches:
            quick = self._run.of(call.inputs, is_brief=call.is_brief)
            with self._run.low_rank_weights:
                outcome = self._compared_as_it_is(quick, sizes, known_structure)
            if outcome == Outcome.AGREES:
                call.take_over(quick)
                return outcome
        return self._compared_as_it_is(call, sizes, known_structure)

    @functools.cached_property
    def _known_structure(self) -> object:
        """Of what a model of the user's own returned; None for others, which may return what they like."""
        return self._run.known_structure if self._run.is_own else None

    def _compared_as_it_is(self, call: TriedCall, sizes: Sizes, known_structure: object) -> Outcome:
        expected = call.outputs()
        if expected is None:
            return Outcome.REFUSED
        if known_structure not in (None, call.structure):
            return Outcome.DIFFERS
        try:
            with same_random_numbers(), call.threads():
                got = self._program.run(call.inputs, sizes, course=Course(_BRIEF_STEPS if call.is_brief else None))
        except ManyStepsError as error:
            logger.debug("the program at %s with other data: %s", sizes, error)
            return Outcome.UNKNOWN
        except Exception as error:  # whatever an operator raises for shapes that do not go together
            logger.debug("the program at %s: %s", sizes, error)
            if self._is_refused_with_masks(call):
                return Outcome.REFUSED
            return Outcome.REPEATS if self._repeats(call, sizes, expected) else Outcome.DIFFERS
        is_same = agree(expected, got, self._program.computed_in)
        is_same = is_same and not self._left_otherwise(call.written, call.inputs)
        return Outcome.AGREES if is_same else Outcome.DIFFERS

    def _left_otherwise(self, expected: Written, inputs: CallInputs) -> str:
        """The first input or buffer that the program left otherwise than is expected, behind a call of it.

        What a module of an installed package keeps in buffers for itself is no result, if its program does not.
        """
        if not self._returns_written:
            return ""
        got = self._program.written

        def before(key: Key) -> Any:
            return self._run.buffer(key) if isinstance(key, str) else inputs.leaves()[key]

        keys = {**expected, **got}
        compared = [key for key in keys if isinstance(key, int) or key in got or self._run.is_buffer_of_own(key)]
        lost = [key for key in compared if isinstance(key, str) and is_lost(before(key), expected.get(key))]
        for key in lost:
            tell_lost(key, before(key), expected[key])
        return left_otherwise(expected, got, before, [key for key in compared if key not in lost])

    def _is_refused_with_masks(self, call: TriedCall) -> bool:
        """Whether the model refuses the sizes as the program does, once a mask leaves a token out.

        Models pass over a mask of ones, whatever its sizes are.
        """
        masked = with_masks(call.inputs, least=1)
        is_other = any(one is not other for one, other in zip(masked.leaves(), call.inputs.leaves(), strict=True))
        return is_other and self._takes_masks and self._run.of(masked).refused()

    @functools.cached_property
    def _takes_masks(self) -> bool:
        """Whether it takes such a mask at the sizes that were traced, so that a refusal is one of the sizes."""
        return self._run.takes(with_masks(self._run.known, least=1))

    def _repeats(self, call: TriedCall, sizes: Sizes, expected: Sequence[Any]) -> bool:
        """Whether the program does the same as long as what was cut to one entry may be repeated for all.

        A slice of a table that ends beyond it has fewer entries than were asked for. All models refuse that but for a
        single entry, which is broadcast.
        """
        try:
            with same_random_numbers(), call.threads():
                got = self._program.run(call.inputs, sizes, GraphWithCutTables)
        except Exception as error:  # as above
            logger.debug("the program at %s, with a table cut to one entry: %s", sizes, error)
            return False
        return agree(expected, got, self._program.computed_in)


def does_as_the_model(program: ExportedProgram, model: torch.nn.Module, given: CallInputs) -> bool:
    """Whether a program does what its model does for a call of the user's own, which it was not traced with.

    Where that cannot be found out, because the model has no data or refuses the call, nothing speaks against it.
    """
    run, traced = ModelRun(model, given), TracedProgram(program)
    if not run.is_possible():
        return True
    trial = Trial(run, traced)
    outcomes = [trial.outcome_of(call, sizes) for call, sizes in sizes_of_examples(traced.inputs, [given])]
    return bool(outcomes) and Outcome.DIFFERS not in outcomes


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _key(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(symbol), size) for symbol, size in sizes.items()))
