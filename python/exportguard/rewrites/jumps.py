"""`break`, `continue` and `return` on a test inside of a `with` or a `try` become a number that says how it was left.

    with torch.no_grad():              _left_1 = 0
        if x.sum() > 1:                with torch.no_grad():
            return x                       if x.sum() > 1:
        x = x * 2                  →           _value_1_1 = x
                                               _left_1 = 1
                                           else:
                                               x = x * 2
                                       if _left_1 == 1:
                                           return _value_1_1

The block is left behind its end instead of in its middle, and nothing runs in between: its manager, or its `finally`,
sees no exception either way, and what is returned is computed where it was. The `else` of a `try` whose `finally` is
empty goes behind it, where no handler covers it either.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from exportguard.rewrites import build, scope

Block = ast.With | ast.Try
_JUMPS = (ast.Return, ast.Break, ast.Continue)
_ALWAYS = "exportguard_always_jumps"  # marks the test behind a block of which every way leaves it
_STAY = 0  # the number of a block that came to its end


def without_jumps(node: Block) -> list[ast.stmt] | None:
    """The statements that do what the block does, without a jump on a test in it; None if there is no such jump."""
    if isinstance(node, ast.Try) and _jumps(node.finalbody):
        return None  # which would take the place of an exception
    if not _jumps_on_a_test(_statements(node)):
        return None
    leaving = _Leaving(f"{node.lineno}_{node.col_offset}", never_ends=_never_ends(node))
    orelse: list[ast.stmt] = []
    if isinstance(node, ast.Try):
        if not node.finalbody:
            node.orelse, orelse = [], node.orelse
        for handler in node.handlers:
            handler.body = leaving.of(handler.body)
        node.orelse = leaving.of(node.orelse)
        if node.orelse and _jumps(node.body):  # which does not run behind a jump
            node.orelse = [leaving.unless_left(node.orelse, node)]
    ending = [leaving.ended()] if orelse else []
    node.body = [*leaving.of(node.body, ending)]
    start = ast.copy_location(leaving.assigned(_STAY), node)
    return [start, node, *leaving.tests(), *leaving.behind(orelse, node)]


def _never_ends(node: Block) -> bool:
    """Whether every way through a block leaves it by a jump, unless its manager swallows an exception."""
    if isinstance(node, ast.With):
        return _always_jumps(node.body)
    ways = [node.body, *(handler.body for handler in node.handlers)]
    return not node.orelse and all(map(_always_jumps, ways))


def _statements(node: Block) -> list[ast.stmt]:
    if isinstance(node, ast.With):
        return node.body
    return [*node.body, *node.orelse, *(statement for handler in node.handlers for statement in handler.body)]


def _jumps(statements: Sequence[ast.stmt]) -> bool:
    """Whether a jump among the statements leaves them."""
    return scope.contains(statements, ast.Return) or scope.leaves_loop(statements)


def _jumps_on_a_test(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(statement, ast.If) and _jumps([statement]) for statement in statements)


class _Leaving:
    """Gives every way out of one block a number."""

    def __init__(self, place: str, *, never_ends: bool) -> None:
        self._place = place
        self._never_ends = never_ends
        self._ways: list[ast.stmt] = []  # what stands behind the block for each, from 1
        self._ended: int | None = None  # the number of a block that came to the end of its first part

    def assigned(self, way: int) -> ast.Assign:
        """`_left = way`"""
        return ast.Assign([build.store(f"_left_{self._place}")], ast.Constant(way))

    def ended(self) -> ast.stmt:
        """What tells that the end was reached."""
        self._ended = self._new(ast.Pass())
        return self.assigned(self._ended)

    def of(self, statements: Sequence[ast.stmt], ending: Sequence[ast.stmt] = ()) -> list[ast.stmt]:
        """Statements whose jumps are numbered; `ending` is what they do at their end."""
        done: list[ast.stmt] = []
        for position, statement in enumerate(statements):
            rest = statements[position + 1 :]
            if isinstance(statement, _JUMPS):
                return [*done, *self._out(statement)]
            if isinstance(statement, ast.If) and _jumps([statement]):
                return [*done, *self._test(statement, rest, ending)]
            done.append(statement)
        return [*done, *(ast.copy_location(statement, done[-1]) for statement in ending if done)]

    def _test(self, statement: ast.If, rest: Sequence[ast.stmt], ending: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A test of which a branch leaves the block; what follows it is for the other one."""
        if _always_jumps(statement.body):
            statement.orelse = self.of([*statement.orelse, *rest], ending) or [*ending]
            statement.body = self.of(statement.body)
            return [build.mark_leaving(statement, "then")]
        if _always_jumps(statement.orelse):
            statement.body = self.of([*statement.body, *rest], ending)
            statement.orelse = self.of(statement.orelse)
            return [build.mark_leaving(statement, "else")]
        statement.body, statement.orelse = self.of(statement.body), self.of(statement.orelse)
        behind = self.of(rest, ending) or [*ending]
        return [statement, *([self.unless_left(behind, statement)] if behind else [])]

    def unless_left(self, block: list[ast.stmt], where: ast.stmt) -> ast.stmt:
        """Statements that only run where no jump came before."""
        return build.mark_leaving(self._is(_STAY, block, where), "else")

    def tests(self) -> list[ast.stmt]:
        """What stands behind the block for each way out of it."""
        made: list[ast.If] = []
        for way, jump in enumerate(self._ways, 1):
            if not isinstance(jump, ast.Pass):
                made.append(self._is(way, [jump], jump))
        if made and self._never_ends:  # so that no path is left without a value
            ended = build.call("came_to_its_end", build.load_behind(f"_left_{self._place}"))
            made[-1].test = ast.copy_location(ast.UnaryOp(ast.Not(), ended), made[-1])
            setattr(made[-1], _ALWAYS, True)
        return [*made]

    def behind(self, orelse: list[ast.stmt], where: ast.stmt) -> list[ast.stmt]:
        """The `else` of a `try`, for the block that came to its end."""
        return [self._is(self._ended, orelse, where)] if orelse and self._ended is not None else []

    def _is(self, way: int, block: list[ast.stmt], where: ast.stmt) -> ast.If:
        test = ast.Compare(build.load_behind(f"_left_{self._place}"), [ast.Eq()], [ast.Constant(way)])
        return ast.copy_location(ast.If(test, block, []), where)

    def _out(self, jump: ast.stmt) -> list[ast.stmt]:
        if not isinstance(jump, ast.Return) or jump.value is None:
            return [ast.copy_location(self.assigned(self._new(jump)), jump)]
        name = f"{build.RETURNED}{self._place}_{len(self._ways) + 1}"
        value = ast.copy_location(ast.Assign([build.store(name)], jump.value), jump)
        way = self._new(ast.copy_location(ast.Return(build.load_behind(name)), jump))
        return [value, ast.copy_location(self.assigned(way), jump)]

    def _new(self, jump: ast.stmt) -> int:
        self._ways.append(jump)
        return len(self._ways)


def _always_jumps(statements: Sequence[ast.stmt]) -> bool:
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        if hasattr(last, _ALWAYS):
            return True
        return _always_jumps(last.body) and _always_jumps(last.orelse)
    return isinstance(last, (*_JUMPS, ast.Raise))
