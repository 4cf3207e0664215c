"""What is known of one traced program: its symbols, what was asked of them, and what torch decided about them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch

from exportguard.dynamic_shapes import LeafShape, ends_of
from exportguard.example import Example, Relation
from exportguard.inputs import CallInputs
from exportguard.signature import TracedInputs, symbol_names
from exportguard.size_words import in_python

from .derived import follow
from .evaluation import Evaluation
from .examples import sizes_of_examples
from .expressions import Range, Sizes, symbols_of
from .recording import Decision, QuestionOfNone
from .regions import EVERYWHERE, Region
from .trial import Outcome, Trial

_NAMED = 8  # numbers of the code that are put into inputs
_SOLVED_TO = 128  # the size up to which one is looked for that makes an equation true
_SOLUTIONS = 8  # of which the one is taken that the other guards fit


@dataclass
class Trace:
    """What is known of one traced program."""

    trial: Trial
    traced: TracedInputs
    example: Example
    decisions: Sequence[Decision]
    calls: Sequence[CallInputs] = ()
    of_none: Sequence[QuestionOfNone] = ()
    domain: dict[sympy.Symbol, Range] = field(default_factory=dict)
    within: Region = EVERYWHERE  # the sizes that count
    known: list[sympy.Basic] = field(default_factory=list)  # bounds beyond which nothing more is tried
    #: The lines at which the model wants sizes to be equal, with what was asked there behind the first time.
    relations: dict[str, list[sympy.Basic]] = field(default_factory=dict)
    _evaluations: dict[sympy.Basic, Evaluation] = field(default_factory=dict)
    _all_sizes: dict[Any, Sizes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shape_env = self.traced.shape_env
        self.asked_names = _names_as_asked(self.traced, self.example.shapes)
        self.names = {**self.asked_names, **symbol_names(self.traced, self.example.shapes)}
        asked = _asked_relations(self.traced, self.example.relations, self.shape_env.replacements)
        derived, of_derived = follow(
            (shape.axes[axis], size) for shape, axis, size in axes_asked(self.traced, self.example.shapes)
        )
        self.same = {**derived, **asked}
        self.lines = {decision.condition: decision.line for decision in self.decisions}
        self.at_hand = {decision.condition: decision.at_hand for decision in self.decisions}
        self.tests = {decision.condition for decision in self.decisions if decision.is_test}
        self.hidden = {decision.condition for decision in self.decisions if decision.is_hidden}
        self.hints = _hints(self.shape_env)
        given = sizes_of_examples(self.traced, self.calls)
        self.examples = [(call, self.all_sizes(sizes)) for call, sizes in given]
        asked_for = [*(with_relations(self, entry) for entry in self.within.as_traced(self.traced)), *of_derived]
        #: What counts, as it was asked for, and with what torch found each symbol to be.
        self.assumed_as_asked = [entry for entry in asked_for if entry != sympy.true]
        self.assumed = [entry for entry in map(self.replaced, asked_for) if entry != sympy.true]
        self.known += self.assumed_as_asked
        self.trial.tests_at = self._own_tests_at
        in_code = [entry.in_code for entry in self.decisions if entry.is_test and entry.is_own]
        self.trial.numbers = [*dict.fromkeys(itertools.chain(*in_code))][:_NAMED]

    def _own_tests_at(self, sizes: Sizes) -> list[sympy.Basic]:
        """What the user's own code, and no installed package, tests of these sizes with another answer."""
        tests = (entry.condition for entry in self.decisions if entry.is_test and entry.is_own)
        return [test for test in tests if test.free_symbols <= sizes.keys() and self.value(test, sizes) is False]

    def worded(self, condition: sympy.Basic, *, is_relation: bool = False) -> str:
        """The condition in the user's names; a relation tells two names apart that became one size."""
        names = {**self.names, **self.asked_names} if is_relation else self.names
        return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), in_python(condition))

    def replaced(self, expression: sympy.Basic) -> sympy.Basic:
        """The expression with what torch found each symbol to be."""
        known = {**self.same, **self.shape_env.replacements}
        for _ in range(len(known) + 1):
            changed = expression.xreplace(known)
            if changed == expression:
                break
            expression = changed
        return expression

    def free_symbols(self) -> list[sympy.Symbol]:
        """Those of the inputs that follow from no other."""
        return [
            symbol for symbol in self.domain if symbol not in self.shape_env.replacements and symbol not in self.same
        ]

    def all_sizes(self, sizes: Sizes) -> Sizes:
        """Every symbol of the trace: those given, what follows from them, and the others as in the example.

        A size that the trace took for what it computes of others is that where it is not given: a model refuses most
        other sizes for that alone, whatever else it asks of them.
        """
        # What is looked for begins at the least size, which is all that changes here while bounds are found.
        key = frozenset(sizes.items()), tuple(ends.low for ends in self.domain.values())
        if key not in self._all_sizes:
            found = self._with_following({**self.hints, **sizes}, sizes)
            for equation in self._equations if sizes else ():
                if self.value(equation, found) is False:
                    found = self._solved(equation, found, sizes)
            self._all_sizes[key] = found
        return {**self._all_sizes[key]}

    def _with_following(self, found: dict[sympy.Symbol, int], given: Sizes) -> dict[sympy.Symbol, int]:
        for symbol, (symbols, evaluation) in self._following.items():
            if symbol not in given:
                value = evaluation({part: found.get(part, 2) for part in symbols})
                found[symbol] = int(value) if value is not None else found.get(symbol, 2)
        return found

    @functools.cached_property
    def _conditions(self) -> Sequence[sympy.Basic]:
        """The guards of free sizes."""
        conditions = dict.fromkeys(self.replaced(with_relations(self, guard.expr)) for guard in self.shape_env.guards)
        free = {*self.free_symbols()} & {*self.hints}
        return [condition for condition in conditions if condition.free_symbols and condition.free_symbols <= free]

    @functools.cached_property
    def _equations(self) -> Sequence[sympy.Eq]:
        """What torch took to be equal and could not write as one size in the place of another: `(x - 1) // 2 == y`."""
        return [
            condition
            for condition in self._conditions
            if isinstance(condition, sympy.Eq) and len(condition.free_symbols) > 1
        ]

    def _solved(self, equation: sympy.Eq, found: Sizes, given: Sizes) -> dict[sympy.Symbol, int]:
        """The sizes with one that is not given changed so that an equation holds; as they are if none can be.

        Of several, it is one at which the fewest of the other guards fail.
        """
        for symbol in sorted(equation.free_symbols - given.keys(), key=str):
            most = max(_SOLVED_TO, 4 * self.hints[symbol])
            sizes = range(1 if self.may_be(symbol, 1) else self.domain[symbol].low, most + 1)
            solving = (size for size in sizes if self.value(equation, {**found, symbol: size}))
            candidates = [{**found, symbol: size} for size in itertools.islice(solving, _SOLUTIONS)]
            if candidates:
                best = min(candidates, key=self._failing) if len(candidates) > 1 else candidates[0]
                return self._with_following(best, {**given, symbol: best[symbol]})
        return {**found}

    def _failing(self, sizes: Sizes) -> int:
        """How many guards fail."""
        return sum(self.value(condition, sizes) is False for condition in self._conditions)

    @functools.cached_property
    def _following(self) -> dict[sympy.Symbol, tuple[Sequence[sympy.Symbol], Evaluation]]:
        """The symbols that follow from others, with those and how."""
        following: dict[sympy.Symbol, tuple[Sequence[sympy.Symbol], Evaluation]] = {}
        for symbol in {**self.same, **self.shape_env.replacements}:
            expression = self.replaced(symbol)
            symbols = sorted(expression.free_symbols, key=str)
            following[symbol] = symbols, Evaluation(expression, symbols)
        return following

    def value(self, condition: sympy.Basic, sizes: Sizes) -> Any:
        """A condition at sizes that have all its symbols; None where it has no value."""
        evaluation = self._evaluations.get(condition)
        if evaluation is None:
            symbols = sorted(condition.free_symbols, key=str)
            evaluation = self._evaluations[condition] = Evaluation(condition, symbols)
        return evaluation(sizes)

    def by_name(self, sizes: Sizes) -> dict[str, int]:
        """Sizes, and what all others are beside them, by torch's names of the symbols."""
        return {str(symbol): size for symbol, size in self.all_sizes(sizes).items()}

    def is_in_domain(self, sizes: Sizes) -> bool:
        """Whether each size is one of those that were asked for."""
        return all(self.domain[symbol].holds(size) for symbol, size in sizes.items() if symbol in self.domain)

    def may_be(self, symbol: sympy.Symbol, size: int) -> bool:
        """Whether such a small size was asked for: by a name, a hint, or a `Dim` that begins there."""
        asked_for = axes_asked(self.traced, self.example.shapes)
        asked = [shape.axes[axis] for shape, axis, other in asked_for if other == symbol]
        return all((ends_of(axis)[0] or 0) <= size for axis in asked)

    def has_names(self, condition: sympy.Basic) -> bool:
        """Whether a name asks for one of the sizes in a condition."""
        asked = axes_asked(self.traced, self.example.shapes)
        named = {symbol for shape, axis, symbol in asked if shape.label(axis) is not None}
        return not condition.free_symbols.isdisjoint(named)

    def runs_as_traced(self) -> bool:
        """Whether the program can be run at all outside of ONNX, and does what the model does at the traced sizes."""
        return self.trial.outcome(self.all_sizes({})) == Outcome.AGREES

    def differs(self, sizes: Sizes, *, for_seconds: bool = False) -> bool:
        """Whether the program is wrong where it takes no time to find out, or `for_seconds` at the most."""
        known = self.all_sizes(sizes)
        may_try = self.trial.is_affordable if for_seconds else self.trial.is_quick
        is_tried = meets(self.known, self, sizes) and may_try(known)
        return is_tried and self.trial.outcome(known) == Outcome.DIFFERS and self.runs_as_traced()

    def refuses_beside_any(self, sizes: Sizes) -> bool:
        """Whether the model refuses them whatever the others are: those of the example, and of a module of the user's
        own as few as each may be."""
        others = {other: self.domain[other].low for other in self.free_symbols() if other not in sizes}
        points = [sizes, {**others, **sizes}] if self.trial.is_of_own_module else [sizes]
        return all(self.trial.refuses(self.all_sizes(one)) is True for one in points if meets(self.known, self, one))

    def told(self, sizes: Sizes, *, of: sympy.Basic | None = None) -> str:
        """Sizes in the user's names; of a relation those of its own axes."""
        counted = sizes if of is None else {symbol: sizes[symbol] for symbol in sizes if symbol in of.free_symbols}
        return ", ".join(
            f"{self.worded(symbol, is_relation=of is not None)}={size}" for symbol, size in counted.items()
        )


def axes_asked(traced: TracedInputs, shapes: Sequence[LeafShape]) -> Iterator[tuple[LeafShape, int, sympy.Symbol]]:
    """Each axis that was asked for and that torch gave a symbol, with that symbol."""
    for shape, sizes in zip(shapes, traced.sizes, strict=True):
        for axis in shape.axes:
            size = sizes[axis]
            if isinstance(size, sympy.Symbol):
                yield shape, axis, size


def _names_as_asked(traced: TracedInputs, shapes: Sequence[LeafShape]) -> dict[str, str]:
    names: dict[str, str] = {}
    for shape, axis, symbol in axes_asked(traced, shapes):
        place = f"{shape.leaf.name}[{axis}]" if isinstance(shape.leaf.value, torch.Tensor) else shape.leaf.name
        names.setdefault(str(symbol), shape.label(axis) or place)
    return names


def _asked_relations(
    traced: TracedInputs, relations: Sequence[Relation], replacements: Mapping[sympy.Symbol, sympy.Expr]
) -> dict[sympy.Symbol, sympy.Expr]:
    """What the names of the axes say of the symbols that stand for them: some follow from others."""
    found: dict[sympy.Symbol, sympy.Expr] = {}
    for relation in relations:
        symbol, *parts = (traced.sizes[place.leaf][place.axis] for place in (relation.place, *relation.sum_of))
        total = sympy.Add(*parts)
        if total.is_Symbol and symbol.is_Symbol and symbol not in replacements and total in replacements:
            symbol, total = total, symbol
        if symbol.is_Symbol and symbol != total:
            found[symbol] = total
    return found


def asked_domain(traced: TracedInputs, shapes: Sequence[LeafShape]) -> dict[sympy.Symbol, Range]:
    domain: dict[sympy.Symbol, Range] = {}
    for shape, axis, symbol in axes_asked(traced, shapes):
        low, high = ends_of(shape.axes[axis])
        known = domain.get(symbol, Range(2))
        kept = max(shape.kept[axis], known.low) if axis in shape.kept else None
        highs = [end for end in (known.high, high, kept) if end is not None]
        domain[symbol] = Range(max(known.low, low or 0), min(highs, default=None))
    return domain


def _hints(shape_env: object) -> dict[sympy.Symbol, int]:
    # The name of this table changed in torch 2.12.
    name = "backed_var_to_val" if hasattr(shape_env, "backed_var_to_val") else "var_to_val"
    table: Mapping[sympy.Symbol, Any] = getattr(shape_env, name, {})
    return {symbol: int(value) for symbol, value in table.items() if getattr(value, "is_Integer", False)}


def with_relations(trace: Trace, guard: sympy.Basic) -> sympy.Basic:
    """The guard in those symbols alone that the names leave free."""
    for _ in range(3):  # a sum of sizes that follow from others themselves
        guard = guard.xreplace(trace.same)
    return guard


def meets(conditions: Sequence[sympy.Basic], trace: Trace, sizes: Sizes) -> bool:
    """Whether none of the conditions is known not to hold; of numbers that data or floats make nothing is known."""
    if not conditions:
        return True
    known = trace.all_sizes(sizes)
    of_sizes = (condition for condition in conditions if symbols_of(condition) <= known.keys())
    return not any(trace.value(condition, known) is False for condition in of_sizes)


def within_known(trace: Trace, condition: sympy.Basic) -> sympy.Basic:
    """What is false where a condition is within the bounds that are known, in symbols that follow from no other."""
    return sympy.Or(condition, *map(sympy.Not, known_conditions(trace)))


def known_conditions(trace: Trace) -> list[sympy.Basic]:
    """The bounds that are known, in symbols that follow from no other."""
    return [trace.replaced(with_relations(trace, entry)) for entry in trace.known]


def domain_from_one(trace: Trace) -> dict[sympy.Symbol, Range]:
    """The sizes that were asked for, with 1 where that was: a trace has none below 2."""
    free = [symbol for symbol in trace.free_symbols() if trace.may_be(symbol, 1)]
    return {**trace.domain, **{symbol: replace(trace.domain.get(symbol, Range(2)), low=1) for symbol in free}}


def _is_of_an_open_slice(condition: sympy.Basic) -> bool:
    """Whether it makes a number of the rows of a slice that ends at a number or with its axis, as a loop does."""
    ends = (part for part in sympy.preorder_traversal(condition) if type(part).__name__ in ("Min", "Max"))
    return isinstance(condition, sympy.Eq) and any(part.is_number for end in ends for part in end.args)


def decided_differently(trace: Trace, sizes: Sizes) -> Iterator[Decision]:
    """What the model asks of its sizes and would be answered in another way at these.

    Where a slice ends is such a question, too: of `x[:2]` torch says, without a guard, that it has 2 rows.
    """
    known = trace.all_sizes(sizes)
    for decision in trace.decisions:
        is_of_slice = decision.is_of_slice or _is_of_an_open_slice(decision.condition)
        is_asked = (decision.is_of_model or is_of_slice) and decision.condition.free_symbols <= known.keys()
        if is_asked and trace.value(decision.condition, known) is False:
            yield decision


def first_decided_differently(trace: Trace, sizes: Sizes) -> Decision | None:
    """The one of them that is told: a test of the user's own code before all others."""
    return min(decided_differently(trace, sizes), key=lambda entry: not (entry.is_own and entry.is_test), default=None)
