"""What program and model do at sizes of 1, which torch takes for others than all larger ones.

What the model itself asks of its sizes is looked at once more there: where the answer is another one, both are
compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import sympy

from .bound import AxisBound, Kind, as_at_least_two
from .expressions import Sizes
from .implication import decide
from .points import cell_of, input_symbols, points_within, spread, takes_others, wrong_beside
from .recording import Decision
from .refused_ways import is_raised_at
from .trace import (
    Trace,
    decided_differently,
    domain_from_one,
    first_decided_differently,
    meets,
    with_relations,
    within_known,
)
from .trial import Outcome

logger = logging.getLogger(__name__)


def bounds_at_one(trace: Trace) -> list[AxisBound]:
    """The axes that program and model treat differently at a size of 1."""
    free = [symbol for symbol in trace.free_symbols() if trace.may_be(symbol, 1)]
    tried, found = list[Sizes](), list[AxisBound]()
    for symbol in free:
        for sizes in _known_with(trace, symbol, 1):
            tried.append(sizes)
            if (bound := _bound_at(trace, sizes)) is not None:
                found.append(bound)
                trace.known += [bound.holds] if bound.holds is not None and bound.excludes_what_was_asked else []
    told = [bound.holds for bound in found if bound.holds is not None]  # where nothing else is found out
    for sizes in _points_with_ones(trace, free):
        if meets([*trace.known, *told], trace, sizes) and not _is_told_by(trace, tried, sizes):
            found += [bound] if (bound := _bound_at(trace, sizes)) is not None else []
            tried.append(sizes)
    return found


def _is_told_by(trace: Trace, tried: Sequence[Sizes], sizes: Sizes) -> bool:
    """Whether a trial of a long program would tell no more than one in which it agreed."""
    if trace.trial.may_try_many:
        return False
    agreed = {cell_of(trace, known) for known in tried if trace.trial.has_agreed(trace.all_sizes(known))}
    return cell_of(trace, sizes) in agreed


def _known_with(trace: Trace, symbol: sympy.Symbol, size: int) -> list[Sizes]:
    """Sizes within the bounds that are known, of which one is given: those of the example beside it, or a few others.

    A program for a part of all sizes may be wanted for none at which the other axes are those of its example.
    """
    sizes: Sizes = {symbol: size}
    if meets(trace.known, trace, sizes):
        return [sizes]
    return spread(points_within(trace, sizes))[:2]


def _points_with_ones(trace: Trace, free: Sequence[sympy.Symbol]) -> Iterator[Sizes]:
    """Sizes at which something that the model asks of several of them fails only since some are 1, for any of them."""
    for decision in trace.decisions:
        condition = trace.replaced(with_relations(trace, decision.condition))
        is_asked = decision.is_of_model or decision.is_of_slice
        if not is_asked or len(condition.free_symbols & {*free}) < 2:
            continue
        found = decide(within_known(trace, condition), domain_from_one(trace)).counterexamples
        ones = {frozenset(symbol for symbol in free if sizes.get(symbol) == 1): sizes for sizes in reversed(found)}
        yield from (sizes for symbols, sizes in ones.items() if symbols)


def bound_of_squeeze(trace: Trace, squeeze: Decision) -> AxisBound | None:
    """The bound that a squeeze is, where a single entry leads to outputs of another rank.

    What it leads to otherwise is looked at like every other question of the model.
    """
    condition = trace.replaced(with_relations(trace, squeeze.condition))
    found = decide(condition, domain_from_one(trace)).counterexamples
    points = [sizes for sizes in found if meets(trace.known, trace, sizes)]
    sizes = next((sizes for sizes in points if trace.trial.has_other_ranks(trace.all_sizes(sizes))), None)
    if sizes is None:
        return None
    trace.known.append(condition)
    bound = AxisBound(
        condition=trace.worded(as_at_least_two(condition)),
        symbols=input_symbols(trace, condition),
        kind=Kind.SQUEEZED,
        line=squeeze.line,
        sizes=trace.told(sizes),
        holds=condition,
    )
    logger.warning("%s", bound)
    return bound


def _bound_at(trace: Trace, sizes: Sizes) -> AxisBound | None:
    changed = first_decided_differently(trace, sizes)
    if changed is None:
        return _bound_of_operators_at(trace, sizes)
    outcome = trace.trial.outcome(trace.all_sizes(sizes))
    logger.debug("at %s, where %s is another one: %s", trace.told(sizes), changed.condition, outcome.value)
    if outcome == Outcome.REFUSED and not changed.is_test:
        return _bound_of_operators_at(trace, sizes)
    is_hidden = outcome == Outcome.AGREES and any(entry.is_hidden for entry in decided_differently(trace, sizes))
    if outcome == Outcome.AGREES and not is_hidden:
        wrong = wrong_beside(trace, sizes)
        if wrong is not None:
            changed, sizes, outcome = first_decided_differently(trace, wrong) or changed, wrong, Outcome.DIFFERS
    is_refused = outcome == Outcome.REFUSED and changed.is_test and _refuses_sizes(trace, changed)
    is_told = is_refused and not is_raised_at(trace, sizes)  # or else by `bounds_of_refused_ways`
    if not (outcome == Outcome.DIFFERS or is_hidden or is_told) or not trace.runs_as_traced():
        return None
    # What takes one entry and no other number of them, as its data counts them, broadcasts that one for all.
    is_broadcast = not takes_others(trace)
    is_single = len(sizes) == 1
    return AxisBound(
        condition=" and ".join(f"{trace.worded(symbol)} >= 2" for symbol in sizes)
        if is_single
        else trace.worded(changed.condition),
        symbols=frozenset(map(str, sizes)) if is_single else input_symbols(trace, changed.condition),
        kind=Kind.OWN if is_refused else Kind.SINGLE if is_broadcast else Kind.HIDDEN if is_hidden else Kind.WRONG,
        line=changed.line,
        sizes=trace.told(sizes),
        holds=_other_than_one(trace, *sizes) if is_single else trace.replaced(changed.condition),
        point=trace.by_name(sizes),
    )


def _refuses_sizes(trace: Trace, changed: Decision) -> bool:
    """Whether a refusal behind a test is one of the sizes, and not of integers that count what there is in the example.

    Decoders of packages test what has to go together with what their caches hold, of which a trial changes a part.
    """
    return not trace.example.has_indices() or (changed.is_own and takes_others(trace))


def _other_than_one(trace: Trace, symbol: sympy.Symbol) -> sympy.Basic:
    """The sizes for which a program is that does something else at 1; not 0, if a question has another answer there."""
    is_none_apart = next(decided_differently(trace, {symbol: 0}), None) is not None
    return sympy.Ge(symbol, 2) if is_none_apart else sympy.Ne(symbol, 1)


def _bound_of_operators_at(trace: Trace, sizes: Sizes) -> AxisBound | None:
    """The model's own bound where none of its own questions has another answer, but an operator refuses a size of 1.

    Windows of two entries do not fit on such an axis, and torch takes for granted that they do. It is tried where the
    model takes no time to run, and where none of its data may be the reason.
    """
    if len(sizes) != 1 or trace.example.has_indices() or not trace.trial.is_quick(trace.all_sizes(sizes)):
        return None
    if not trace.refuses_beside_any(sizes) or is_raised_at(trace, sizes) or not trace.runs_as_traced():
        return None
    return AxisBound(
        condition=" and ".join(f"{trace.worded(symbol)} >= 2" for symbol in sizes),
        symbols=frozenset(map(str, sizes)),
        kind=Kind.OWN,
        sizes=trace.told(sizes),
        holds=sympy.And(*(_other_than_one(trace, symbol) for symbol in sizes)),
    )
