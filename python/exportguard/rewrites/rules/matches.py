"""`match` over values becomes `if` and `elif`, which the other rules know.

    match kind:              _subject_3 = kind
        case 0 | 1:          if _subject_3 == 0 or _subject_3 == 1:
            y = x       →        y = x
        case n if n > 5:     else:
            y = x * n            n = _subject_3
                                 if n > 5:
                                     y = x * n

Patterns that look into an object, as `(a, b)` or `Point(x=0)`, stay: they are tests of Python's.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from exportguard.rewrites import build
from exportguard.rewrites.engine import Unit

ORDER = 0


def apply(unit: Unit) -> None:
    """Rewrites every `match` whose patterns are values, alternatives of values, names and `_`."""
    unit.node = _Matches(unit).visit(unit.node)


def _is_of_values(pattern: ast.pattern) -> bool:
    if isinstance(pattern, ast.MatchOr):
        return all(_is_of_values(part) for part in pattern.patterns)
    is_name = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
    return is_name or isinstance(pattern, ast.MatchValue | ast.MatchSingleton)


class _Matches(ast.NodeTransformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def visit_Match(self, node: ast.Match) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not all(_is_of_values(case.pattern) for case in node.cases) or not self._unit.keep(node):
            return node
        self._unit.note(node, "match")
        subject = f"_subject_{node.lineno}_{node.col_offset}"
        start = ast.copy_location(ast.Assign([build.store(subject)], node.subject), node)
        made = [start, *self._cases(subject, node.cases)]
        return [ast.fix_missing_locations(statement) for statement in made]

    def _cases(self, subject: str, cases: Sequence[ast.match_case]) -> list[ast.stmt]:
        if not cases:
            return []
        case, rest = cases[0], self._cases(subject, cases[1:])
        where = case.pattern
        bound: list[ast.stmt] = []
        if isinstance(case.pattern, ast.MatchAs):
            if case.pattern.name is not None:
                bound = [ast.copy_location(ast.Assign([build.store(case.pattern.name)], build.load(subject)), where)]
            if case.guard is None:
                return [*bound, *case.body]
            return [*bound, ast.copy_location(ast.If(case.guard, case.body, rest), where)]
        test = _test(subject, case.pattern)
        if case.guard is not None:
            test = ast.BoolOp(ast.And(), [test, case.guard])
        return [ast.copy_location(ast.If(test, case.body, rest), where)]


def _test(subject: str, pattern: ast.pattern) -> ast.expr:
    if isinstance(pattern, ast.MatchOr):
        return ast.BoolOp(ast.Or(), [_test(subject, part) for part in pattern.patterns])
    if isinstance(pattern, ast.MatchSingleton):
        return ast.Compare(build.load(subject), [ast.Is()], [ast.Constant(pattern.value)])
    if isinstance(pattern, ast.MatchValue):
        return ast.Compare(build.load(subject), [ast.Eq()], [pattern.value])
    return ast.Constant(True)
