"""`match` becomes `if` and `elif`, which the other rules know.

    match kind:              _subject_3 = kind
        case 0 | 1:          if _subject_3 == 0 or _subject_3 == 1:
            y = x       →        y = x
        case n if n > 5:     else:
            y = x * n            n = _subject_3
                                 if n > 5:
                                     y = x * n

A pattern that looks into an object, as `(a, True)`, `{"n": 0}` or `Point(x=0)`, is a test of its type, length or keys,
then one of each part. One that binds names which are read although its guard failed stays, and its subject must then
hold no tensor data, and no symbol where types are asked for.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, located, walked

ORDER = 0


def apply(unit: Unit) -> None:
    """Rewrites every `match` whose patterns can be tests."""
    unit.node = _Matches(unit).visit(unit.node)


@dataclass
class _Case:
    """The tests of one pattern, in the order in which Python makes them, and the names that it binds."""

    tests: list[ast.expr] = field(default_factory=list)
    bound: dict[str, ast.expr] = field(default_factory=dict)
    is_possible: bool = True

    def add(self, part: ast.expr, pattern: ast.pattern | None) -> None:
        """Takes in a pattern for a part of what is matched, an expression that may be read many times."""
        if isinstance(pattern, ast.MatchAs):
            self.add(part, pattern.pattern)
            self._bind(pattern.name, part)
        elif isinstance(pattern, ast.MatchValue):
            self.tests.append(ast.Compare(part, [ast.Eq()], [pattern.value]))
        elif isinstance(pattern, ast.MatchSingleton):
            self.tests.append(ast.Compare(part, [ast.Is()], [ast.Constant(pattern.value)]))
        elif isinstance(pattern, ast.MatchOr):
            self._add_alternatives(part, pattern)
        elif isinstance(pattern, ast.MatchSequence):
            self._add_sequence(part, pattern)
        elif isinstance(pattern, ast.MatchMapping):
            self._add_mapping(part, pattern)
        elif isinstance(pattern, ast.MatchClass):
            self._add_class(part, pattern)

    def _bind(self, name: str | None, part: ast.expr) -> None:
        if name is not None:
            self.bound[name] = part

    def _add_alternatives(self, part: ast.expr, pattern: ast.MatchOr) -> None:
        alternatives = [_case_of(part, alternative) for alternative in pattern.patterns]
        self.is_possible &= all(found.is_possible for found in alternatives)
        for name in alternatives[0].bound:  # Python wants all alternatives to bind the same names
            self.bound[name] = _of_the_fitting(alternatives, name)
        self.tests.append(ast.BoolOp(ast.Or(), [found.test() for found in alternatives]))

    def _add_sequence(self, part: ast.expr, pattern: ast.MatchSequence) -> None:
        stars = [place for place, inner in enumerate(pattern.patterns) if isinstance(inner, ast.MatchStar)]
        count = len(pattern.patterns) - len(stars)
        arguments = ast.Constant(count), ast.Constant(bool(stars))
        self.tests.append(build.call("is_sequence", part, *arguments))
        for place, inner in enumerate(pattern.patterns):
            behind = count + 1 - place if stars and place > stars[0] else 0
            if isinstance(inner, ast.MatchStar):
                ends = ast.Constant(place), ast.Constant(count - place)
                self._bind(inner.name, build.call("elements_between", part, *ends))
            else:
                self.add(_element(part, ast.Constant(-behind if behind else place)), inner)

    def _add_mapping(self, part: ast.expr, pattern: ast.MatchMapping) -> None:
        keys = ast.Tuple(list(pattern.keys), ast.Load())
        self.tests.append(build.call("has_keys", part, keys))
        for key, inner in zip(pattern.keys, pattern.patterns, strict=True):
            self.add(_element(part, key), inner)
        self._bind(pattern.rest, build.call("without_keys", part, keys))

    def _add_class(self, part: ast.expr, pattern: ast.MatchClass) -> None:
        names: list[ast.expr] = [ast.Constant(name) for name in pattern.kwd_attrs]
        count = ast.Constant(len(pattern.patterns))
        self.tests.append(build.call("has_attributes", part, pattern.cls, count, ast.Tuple(names, ast.Load())))
        for place, inner in enumerate(pattern.patterns):
            self.add(build.call("attribute_at", part, pattern.cls, ast.Constant(place)), inner)
        for name, inner in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
            self.add(ast.Attribute(part, name, ast.Load()), inner)

    def test(self, guard: ast.expr | None = None) -> ast.expr:
        """Whether everything fits; the guard, which may read what the pattern binds, is asked last."""
        tests = [*self.tests, *([_Bound(self.bound).visit(guard)] if guard is not None else [])]
        if not tests:
            return ast.Constant(True)
        return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


def _case_of(part: ast.expr, pattern: ast.pattern) -> _Case:
    found = _Case()
    found.add(part, pattern)
    return found


def _of_the_fitting(alternatives: Sequence[_Case], name: str) -> ast.expr:
    """What the first alternative that fits binds to a name; one does."""
    first, *others = alternatives
    if not first.tests or len({ast.dump(found.bound[name]) for found in alternatives}) == 1:
        return first.bound[name]
    return ast.IfExp(first.test(), first.bound[name], _of_the_fitting(others, name))


def _element(part: ast.expr, index: ast.expr) -> ast.expr:
    return ast.Subscript(part, index, ast.Load())


class _Bound(Transformer):
    """Puts what names are bound to in their places."""

    def __init__(self, bound: dict[str, ast.expr]) -> None:
        self._bound = bound

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._bound.get(node.id, node)


class _Matches(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_Match(self, node: ast.Match) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not self._unit.keep(node):
            return node
        if not self._can_be_tests(node):
            asks_types = scope.contains(node.cases, ast.MatchClass, ast.MatchSingleton)
            node.subject = build.call("of_python", node.subject, ast.Constant(asks_types))
            return node
        self._unit.note(node, "match")
        subject = f"_subject_{node.lineno}_{node.col_offset}"
        start = ast.copy_location(ast.Assign([build.store(subject)], node.subject), node)
        made = [start, *self._cases(subject, node.cases)]
        own = _WithOwnNodes()
        return [own.visit(located(statement)) for statement in made]

    def _can_be_tests(self, node: ast.Match) -> bool:
        cases = [_case_of(build.load("_"), case.pattern) for case in node.cases]
        guarded = [
            (case, found)
            for case, found in zip(node.cases, cases, strict=True)
            if case.guard is not None and found.tests
        ]
        return all(found.is_possible for found in cases) and not any(
            scope.contains([case.guard], ast.NamedExpr, ast.Yield, ast.Await) or self._outlives(found, node, cases)
            for case, found in guarded
            if case.guard is not None
        )

    def _outlives(self, found: _Case, node: ast.Match, cases: Sequence[_Case]) -> bool:
        """Whether a name that is bound although the guard fails may be read by who does not bind it."""
        for name in found.bound:
            own = [case for case, other in zip(node.cases, cases, strict=True) if name in other.bound]
            inside = sum(_reads(case, name) for case in own)
            if _reads(self._unit.node, name) > inside:
                return True
        return False

    def _cases(
        self, subject: str, cases: Sequence[ast.match_case], before: Sequence[ast.match_case] = ()
    ) -> list[ast.stmt]:
        if not cases:
            return []
        case, rest, where = cases[0], self._cases(subject, cases[1:], (*before, cases[0])), cases[0].pattern
        found = _case_of(build.load(subject), case.pattern)
        if (
            isinstance(where, ast.MatchSingleton)
            and isinstance(where.value, bool)
            and _is_tried(not where.value, before)
        ):
            found.tests = [build.call("is_other", build.load(subject), ast.Constant(where.value))]
        bound: list[ast.stmt] = [
            ast.copy_location(ast.Assign([build.store(name)], part), where) for name, part in found.bound.items()
        ]
        if found.tests:
            return [ast.copy_location(ast.If(found.test(case.guard), [*bound, *case.body], rest), where)]
        if case.guard is None:
            return [*bound, *case.body]
        return [*bound, ast.copy_location(ast.If(case.guard, case.body, rest), where)]


def _is_tried(truth: bool, before: Sequence[ast.match_case]) -> bool:
    """Whether what is matched is not `truth`, for a case before would have taken it."""
    return any(
        isinstance(case.pattern, ast.MatchSingleton) and case.pattern.value is truth and case.guard is None
        for case in before
    )


def _reads(node: ast.AST, name: str) -> int:
    return sum(read.id == name for inner in walked(node) if (read := scope.read_by(inner)) is not None)


class _WithOwnNodes(Transformer):
    """Copies what stands in several places, as the parts of what is matched: rules change nodes where they stand."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr):
            node = copy.deepcopy(node) if id(node) in self._seen else node
            self._seen.add(id(node))
        return self.generic_visit(node)
