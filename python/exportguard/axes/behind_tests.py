"""What a model asks behind a test on sizes that other sizes answer otherwise.

A program that does at one such size what the model does need not do so at the next: behind `if n > 4 or m == 37` there
are questions that were not asked while it was traced. The model is therefore traced once more at that size, for its
questions alone. Sizes at which it would answer one of them otherwise go another way; the program is tried there as
well, and so on, until every size that is drawn lies on a way that was gone through. On one way the model computes the
same expressions at all sizes, and so does the program on its own: they may agree at one point of it and not at another
where one of them has a step, as `n // 64` does. The numbers of the way's graph say where that may be.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import sympy
import torch
from sympy.core.relational import Relational
from torch.export import Dim
from torch.fx import Node
from torch.utils import _pytree as pytree

from exportguard.example import Example
from exportguard.inputs import CallInputs

from .expressions import Domain, Sizes
from .further_sizes import behind_refusals
from .implication import Answer, decide, sizes_to_try
from .recording import Decision
from .regions import places_of_symbols, sizes_of_places, symbol_of, without_small_axes
from .solutions import sizes_where, solutions
from .trace import Trace, meets, with_relations
from .traced_program import TracedProgram
from .trial import Outcome

logger = logging.getLogger(__name__)

_DRAWN = 300  # sizes, for the questions of one way
_OF_EACH = 12  # further ones, for each of them alone
_COMBINED = 2000  # of which these are chosen
_WAYS = 8  # that the model is traced on
_TRIALS = 48  # at sizes that lie on none of them
_SLOW = 4  # of these in a model of the user's own, where they take up to a second
_REFUSED = 3  # of them behind whose refusals such a model is followed
_OF_EACH_TEST = 2  # for those that are values
_FOLLOWED = 24  # questions of a way, each of which is answered otherwise behind all before it
_STEPS = 12  # sizes of one way at which its graph may have a step
_LARGEST = 130  # size that is tried, but for those that a question or a number leads to

#: What holds of the sizes at which a model goes one way, in the symbols of `regions`, with the line that asks for each.
Questions = Mapping[sympy.Basic, str]


class Asked(NamedTuple):
    """The questions of a model on one way, the tests that are values of its graph, the numbers there, those of sizes
    first, its program, if it could be traced, and the questions that an installed package asks for a single entry."""

    questions: Questions
    tests: Sequence[sympy.Basic]
    numbers: Sequence[int]
    program: TracedProgram | None = None
    of_one: Set[sympy.Basic] = frozenset()


#: What a model asks on its way with a call; None if it cannot be traced with it.
AskedWith = Callable[[CallInputs], Asked | None]


class UntracedWay(NamedTuple):
    """Sizes at which a program is wrong, and the test that they answer otherwise than in the trace, in its symbols."""

    test: sympy.Basic
    line: str
    sizes: Sizes


def example_for_questions(example: Example) -> Example:
    """The example, of whose axes torch makes constants without a word where the model asks for that."""
    shapes = [
        replace(shape, axes={axis: Dim.AUTO if isinstance(asked, str) else asked for axis, asked in shape.axes.items()})
        for shape in without_small_axes(example).shapes
    ]
    return replace(example, shapes=shapes)


def asked_of(program: TracedProgram, decisions: Sequence[Decision], example: Example) -> Asked:
    """What a model asks in one trace with an example, and what its program computes with."""
    traced = program.inputs
    places = places_of_symbols(traced, example)
    asked = [entry for entry in decisions if entry.is_test or entry.is_of_slice]
    found = {entry.condition.xreplace(places): entry.line for entry in asked}
    of_one = {entry.condition.xreplace(places) for entry in asked if not entry.is_own and _is_of_one(entry)}
    known = {*places.values()}
    for place in example.sizes:
        size = traced.shape_env.replace(traced.sizes[place.leaf][place.axis])
        if size.is_Integer:  # of one, or fixed by the model: the way is that of this size alone
            found[sympy.Eq(symbol_of(place), size)] = ""
            known.add(symbol_of(place))
    calls = [node for node in program.nodes if node.op == "call_function"]
    expressions = [expression.xreplace(places) for expression in _expressions(calls)]
    tested = dict.fromkeys(test for expression in expressions for test in expression.atoms(Relational))
    given = {leaf for node in calls for leaf in pytree.tree_leaves((node.args, node.kwargs)) if type(leaf) is int}
    return Asked(
        questions={condition: line for condition, line in found.items() if condition.free_symbols <= known},
        tests=[test for test in tested if test.free_symbols <= known],
        numbers=[number for number in dict.fromkeys((*_numbers_in(expressions), *sorted(given))) if number > 1],
        program=program,
        of_one=of_one,
    )


def _expressions(calls: Iterable[Node]) -> list[sympy.Basic]:
    """The sizes that calls make or give their results, and the tests of sizes that became numbers."""
    values = (value for node in calls for value in pytree.tree_leaves(node.meta.get("val")))
    sizes = (size for value in values for size in (value.shape if isinstance(value, torch.Tensor) else [value]))
    # torch 2.11 to 2.13: `_expr` has the symbols as they were first called, which are those of the questions.
    return [*dict.fromkeys(size.node._expr for size in sizes if isinstance(size, torch.SymInt | torch.SymBool))]


def untraced_ways(trace: Trace, asked_with: AskedWith, domain: Domain) -> Iterator[UntracedWay]:
    """The ways of a model, at sizes of a domain within the bounds that are known, on which the program is wrong.

    There is one for each test that is answered otherwise on such a way.
    """
    tests = _open_tests(trace, domain)
    if tests:
        yield from _Walk(trace, asked_with, domain, tests).wrong()


def _open_tests(trace: Trace, domain: Domain) -> dict[sympy.Basic, str]:
    """The tests of the model that some sizes of a domain answer otherwise than those of the trace, with their lines.

    Of those of installed packages what asks for a single entry is left out, as every decoder does: sizes of 1 are tried
    in any case. So are all of them in a long program, which takes long to trace.
    """
    counted = (
        entry for entry in trace.decisions if entry.is_test and (entry.is_own or _is_looked_behind(trace, entry))
    )
    tests = {trace.replaced(with_relations(trace, entry.condition)): entry.line for entry in counted}
    known = {trace.replaced(with_relations(trace, entry)) for entry in trace.known}
    asked = {test: line for test, line in tests.items() if test.free_symbols <= domain.keys() and test not in known}
    return {test: line for test, line in asked.items() if decide(test, domain).answer != Answer.PROVED}


def _is_looked_behind(trace: Trace, decision: Decision) -> bool:
    return trace.trial.may_try_many and not _is_of_one(decision)


def _is_of_one(decision: Decision) -> bool:
    return isinstance(decision.condition, sympy.Ne | sympy.Eq) and decision.condition.args[1] == 1


class _Walk:
    """Goes through the ways of a model, of which the program is one."""

    def __init__(self, trace: Trace, asked_with: AskedWith, domain: Domain, tests: Mapping[sympy.Basic, str]) -> None:
        self._trace, self._asked_with, self._tests = trace, asked_with, dict(tests)
        self._is_own = trace.trial.is_of_own_module
        self._spans = {symbol: domain[symbol] for symbol in trace.free_symbols()}
        self._symbols = sizes_of_places(trace.traced)
        self._ways: list[Iterable[sympy.Basic]] = [self._tests]
        self._beside_ways: list[Iterable[sympy.Basic]] = []
        self._of_one: set[sympy.Basic] = set()
        self._untraced: set[frozenset[sympy.Basic]] = set()
        self._random = random.Random(0)
        self._slow = 0

    def wrong(self) -> Iterator[UntracedWay]:
        """Sizes at which the program is wrong, for each test at most once."""
        waiting, trials, refused = self._drawn(self._tests, self._trace.all_sizes({})), 0, 0
        while waiting and trials < _TRIALS:
            sizes = waiting.pop()
            known = self._trace.all_sizes(sizes)
            if not self._is_left(known) or not self._may_try(known):
                continue
            outcome = self._trace.trial.outcome(known, with_ends=self._is_own)
            logger.debug("behind a test, at %s: %s", self._trace.told(sizes), outcome.value)
            trials += 1
            if outcome == Outcome.REFUSED and self._is_own and refused < _REFUSED:
                refused += 1
                waiting += map(self._only_free, map(self._trace.all_sizes, behind_refusals(self._trace, [], [sizes])))
            if outcome == Outcome.AGREES and self._is_beside_a_way(known):
                continue
            if outcome == Outcome.AGREES and len(self._ways) <= _WAYS:
                way = self._gone(known)
                waiting += self._drawn(way.questions, known)
                points = itertools.chain([sizes], self._along(way, known))
                wrong = next((point for point in points if self._is_wrong(way, point)), None)
                if wrong is not None:
                    sizes, outcome = wrong, Outcome.DIFFERS
            if outcome == Outcome.DIFFERS and self._trace.runs_as_traced():
                known = self._trace.all_sizes(sizes)
                test = next(test for test in self._tests if not self._holds(test, known))
                yield UntracedWay(test, self._tests.pop(test), sizes)
                self._trace.known.append(test)

    def _may_try(self, sizes: Sizes) -> bool:
        """Whether the model is run in no time, or is the user's own, of which some sizes may take seconds."""
        trial = self._trace.trial
        if trial.is_quick(sizes):
            return True
        is_slow = self._is_own and self._slow < _SLOW and trial.is_affordable(sizes)
        self._slow += is_slow
        return is_slow

    def _drawn(self, questions: Iterable[sympy.Basic], beside: Sizes) -> list[Sizes]:
        """Sizes around the numbers of questions, the same at each call; last those that answer one of them otherwise
        beside the sizes that are known.
        """
        questions = list(questions)
        anywhere = self._near(questions, self._spans)
        found = [self._one_of(anywhere) for _ in range(_DRAWN)] if all(anywhere.values()) else []
        for question in questions:
            found += self._answered_otherwise(question, beside)
        for number, question in enumerate(questions if self._is_own and len(questions) <= _FOLLOWED else ()):
            wanted = [_turned(question, beside, self._trace), *questions[:number]]
            found += [{**beside, **solution} for solution in itertools.islice(solutions(wanted, self._spans), 1)]
        return [*map(self._only_free, found)]

    def _answered_otherwise(self, question: sympy.Basic, beside: Sizes) -> list[Sizes]:
        """Sizes that answer a question otherwise than those that are known, and are like these in what it is not of."""
        own = {symbol: ends for symbol, ends in self._spans.items() if symbol in question.free_symbols}
        answer = self._trace.value(question, beside)
        points = ({**beside, **point} for point in self._all_of(self._near([question], own)))
        others = (point for point in points if self._trace.value(question, point) == (answer is False))
        found: list[Sizes] = [*itertools.islice(others, _OF_EACH)]
        if found or own.keys() != question.free_symbols:
            return found
        solved = sizes_where([_turned(question, beside, self._trace)], own, _OF_EACH)
        return [{**beside, **solution} for solution in solved]

    def _near(self, questions: Iterable[sympy.Basic], spans: Domain) -> dict[sympy.Symbol, list[int]]:
        numbers = {*_numbers_in(questions)}
        tried = {symbol: sizes_to_try(ends, numbers) for symbol, ends in spans.items()}
        return {symbol: sorted(size for size in sizes if size <= _LARGEST) for symbol, sizes in tried.items()}

    def _one_of(self, sizes: Mapping[sympy.Symbol, Sequence[int]]) -> Sizes:
        return {symbol: self._random.choice(choices) for symbol, choices in sizes.items()}

    def _all_of(self, sizes: Mapping[sympy.Symbol, Sequence[int]]) -> list[Sizes]:
        """All combinations, or some, in no order."""
        if math.prod(map(len, sizes.values())) > _COMBINED:
            return [self._one_of(sizes) for _ in range(_COMBINED)] if all(sizes.values()) else []
        found: list[Sizes] = [dict(zip(sizes, each, strict=True)) for each in itertools.product(*sizes.values())]
        self._random.shuffle(found)
        return found

    def _is_left(self, sizes: Sizes) -> bool:
        """Whether sizes are to be right, and lie on none of the ways that were gone through."""
        is_within = meets(self._trace.known, self._trace, sizes)
        gone = itertools.chain(self._ways, self._beside_ways)
        return is_within and not any(all(self._holds(entry, sizes) for entry in way) for way in gone)

    def _is_beside_a_way(self, sizes: Sizes) -> bool:
        """Whether sizes lie on a way but for single entries that an installed package asks for, which is then tried
        once and not traced: as in `_open_tests`.
        """
        for way in self._ways:
            answers = [question if self._holds(question, sizes) else sympy.Not(question) for question in way]
            if self._of_one.issuperset({*answers} - {*way}):
                self._beside_ways.append(answers)
                return True
        return False

    def _holds(self, condition: sympy.Basic, sizes: Sizes) -> bool:
        return self._trace.value(condition, sizes) is not False

    def _gone(self, sizes: Sizes) -> Asked:
        """What the model asks on the way that it goes at some sizes, in the symbols of the trace.

        Of one that cannot be traced it is what the program's own tests answer there. That is told once, and no way that
        was gone through: behind those answers there may be others.
        """
        call = self._trace.trial.inputs_at(sizes)
        asked = None if call is None else self._asked_with(call)
        if asked is None:
            return self._untraced_at(sizes)
        questions = {question.xreplace(self._symbols): line for question, line in asked.questions.items()}
        self._ways.append(questions)
        for question in asked.of_one:
            self._of_one |= {question.xreplace(self._symbols), sympy.Not(question).xreplace(self._symbols)}
        return asked._replace(questions=questions, tests=[test.xreplace(self._symbols) for test in asked.tests])

    def _untraced_at(self, sizes: Sizes) -> Asked:
        answers = {test if self._holds(test, sizes) else sympy.Not(test): line for test, line in self._tests.items()}
        if frozenset(answers) in self._untraced:
            return Asked({}, (), ())
        self._untraced.add(frozenset(answers))
        return Asked(answers, (), [*_numbers_in(self._tests), *self._trace.trial.numbers])

    def _is_wrong(self, way: Asked, sizes: Sizes) -> bool:
        """Whether the program does something else there than the model, or than the way's own program."""
        is_affordable = self._may_try(self._trace.all_sizes(sizes))
        if is_affordable and self._trace.differs(sizes, for_seconds=True):
            return True
        return way.program is not None and not self._trace.trial.goes_as(way.program, self._trace.all_sizes(sizes))

    def _along(self, way: Asked, beside: Sizes) -> Iterator[Sizes]:
        """Sizes of one way, at which a test has another answer, or what is divided by a number another result."""
        own = {symbol for test in self._tests for symbol in test.free_symbols & self._spans.keys()}
        sizes = (number * times + by for number in way.numbers for times, by in ((2, 1), (1, 1), (1, -1)))
        points = ({**self._only_free(beside), **dict.fromkeys(own, size)} for size in sizes)
        tests = [
            *way.tests,
            *(sympy.Eq(*question.args) for question in way.questions if self._is_tied(question, beside)),
        ]
        answered = (point for test in tests for point in self._answered_otherwise(test, beside)[:_OF_EACH_TEST])
        is_of_it = (
            point
            for point in itertools.chain(map(self._only_free, answered), points)
            if self._trace.is_in_domain(point)
            and meets(self._trace.known, self._trace, point)
            and all(self._holds(question, self._trace.all_sizes(point)) for question in way.questions)
            and not all(self._holds(test, self._trace.all_sizes(point)) for test in self._tests)
        )
        return itertools.islice(is_of_it, _STEPS)

    def _is_tied(self, question: sympy.Basic, sizes: Sizes) -> bool:
        """Whether a way goes on where `a <= b` says more than that both are equal, as at these sizes: there what is
        computed of the one is right by luck."""
        is_open = isinstance(question, sympy.Ge | sympy.Le)
        return is_open and self._trace.value(sympy.Eq(*question.args), sizes) is True

    def _only_free(self, sizes: Sizes) -> Sizes:
        return {symbol: sizes[symbol] for symbol in self._spans}


def _turned(question: sympy.Basic, sizes: Sizes, trace: Trace) -> sympy.Basic:
    """What holds where a question has another answer than at some sizes."""
    return question if trace.value(question, sizes) is False else sympy.Not(question)


def _numbers_in(questions: Iterable[sympy.Basic]) -> list[int]:
    return sorted({int(atom) for question in questions for atom in question.atoms(sympy.Integer)})
