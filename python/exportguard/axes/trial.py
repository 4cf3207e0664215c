"""The model and its program, run at sizes at which the program may be wrong."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import itertools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from exportguard.declaration.interrupts import DeferredInterrupts
from exportguard.devices import QUICK_PRODUCTS, same_random_numbers, threads_for
from exportguard.errors import REFUSALS
from exportguard.inputs import CallInputs
from exportguard.model_code import is_installed
from exportguard.rewrites.state import KeptModule, is_fake
from exportguard.rewrites.written import Before

from .bodies import Course, ManyStepsError
from .called_again import require_same_when_called_again
from .data_tests import data_tests
from .ending import Ending, EndlessError, Watched
from .examples import sizes_of_examples
from .expressions import Sizes
from .left_behind import Key, Places, Written, left_otherwise
from .resizing import InputsOfOtherSizes, is_of_reals, with_data_at_ends, with_masks, with_other_data
from .rounding import agree, difference, rank
from .traced_program import GraphWithCutTables, OtherShapeError, TracedProgram
from .vast import Room, numbers_of_entries

logger = logging.getLogger(__name__)

_LOOKS = 2  # with other data, at sizes that answer a test of the model otherwise
_OTHER_WEIGHTS = (100.0, 1e-3)
_FEW_WEIGHTS = 2**22  # which are copied in a few milliseconds
_BRIEF_STEPS = 4096  # of loops, which data may count: a few tenths of a second
_IN_A_ROW = 3  # calls of other sizes
_COURSES = 12  # of two programs through their branches
_FEW_CALLS = 512  # of operators, which take a few milliseconds

# A model is run in full for no more than this many rows of inputs (attention compares each with each) and products with
# weights, which take some 0.1 s; and for no more than these products, which take a second, if it has to be.
_QUICK_ROWS = 1100
_AFFORDABLE_PRODUCTS = 2**34


class ModelRun:
    """A module, called at one size after the other."""

    def __init__(self, model: torch.nn.Module, known: CallInputs) -> None:
        """`known` is a call that the module takes."""
        self._model, self.known = model, known
        self.structure: object = None  # of what the last call returned
        self.written: Written = {}  # what it left behind
        self._works_without_data: bool | None = None

    @functools.cached_property
    def _kept(self) -> KeptModule:
        return KeptModule(self._model)

    def is_possible(self) -> bool:
        """Whether the module has data to run with."""
        model = self._model
        return not any(tensor.is_meta or is_fake(tensor) for tensor in (*model.parameters(), *model.buffers()))

    def of(self, call: CallInputs, *, is_brief: bool = False) -> TriedCall:
        """Another call of the module; a brief one is refused where it goes through many lines."""
        return TriedCall(self, call, is_brief=is_brief)

    @functools.cached_property
    def is_own(self) -> bool:
        """Whether the class of the module is the user's, and not of an installed package."""
        file = getattr(sys.modules.get(type(self._model).__module__), "__file__", None)
        return file is None or not is_installed(file)

    @functools.cached_property
    def known_structure(self) -> object:
        """That of what the module returns for the call that it takes: its keys, and the lengths of its lists."""
        return self._known_call.structure if self._known_call.outputs() is not None else None

    @functools.cached_property
    def _known_call(self) -> TriedCall:
        return self.of(self.known)

    def takes(self, call: CallInputs) -> bool:
        """Whether the module runs with another call."""
        return not self.of(call).refused()

    def buffer(self, name: str) -> torch.Tensor | None:
        """What a buffer holds before any call; None if the module has none of this name."""
        return dict(self._model.named_buffers()).get(name)

    @functools.cached_property
    def weights(self) -> int:
        """How many numbers the module multiplies with."""
        return sum(weight.numel() for weight in self._model.parameters())

    @functools.cached_property
    def known_outputs(self) -> list[Any]:
        """What the module returns for the call that it takes; nothing if it does not take it after all."""
        return self._known_call.outputs() or []

    def result(self, call: CallInputs, *, is_brief: bool = False) -> tuple[list[Any] | None, bool]:
        """The leaves of what the module returns, None if it refuses the call, and whether it tests data on the way."""
        times = 0 if is_brief else self._times(call)
        with data_tests() as tests:
            try:
                return self._ending.ended(lambda watched: self._leaves(call, watched), times=times), bool(tests)
            except (*REFUSALS, ArithmeticError, EndlessError) as error:
                logger.debug("the model raises %s: %s", type(error).__name__, error)
                return None, bool(tests)

    @contextlib.contextmanager
    def weights_times(self, factor: float) -> Iterator[None]:
        """Runs a short block with other weights, if they are few; signals wait until they are as before."""
        is_few = 0 < self.weights <= _FEW_WEIGHTS
        named = self._model.parameters() if is_few else ()
        weights = [weight for weight in named if is_of_reals(weight) and not weight.is_inference()]
        before = [Before.of(weight) for weight in weights]
        with DeferredInterrupts():
            try:
                with torch.no_grad():
                    for weight in weights:
                        weight.mul_(factor)
                yield
            finally:
                for state in before:
                    state.restore()

    def require_same_when_called_again(self, others: Iterable[TriedCall] = ()) -> None:
        """Refuses a model that does something else when it is called again, where it takes no time to find out."""
        if self._kept.changed and self.is_possible() and self.of(self.known).is_quick():
            quick = (other.inputs for other in others if self.is_own and other.is_quick() and not other.refused())
            require_same_when_called_again(self._kept, self.known, [*itertools.islice(quick, _IN_A_ROW)])

    def _leaves(self, call: CallInputs, watched: Watched) -> list[Any]:
        given = call.leaves()

        def was_written(key: Key, tensor: torch.Tensor) -> bool:
            return self._kept.has_written(tensor) if isinstance(key, str) else not agree([given[key]], [tensor])

        with self._kept.call() as model:
            own = call.copied()
            places = Places(dict(model.named_buffers()), own.leaves())
            leaves, self.structure = pytree.tree_flatten(watched(lambda: model(*own.args, **own.kwargs)))
            with data_tests():  # these are not the model's
                self.written = places.written(dict(model.named_buffers()), was_written)
            return [self._kept.left(leaf) for leaf in leaves]

    @functools.cached_property
    def _ending(self) -> Ending:
        """A model that does not end for a call refuses it, so to say."""
        return Ending(lambda watched: self._leaves(self.known, watched))

    def _times(self, call: CallInputs) -> float:
        """How many times the entries of the known call another one has."""
        return _entries(call) / max(_entries(self.known), 1)

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
            self._works_without_data = self._runs_without_data(self.known)
        return True if self._works_without_data else None

    def refuses_sizes(self, make: Callable[[], CallInputs | None]) -> bool:
        """Whether the module refuses inputs of sizes that are too large to be made: fake tensors of them, which `make`
        makes. It does not as far as is known if it takes no fake tensors at all."""
        if self._works_without_data is None:
            self._works_without_data = self._runs_without_data(self.known)
        return self._works_without_data and self._works(make) is False

    def _runs_without_data(self, call: CallInputs) -> bool:
        return bool(self._works(lambda: call))

    def _works(self, make: Callable[[], CallInputs | None]) -> bool | None:
        """Whether the module runs with fake tensors of a call; None if there is no call."""
        # Not at the top: it takes long to import, and whoever exports has it by now.
        from torch._subclasses.fake_tensor import FakeTensorMode

        def is_run(watched: Watched) -> bool | None:
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            with _torch_silent(), self._kept.call(has_data=False) as model, mode:
                call = make()
                if call is None:
                    return None
                args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (call.args, dict(call.kwargs)))
                watched(lambda: model(*args, **kwargs))
                return True

        try:
            return self._ending.ended(is_run)
        except (Exception, EndlessError) as error:  # the model's refusal, or that of fake tensors to tell their data
            logger.debug("without data the model raises %s: %s", type(error).__name__, error)
            return False


class TriedCall:
    """A call of a module: whether it is refused, and what it returns. Both are found out when they are first asked."""

    def __init__(self, run: ModelRun, inputs: CallInputs, *, is_brief: bool = False) -> None:
        self.inputs, self.is_brief, self._run = inputs, is_brief, run
        self._refused: bool | None = None
        self._outputs: list[Any] | None = None
        self._tests_data = False
        self.structure: object = None
        self.written: Written = {}

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
            with self.threads():
                self._outputs, self._tests_data = self._run.result(self.inputs, is_brief=self.is_brief)
                if self._outputs is None and self._tests_data and not self.is_brief:
                    self._take_other_data()
                self.structure, self.written = self._run.structure, self._run.written
            self._refused = self._outputs is None
        return self._outputs

    def _take_other_data(self) -> None:
        """What was refused may be the data, and not its sizes: an assertion on a sum is met by another one."""
        for inputs in with_other_data(self.inputs):
            outputs, _ = self._run.result(inputs)
            if outputs is not None:
                self.inputs, self._outputs = inputs, outputs
                return

    def tests_data(self) -> bool:
        """Whether the module was seen to test tensor data, so that it may do something else for other data."""
        return self._tests_data

    def forget_outputs(self) -> None:
        """They are computed again if somebody asks for them."""
        self._outputs = None

    def is_quick(self) -> bool:
        """Whether to run it takes less time than to run it without its data, which is some 0.1 ms an operator."""
        rows, products = self._work()
        return rows <= _QUICK_ROWS and products <= QUICK_PRODUCTS

    def is_affordable(self) -> bool:
        """Whether it can be run, though it may take longer than without its data."""
        return self._work()[1] <= _AFFORDABLE_PRODUCTS

    def threads(self) -> contextlib.AbstractContextManager[None]:
        """As many threads as are of use; the model and the program are to run with as many, for they sum alike."""
        return threads_for(self._work()[1])

    def _work(self) -> tuple[int, int]:
        """The rows of the longest input, and how often a weight is multiplied: about each of them with each row."""
        leaves = [leaf for leaf in self.inputs.leaves() if isinstance(leaf, torch.Tensor)]
        rows = max((leaf.numel() // (_width(leaf) or 1) for leaf in leaves), default=1)
        return rows, rows * self._run.weights


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

    def is_quick(self, sizes: Sizes) -> bool:
        """Whether the model is run at these sizes in no time."""
        call = self._at(sizes)
        return call is not None and call.is_quick()

    def is_affordable(self, sizes: Sizes) -> bool:
        """Whether the model can be run at these sizes, and takes no more than seconds."""
        call = self._at(sizes)
        return call is not None and call.is_affordable()

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
            if told_difference := difference(expected, got, self._program.computed_in):
                return told_difference
            place = self._left_otherwise(call)
            return f"it leaves something else in {place}" if place else ""
        except OtherShapeError as error:
            return str(error)
        except Exception as error:  # an operator that runs nowhere but in ONNX, a dtype that torch cannot compare
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
                expected = [*other.run(call, sizes[1], course=Course(_BRIEF_STEPS, ways)), *other.written.values()]
        except Exception as error:  # a shape that comes of ways which do not go together
            logger.debug("the other program at %s: %s", sizes[1], error)
            return True
        try:
            with same_random_numbers():
                got = self._program.run(call, sizes[0], course=Course(_BRIEF_STEPS, ways))
                got += self._program.written.values()
        except Exception as error:  # as above, but the other one runs
            logger.debug("the program at %s: %s", sizes[0], error)
            return isinstance(error, ManyStepsError)
        return agree(expected, got, self._program.computed_in)

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
            self._calls[key] = None if inputs is None else self._run.of(inputs)
        return self._calls[key]

    def _compared(self, call: TriedCall, sizes: Sizes, *, with_ends: bool = False) -> Outcome:
        """With other data as well where one of both tests it, or the model a size: they may agree for what it is."""
        outcome = self._compared_for_its_data(call, sizes)
        is_of_a_test = outcome == Outcome.AGREES and (with_ends or self._is_behind_another_test(call, sizes))
        self._with_ends |= {call} if is_of_a_test else set()
        is_chance = is_of_a_test or call.tests_data() or (self._program.branches and self._is_of_few_calls)
        if outcome != Outcome.AGREES or not is_chance:
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
        expected = call.outputs()
        if expected is None:
            return Outcome.REFUSED
        if self._run.is_own and self._run.known_structure not in (None, call.structure):
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
        is_same = agree(expected, got, self._program.computed_in) and not self._left_otherwise(call)
        return Outcome.AGREES if is_same else Outcome.DIFFERS

    def _left_otherwise(self, call: TriedCall) -> str:
        """The first input or buffer that the program leaves otherwise than the model, behind a call that both ran.

        What a model of an installed package keeps in buffers for itself is no result, if its program does not.
        """
        if not self._returns_written:
            return ""
        expected, got = call.written, self._program.written

        def before(key: Key) -> Any:
            return self._run.buffer(key) if isinstance(key, str) else call.inputs.leaves()[key]

        keys = [key for key in {**expected, **got} if self._run.is_own or isinstance(key, int) or key in got]
        return left_otherwise(expected, got, before, keys)

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


def _entries(call: CallInputs) -> int:
    return sum(leaf.numel() for leaf in call.leaves() if isinstance(leaf, torch.Tensor))


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


def _key(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(symbol), size) for symbol, size in sizes.items()))
