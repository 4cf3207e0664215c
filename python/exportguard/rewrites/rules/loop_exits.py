"""`return` inside a loop and `else` behind one become a number that says how the loop was left.

    for row in x:                      _left_1 = 0
        if row.sum() > 1:              for row in x:
            return row                     if row.sum() > 1:
    else:                      →               _left_1 = 1
        x = -x                                 break
    return x[0]                        if _left_1 == 1:
                                           return row
                                       if _left_1 == 0:
                                           x = -x
                                       return x[0]

What is returned is computed behind the loop: nothing runs between the `break` and that. Loops and tests are then the
business of the other rules.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from typing import Any

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.jumps import without_jumps
from exportguard.source.walking import Transformer

ORDER = 12
_TO_THE_END = 0

Loop = ast.For | ast.While

#: What has elements as long as all that it takes, and how many arguments come before those.
_TAKING: dict[Any, int] = {
    **dict.fromkeys((zip, enumerate, itertools.pairwise, itertools.accumulate), 0),
    **dict.fromkeys((map, filter, itertools.filterfalse, itertools.starmap), 1),
}


def apply(unit: Unit) -> None:
    """Takes every `return` and `else` out of the loops that can become functions."""
    _Exits(unit).visit(unit.node)


class _Exits(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._outside = scope.Outside(unit.node, unit.original)

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        return self._rewritten(node)

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        return self._rewritten(node)

    def visit_With(self, node: ast.With) -> ast.stmt | list[ast.stmt]:
        return self._without_jumps(node)

    def visit_Try(self, node: ast.Try) -> ast.stmt | list[ast.stmt]:
        return self._without_jumps(node)

    def _without_jumps(self, node: ast.With | ast.Try) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        made = without_jumps(node) if self._unit.keep(node) else None
        if made is None:
            return node
        self._unit.note(node, "jump out of a block")
        return made

    def _rewritten(self, node: Loop) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)  # a return of an inner loop is then one of this loop
        has_return = scope.contains(node.body, ast.Return)
        if not (node.orelse or has_return) or not self._applies(node):
            return node
        self._unit.note(node, "return in a loop" if has_return else "else of a loop")
        numbered = _Numbered(f"_left_{node.lineno}_{node.col_offset}", counts_breaks=bool(node.orelse))
        node.body = numbered.of(node.body)
        start = ast.copy_location(numbered.assigned(_TO_THE_END), node)
        orelse, node.orelse = node.orelse, []
        behind = [numbered.test(code, [statement], statement) for code, statement in numbered.returns]
        if orelse:
            behind.append(numbered.test(_TO_THE_END, orelse, orelse[0]))
        if self._is_endless(node) and numbered.returns and not numbered.breaks:
            behind[len(numbered.returns) - 1 :] = [numbered.returns[-1][1]]  # no path is left without a value
        return [start, node, *behind]

    def _is_endless(self, node: Loop) -> bool:
        if isinstance(node, ast.While):
            return isinstance(node.test, ast.Constant) and bool(node.test.value)
        return self._never_ends(node.iter)

    def _never_ends(self, iterable: ast.expr) -> bool:
        """Whether it is written in such a way that there is always another element, as in `enumerate(count())`."""
        if isinstance(iterable, ast.GeneratorExp):
            return self._never_ends(iterable.generators[0].iter)
        if not isinstance(iterable, ast.Call):
            return False
        function, given = self._outside.meant(iterable.func), iterable.args
        if function is itertools.count:
            return True
        if function is itertools.repeat:
            return len(given) == 1 and not iterable.keywords and not isinstance(given[0], ast.Starred)
        if function not in _TAKING or iterable.keywords:
            return False
        sources = given[_TAKING[function] :]
        return bool(sources) and all(map(self._never_ends, sources))

    def _applies(self, node: Loop) -> bool:
        stays = scope.contains(node.body, ast.Global, ast.Nonlocal) or _returns_from_a_block(node.body)
        return not stays and build.can_move([*node.body, *node.orelse]) and self._unit.keep(node)


def _returns_from_a_block(statements: Sequence[ast.stmt]) -> bool:
    """Whether a value is returned, and so computed, inside a `with`, a `try` or a loop that stays as it is."""
    blocks = (ast.With, ast.Try, ast.For, ast.While)
    return any(isinstance(node, blocks) and scope.contains([node], ast.Return) for node in scope.walk_scope(statements))


class _Numbered(build.OfOneLoop):
    """Gives each way out of one loop a number, which a variable holds behind it."""

    def __init__(self, name: str, *, counts_breaks: bool) -> None:
        self._name = name
        self._counts_breaks = counts_breaks
        self._ways = _TO_THE_END
        self.returns: list[tuple[int, ast.Return]] = []
        self.breaks = 0

    def of(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements of the loop, with every way out numbered."""
        module = ast.Module(list(statements), [])
        self.generic_visit(module)
        return module.body

    def assigned(self, code: int) -> ast.Assign:
        """`_left = code`"""
        return ast.Assign([build.store(self._name)], ast.Constant(code))

    def test(self, code: int, block: list[ast.stmt], where: ast.stmt) -> ast.stmt:
        """`if _left == code: block`"""
        is_it = ast.Compare(build.load(self._name), [ast.Eq()], [ast.Constant(code)])
        return ast.copy_location(ast.If(is_it, block, []), where)

    def _out(self, where: ast.stmt) -> list[ast.stmt]:
        self._ways += 1
        return [ast.copy_location(made, where) for made in (self.assigned(self._ways), ast.Break())]

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        statements = self._out(node)
        self.returns.append((self._ways, node))
        return statements

    def visit_Break(self, node: ast.Break) -> ast.stmt | list[ast.stmt]:
        self.breaks += 1
        return self._out(node) if self._counts_breaks else node
