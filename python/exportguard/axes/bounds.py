"""What a program takes for granted of the sizes of its inputs, beyond what was asked for.

Each guard of the trace is decided for all sizes that were asked for (see `implication`). One that does not hold for all
of them is tried at sizes that break it: the model may refuse these, so that the bound is its own; the program may do
what the model does all the same; or the axis is not what was asked for.

Torch traces with sizes from 2 up: program and model are compared at 1 as well (see `at_one`). So are they for a cache
without tokens, which every loop over a decoder begins with.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import sympy
import torch
from torch.export import ExportedProgram

from exportguard.example import Example
from exportguard.inputs import CallInputs

from .asked_ends import bounds_of_asked_ends
from .at_one import bound_of_squeeze, bounds_at_one
from .behind_handlers import bounds_behind_handlers
from .behind_tests import AskedWith, UntracedWay, untraced_ways
from .bound import AxisBound, Kind, upper_bound
from .data_tests import watched_for_data_tests
from .ending import watched_for_their_end
from .examples import are_telling, is_met
from .expressions import Range, Sizes, remembering
from .forms import FORMED, LOOPS, SQUEEZING, decisions_of_forms, questions_of_loops, require_no_squeezes_of_data
from .further_sizes import behind_refusals, beside_the_rest, beyond_windows, bounds_of_nothing_asked, multiples_beyond
from .implication import Answer, decide
from .less_work import with_less_work
from .model_run import ModelRun
from .none import bounds_at_none, bounds_of_empty_caches
from .other_numbers import sizes_of_other_numbers
from .points import Cell, cell_of, input_symbols, spread, takes_others, wrong_beside
from .recording import Decision, TraceRecord
from .refused_ways import bounds_of_refused_ways
from .regions import EVERYWHERE, Region, narrow
from .relations import sizes_apart, sizes_in_step
from .single_entries import answers_beside_one, with_others_of_its_line
from .solutions import sizes_where
from .trace import (
    Trace,
    asked_domain,
    decided_differently,
    domain_from_one,
    known_conditions,
    meets,
    with_relations,
    within_known,
)
from .traced_program import TracedProgram
from .trial import Outcome, Trial
from .vast import holds_for_tensors_in_memory

logger = logging.getLogger(__name__)

_BEYOND = 8  # sizes beyond the bounds that are known
_TRIALS, _ALIKE = 3, 2  # of one guard; of those, in a long program, where all questions have the same answers
_OPEN_BEYOND = (Kind.TESTED, Kind.INNER)  # bounds beyond which the program is to be right as well


@dataclass(frozen=True, kw_only=True)
class Claim:
    """That a program does what a model does, at all sizes that an example asks for and that lie `within` a region.

    `record` was written while the program was traced. `further` are more calls of the model, asked where inputs of
    other sizes cannot be made of the example. `is_for_branches` if tests on sizes are to become branches: programs of
    any length are then tried at as many sizes as short ones. `returns_written` if a file returns what the program
    leaves in inputs and buffers.
    """

    model: torch.nn.Module
    example: Example
    program: ExportedProgram
    record: TraceRecord
    further: Sequence[CallInputs] = ()
    within: Region = EVERYWHERE
    is_for_branches: bool = False
    asked_with: AskedWith | None = None
    returns_written: bool = True


@dataclass(frozen=True)
class Proof:
    """What a program takes for granted: all that torch decided about sizes, and the conditions nobody asked for.

    `difference` tells what the program does otherwise than the model at the sizes of the example itself, if it does.
    """

    decisions: Sequence[Decision]
    bounds: Sequence[AxisBound] = ()
    difference: str = ""


def prove(claim: Claim) -> Proof:
    """Every condition on the sizes of the inputs under which a program was traced and that was not asked for.

    Raises:
        ExportError: the program has one rank where the model has several, by its data, or the model does something
            else when it is called again.
    """
    program, example, record = TracedProgram(claim.program), claim.example, claim.record
    require_no_squeezes_of_data(program.calls_of(*SQUEEZING))
    traced = program.inputs
    decisions = [*record.of(traced.shape_env), *decisions_of_forms(program.calls_of(*FORMED))]
    run = ModelRun(claim.model, example.call)
    trial = Trial(run, program, is_thorough=claim.is_for_branches, returns_written=claim.returns_written)
    if traced.shape_env is None or not any(shape.axes for shape in example.shapes):
        difference = trial.difference_as_traced()
        trial.require_same_when_called_again()
        return Proof(decisions, difference=difference)
    loops = questions_of_loops(program.calls_of(*LOOPS), traced) if claim.is_for_branches else ()
    trace = Trace(trial, traced, example, decisions, claim.further, [*loops, *record.of_none], within=claim.within)
    with watched_for_data_tests(), watched_for_their_end(), remembering():
        bounds = [*_bounds(trace), *bounds_of_asked_ends(trace)]
        if not any(bound.excludes_what_was_asked for bound in bounds):
            bounds += bounds_behind_handlers(trace, program.nodes)
        difference = trial.difference_as_traced()
        trial.require_same_when_called_again()
    if claim.asked_with is not None:  # it opens a guard, which has to find torch's methods as they are
        bounds = _with_untraced_ways(trace, claim.asked_with, bounds)
    return Proof(decisions, _with_reason(run, [*bounds, *bounds_of_refused_ways(trace, bounds)]), difference)


def _with_reason(run: ModelRun, bounds: Sequence[AxisBound]) -> Sequence[AxisBound]:
    """The bounds with why nothing was tried, if the model cannot be run at all."""
    lacking = run.without_data()
    told = (
        f"as {lacking} has no data (it is on the meta device, or fake): load the weights before the model is exported"
    )
    return [replace(bound, untried=told) for bound in bounds] if lacking else bounds


def _with_untraced_ways(trace: Trace, asked_with: AskedWith, bounds: Sequence[AxisBound]) -> list[AxisBound]:
    """The bounds, those wrong after all that were tried at sizes of some ways alone that the model may go."""
    trace.known += [bound.holds for bound in bounds if bound.holds is not None and bound.kind not in _OPEN_BEYOND]
    found = [_bound_of_way(trace, way) for way in untraced_ways(trace, asked_with, domain_from_one(trace))]
    conditions = {bound.holds for bound in found}
    return [*(bound for bound in bounds if bound.holds not in conditions), *found]


def _bound_of_way(trace: Trace, way: UntracedWay) -> AxisBound:
    return AxisBound(
        condition=trace.worded(way.test),
        symbols=input_symbols(trace, way.test),
        kind=Kind.WRONG,
        line=way.line,
        sizes=trace.told(way.sizes),
        at_most=upper_bound(way.test),
        holds=way.test,
        point=trace.by_name(way.sizes),
    )


def _bounds(trace: Trace) -> list[AxisBound]:
    trace.domain.update(asked_domain(trace.traced, trace.example.shapes))
    for condition in trace.assumed_as_asked:
        narrow(trace.domain, condition)
    squeezes = (decision for decision in trace.decisions if decision.is_of_squeeze)
    squeezed = [bound for decision in squeezes if (bound := bound_of_squeeze(trace, decision)) is not None]
    equalities, others = _guards(trace)
    found = [bound for guard in equalities if (bound := _bound_of_guard(trace, guard)) is not None]
    for condition in trace.assumed:
        narrow(trace.domain, condition)
    found += [bound for guard in others if (bound := _bound_of_guard(trace, guard)) is not None]
    found = [with_others_of_its_line(trace, bound) for bound in found]
    caches = bounds_of_empty_caches(trace)
    unasked = bounds_of_nothing_asked(trace) if not any(bound.excludes_what_was_asked for bound in found) else []
    return [*squeezed, *found, *bounds_at_one(trace), *caches, *bounds_at_none(trace), *unasked]


def _guards(trace: Trace) -> tuple[list[sympy.Basic], list[sympy.Basic]]:
    """The conditions that torch noted: those that say what a size is, and all others, simpler ones first."""
    conditions = dict.fromkeys(
        guard.expr for guard in trace.shape_env.guards if guard.expr.free_symbols <= {*trace.hints}
    )
    equalities = [condition for condition in conditions if trace.replaced(condition) == sympy.true]
    others = [condition for condition in conditions if condition not in equalities]
    return equalities, sorted(others, key=lambda entry: len(entry.free_symbols))


def _bound_of_guard(trace: Trace, guard: sympy.Basic) -> AxisBound | None:
    """The bound that a guard is; None if what was asked for implies it."""
    guard_as_asked = with_relations(trace, guard)
    if guard_as_asked == sympy.true:
        return None
    condition = trace.replaced(guard_as_asked)
    is_relation = condition == sympy.true
    if is_relation:
        condition = guard_as_asked
        if any(not trace.replaced(symbol).free_symbols for symbol in guard.free_symbols):
            return None  # a fixed axis, which the report has as such
    line = trace.lines.get(guard, "")
    if is_relation and line in trace.relations and guard not in trace.tests and not trace.trial.may_try_many:
        trace.relations[line].append(condition)  # one layer after the other compares its own sizes at this line
        return None
    assumed = trace.assumed_as_asked if is_relation else trace.assumed
    decision = decide(sympy.Or(condition, *map(sympy.Not, assumed)), trace.domain)
    if decision.answer == Answer.PROVED:
        return None
    points = [sizes for sizes in decision.counterexamples if meets(trace.known, trace, sizes)]
    if decision.answer == Answer.DISPROVED and not points and not decision.is_complete:
        points = list(_beyond_the_known(trace, condition))
    if decision.answer == Answer.DISPROVED and not points:
        return None  # the bounds that are known imply it
    kind: Kind | None
    if points and _is_broken_by_vast_tensors_alone(trace, condition):
        kind, sizes = Kind.VAST, points[0]
    else:
        kind, sizes = _tried(trace, sizes_apart(trace, guard, points[:_TRIALS]) if is_relation else spread(points))
        if kind == Kind.OWN:
            further = [*beyond_windows(trace, condition), *beside_the_rest(trace, condition, points)]
            further += multiples_beyond(trace, condition) if not is_relation else []
            taken = [point for point in further if trace.trial.refuses(trace.all_sizes(point)) is False]
            if not taken and guard in trace.tests:
                taken = behind_refusals(trace, [sympy.Not(condition)], points)
            kind, sizes = _tried(trace, taken) if taken else (kind, sizes)
    if kind == Kind.TESTED or (kind == Kind.OWN and not is_relation):
        wrong = _wrong_elsewhere(trace, guard, condition, kind)
        kind, sizes = (kind, sizes) if wrong is None else (Kind.WRONG, wrong)
    if kind == Kind.TESTED and guard in trace.hidden:
        kind = Kind.HIDDEN
    if kind is None:
        kind = _told_by_examples(trace, condition)
    if kind is None:
        kind = _of_untried(trace, guard, points, is_relation=is_relation)
    if isinstance(guard, sympy.Eq) and is_relation and kind == Kind.OWN and line:
        trace.relations.setdefault(line, [])
    bound = AxisBound(
        condition=trace.worded(condition, is_relation=is_relation),
        symbols=input_symbols(trace, guard),
        kind=kind,
        line=line,
        sizes=trace.told(sizes, of=guard if is_relation else None),
        at_most=upper_bound(condition),
        holds=condition,
        answers=answers_beside_one(trace, guard) if kind == Kind.OWN else {},
        point=trace.by_name(sizes),
    )
    if kind not in _OPEN_BEYOND:
        trace.known.append(condition)
        narrow(trace.domain, condition)
    return bound


def _is_broken_by_vast_tensors_alone(trace: Trace, condition: sympy.Basic) -> bool:
    def is_proved(comparison: sympy.Basic) -> bool:
        return decide(trace.replaced(comparison), trace.domain).answer == Answer.PROVED

    return holds_for_tensors_in_memory(condition, trace.trial.numbers_of_entries, is_proved)


def _of_untried(trace: Trace, guard: sympy.Basic, points: Sequence[Sizes], *, is_relation: bool) -> Kind:
    """What a condition is that breaks at some points, none of which could be tried.

    A size that torch takes for another is written in its place, so that no operator asks for it in the file. Who gives
    neither of them a name leaves it to the export which axes are of one size.
    """
    if not _is_asked_by_operators_alone(trace, guard, points):
        return Kind.OPEN
    if not is_relation:
        return Kind.INNER
    return Kind.ALIKE if isinstance(guard, sympy.Eq) and not trace.has_names(guard) else Kind.OPEN


def _corners(trace: Trace, condition: sympy.Basic) -> Iterator[Sizes]:
    """Sizes that break a condition on several, of each the least that does: behind it the model may ask for that."""
    symbols = sorted(condition.free_symbols & {*trace.free_symbols()}, key=str)
    for symbol in symbols if len(symbols) > 1 else ():
        least = trace.domain[symbol].low
        domain = {**trace.domain, symbol: Range(least, least)}
        found = decide(within_known(trace, condition), domain).counterexamples
        yield from ({symbol: least, **point} for point in found[:1])


def _wrong_elsewhere(trace: Trace, guard: sympy.Basic, condition: sympy.Basic, kind: Kind) -> Sizes | None:
    """Sizes that break a condition and at which the program is wrong, though at those that were tried it is right, or
    the model refuses them.
    """
    corners = _corners(trace, condition) if trace.trial.may_try_many and kind == Kind.TESTED else ()
    beside = itertools.chain(corners, sizes_in_step(trace, condition) if trace.trial.may_try_many else ())
    wrong = next((point for point in beside if trace.differs(point)), None)
    if wrong is not None or kind != Kind.TESTED:
        return wrong
    others = sizes_of_other_numbers(trace, condition, trace.at_hand.get(guard, ()))
    return next((point for point in others if trace.differs(point, for_seconds=True)), None)


def _beyond_the_known(trace: Trace, condition: sympy.Basic) -> Sequence[Sizes]:
    """Sizes that break a condition within the bounds that are known, looked for among more than those that are told."""
    return sizes_where([sympy.Not(condition), *known_conditions(trace)], trace.domain, _BEYOND)


def _tried(trace: Trace, points: Sequence[Sizes]) -> tuple[Kind | None, Sizes]:
    """Whose bound it is, and the sizes that show it; None if the model cannot be run at other sizes."""
    if not points:
        return None, {}
    answers = list(_answers(trace, points))
    known = [(sizes, refused) for sizes, refused in answers if refused is not None]
    if not known:
        return None, points[0]
    taken = [sizes for sizes, refused in known if not refused]
    if not taken:
        return (Kind.OWN if takes_others(trace) else None), known[0][0]
    outcomes: list[Outcome] = []
    for sizes in taken[:_TRIALS]:
        outcomes.append(trace.trial.outcome(trace.all_sizes(sizes)))
        if outcomes[-1] == Outcome.DIFFERS:
            return (Kind.WRONG if trace.runs_as_traced() else Kind.OPEN), sizes
    if Outcome.UNKNOWN in outcomes:
        return Kind.OPEN, taken[0]
    if Outcome.AGREES in outcomes:
        wrong = wrong_beside(trace, taken[outcomes.index(Outcome.AGREES)])
        return (Kind.TESTED, taken[0]) if wrong is None else (Kind.WRONG, wrong)
    refused = [sizes for sizes, is_refused in known if is_refused]
    if Outcome.REPEATS in outcomes and not refused:
        return Kind.OPEN, taken[0]
    return Kind.OWN, (refused or taken)[0]


def _is_asked_by_operators_alone(trace: Trace, guard: sympy.Basic, points: Sequence[Sizes]) -> bool:
    """Whether the model's own code does the same at sizes that break a guard which it did not ask for itself.

    The program then has the operators that the model would call there, and each asks for itself, when the file runs,
    whether the sizes that it gets go together, or one of them is 1 and broadcast.
    """
    asked = [decision.condition for decision in trace.decisions if decision.is_of_model]
    return guard not in asked and not any(any(decided_differently(trace, sizes)) for sizes in points)


def _answers(trace: Trace, points: Sequence[Sizes]) -> Iterator[tuple[Sizes, bool | None]]:
    """Whether the model refuses each size, until it has taken as many as are tried.

    Two that give all questions the same answers, a small and a larger one, tell of a long program what a third would.
    So do as many refused ones as are tried of those that are taken: the model comes to the same questions on its way to
    where it stops.
    """
    taken, stopped = list[Cell](), list[Cell]()
    for point in points:
        cell = cell_of(trace, point)
        is_told = taken.count(cell) == _ALIKE or stopped.count(cell) == _TRIALS
        if is_told and not trace.trial.may_try_many:
            continue
        sizes = with_less_work(trace, point, cell_of)
        refused = trace.trial.refuses(trace.all_sizes(sizes))
        yield sizes, refused
        if refused is not None:
            (stopped if refused else taken).append(cell)
        if len(taken) == _TRIALS:
            return


def _told_by_examples(trace: Trace, condition: sympy.Basic) -> Kind | None:
    """What the examples that were given say of a condition that cannot be tried at sizes of our own, if they do."""
    known = [(call, sizes) for call, sizes in trace.examples if condition.free_symbols <= sizes.keys()]
    all_sizes = [sizes for _, sizes in known]
    if not are_telling(condition, all_sizes):
        return None
    answers = is_met(condition, all_sizes)
    others = [entry for entry, answer in zip(known, answers, strict=True) if answer is not True]
    outcomes = {trace.trial.outcome_of(call, sizes) for call, sizes in others}
    if Outcome.DIFFERS in outcomes:
        return Kind.WRONG if trace.runs_as_traced() else Kind.OPEN
    return Kind.TESTED if Outcome.AGREES in outcomes else Kind.MET
