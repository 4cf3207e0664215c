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
from collections.abc import Sequence

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.rewrites.jumps import without_jumps
from exportguard.source.walking import Transformer

ORDER = 12
_TO_THE_END = 0

Loop = ast.For | ast.While


def apply(unit: Unit) -> None:
    """Takes every `return` and `else` out of the loops that can become functions."""
    _Exits(unit).visit(unit.node)


class _Exits(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

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
        if _is_endless(node) and numbered.returns and not numbered.breaks:
            behind[len(numbered.returns) - 1 :] = [numbered.returns[-1][1]]  # no path is left without a value
        return [start, node, *behind]

    def _applies(self, node: Loop) -> bool:
        stays = scope.contains(node.body, ast.Global, ast.Nonlocal) or _returns_from_a_block(node.body)
        return not stays and build.can_move([*node.body, *node.orelse]) and self._unit.keep(node)


def _returns_from_a_block(statements: Sequence[ast.stmt]) -> bool:
    """Whether a value is returned, and so computed, inside a `with`, a `try` or a loop that stays as it is."""
    blocks = (ast.With, ast.Try, ast.For, ast.While)
    return any(isinstance(node, blocks) and scope.contains([node], ast.Return) for node in scope.walk_scope(statements))


def _is_endless(node: Loop) -> bool:
    return isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)


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
