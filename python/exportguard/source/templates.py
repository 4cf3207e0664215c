"""Templates: code with holes, matched on the syntax tree and written again in another form.

`$x` is a hole for any expression; where it stands several times, the same one. A variable that the template assigns
itself may have any name. Neither order counts in `a * b`, `a & b`, `a | b`, `a == b`, `a != b`, between `a < b` and
`b > a`, and among keyword arguments; layout, parentheses and comments never do. `f($x, ..., key=$y)` is a call with
further arguments of any kind.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from exportguard.source.errors import RewriteError
from exportguard.source.reading import NOT_COMPARED, copied, is_same_tree
from exportguard.source.walking import Transformer, walked

_HOLE = "_hole_of_template_"
_EITHER_ORDER = (ast.Mult, ast.BitAnd, ast.BitOr)
_MIRRORED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
_KINDS = (ast.expr, ast.stmt)


@dataclass
class Match:
    """What the holes of a template stand for, and how its own variables are called."""

    holes: dict[str, ast.expr] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def with_names(self) -> Match:
        """The match with the template's own variables as holes, for another template about the same ones."""
        return Match({**{name: ast.Name(own, ast.Load()) for name, own in self.names.items()}, **self.holes})

    def joined(self, other: Match) -> Match | None:
        """What both found; None where one hole would stand for two things."""
        if not all(is_same_tree(self.holes.get(hole, node), node) for hole, node in other.holes.items()):
            return None
        return Match({**self.holes, **other.holes}, {**self.names, **other.names})

    def text(self, hole: str) -> str:
        """The source of what a hole stands for."""
        return ast.unparse(self.holes[hole])


class Template:
    """Statements, or one expression, with holes.

    >>> match = Template("$x[:, -$n:]").match(ast.parse("states[:, -(w - 1):]", mode="eval").body)
    >>> match.text("x"), match.text("n")
    ('states', 'w - 1')
    """

    def __init__(self, text: str) -> None:
        body = ast.parse(re.sub(r"\$(\w+)", rf"{_HOLE}\1", text)).body
        alone = body[0]
        self.is_expression = len(body) == 1 and isinstance(alone, ast.Expr)
        self._parts: list[Any] = [alone.value] if isinstance(alone, ast.Expr) and self.is_expression else body
        self._own = {name.id for part in self._parts for name in _stored(part)}

    def __len__(self) -> int:
        return len(self._parts)

    def match(self, *nodes: ast.AST) -> Match | None:
        """How the nodes, as many as it has statements, are this template; None if they are not."""
        if len(nodes) != len(self._parts) or not all(map(self._may_be, self._parts, nodes)):
            return None
        match = Match()
        is_same = all(self._is_same(part, node, match) for part, node in zip(self._parts, nodes, strict=True))
        return match if is_same else None

    @staticmethod
    def _may_be(pattern: ast.AST, node: ast.AST) -> bool:
        """Whether they are of one kind, which few nodes are; a name may be a hole."""
        return pattern.__class__ is node.__class__ or isinstance(pattern, ast.Name)

    def within(self, *trees: ast.AST) -> list[Match]:
        """Every place in the trees that is this expression, or this single statement.

        >>> [match.text("x") for match in Template("f($x)").within(ast.parse("f(a) + g(f(b))"))]
        ['a', 'b']
        """
        matches = (self.match(node) for tree in trees for node in walked(tree) if isinstance(node, _KINDS))
        return [match for match in matches if match is not None]

    def filled(self, match: Match, like: ast.AST) -> list[Any]:
        """The template's statements, or its expression, with what `match` found, at the place of `like`.

        :raises RewriteError: it has a hole that the match does not know
        """
        filling = _Filling(match)
        return [_at(filling.visit(copied(part)), like) for part in self._parts]

    def statements(self, match: Match, like: ast.AST) -> list[ast.stmt]:
        """The same where statements stand: an expression is a statement of its own."""
        parts = self.filled(match, like)
        return [ast.copy_location(ast.Expr(part), like) for part in parts] if self.is_expression else parts

    def _is_same(self, pattern: Any, node: Any, match: Match) -> bool:
        if isinstance(pattern, ast.Name) and isinstance(node, ast.expr):
            return self._is_named(pattern.id, node, match)
        if type(pattern) is not type(node):
            return False
        if isinstance(pattern, list):
            pairs = zip(pattern, node, strict=False)
            return len(pattern) == len(node) and all(self._is_same(*pair, match) for pair in pairs)
        if not isinstance(pattern, ast.AST):
            return bool(pattern == node)
        if isinstance(pattern, ast.Call) and _has_further(pattern):
            return self._tried(*_without_further(pattern, node), match)
        return any(self._tried(form, node, match) for form in _forms(pattern))

    def _tried(self, pattern: ast.AST, node: ast.AST, match: Match) -> bool:
        """Whether one form of the pattern is the node; what it found is forgotten if not."""
        before = copy.copy(match.holes), copy.copy(match.names)
        fields = [name for name in pattern._fields if name not in NOT_COMPARED]
        if all(self._is_same(*_field(pattern, node, name), match) for name in fields):
            return True
        match.holes, match.names = before
        return False

    def _is_named(self, name: str, node: ast.expr, match: Match) -> bool:
        if name.startswith(_HOLE):
            return is_same_tree(match.holes.setdefault(name.removeprefix(_HOLE), node), node)
        if not isinstance(node, ast.Name):
            return False
        if name not in self._own:
            return node.id == name
        if name not in match.names and node.id in match.names.values():
            return False
        return match.names.setdefault(name, node.id) == node.id


def _field(pattern: ast.AST, node: ast.AST, name: str) -> tuple[Any, Any]:
    values = (getattr(pattern, name, None), getattr(node, name, None))
    if name != "keywords" or not all(isinstance(value, list) for value in values):
        return values
    first, second = (sorted(value, key=lambda keyword: keyword.arg or "") for value in values if value is not None)
    return first, second


def _has_further(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(last := call.args[-1], ast.Constant) and last.value is Ellipsis


def _without_further(pattern: ast.Call, node: ast.Call) -> tuple[ast.Call, ast.Call]:
    """Both calls with the arguments that a pattern names in front of its "..."."""
    leading = len(pattern.args) - 1
    names = {keyword.arg for keyword in pattern.keywords}
    keywords = [keyword for keyword in node.keywords if keyword.arg in names]
    own = ast.Call(pattern.func, pattern.args[:leading], pattern.keywords)
    return own, ast.Call(node.func, node.args[:leading], keywords)


def _forms(pattern: ast.AST) -> Iterator[ast.AST]:
    """The pattern, and what means the same the other way round."""
    yield pattern
    if isinstance(pattern, ast.BinOp) and isinstance(pattern.op, _EITHER_ORDER):
        yield ast.BinOp(pattern.right, pattern.op, pattern.left)
    if isinstance(pattern, ast.Compare) and len(pattern.ops) == 1 and type(pattern.ops[0]) in _MIRRORED:
        yield ast.Compare(pattern.comparators[0], [_MIRRORED[type(pattern.ops[0])]()], [pattern.left])


def _stored(tree: ast.AST) -> Iterator[ast.Name]:
    for node in walked(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not node.id.startswith(_HOLE):
            yield node


class _Filling(Transformer):
    def __init__(self, match: Match) -> None:
        self._match = match

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not node.id.startswith(_HOLE):
            return ast.Name(self._match.names.get(node.id, node.id), node.ctx)
        hole = node.id.removeprefix(_HOLE)
        if hole not in self._match.holes:
            raise RewriteError(f"the template has no value for ${hole}")
        found = copied(self._match.holes[hole])
        if hasattr(found, "ctx"):
            found.ctx = node.ctx
        return found


def _at(node: ast.AST, like: ast.AST) -> ast.AST:
    for part in walked(node):
        ast.copy_location(part, like)
    return node


class Exchange(Transformer):
    """A rule that writes what matches one of its templates in another form; made by `exchange`."""

    pairs: Sequence[tuple[Template, Template]] = ()

    def visit(self, node: ast.AST) -> Any:
        """The node in another form, or the parts of it that are."""
        if isinstance(node, ast.expr):
            for old, new in self.pairs:
                found = old.match(node) if old.is_expression else None
                if found is not None:
                    return new.filled(self._within(found), node)[0]
        else:
            for name, value in ast.iter_fields(node):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    setattr(node, name, self._exchanged(value))
        return super().visit(node)  # by the methods of a subclass, too

    def _exchanged(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        at = 0
        while at < len(body):
            for old, new in self.pairs:
                found = None if old.is_expression else old.match(*body[at : at + len(old)])
                if found is not None:
                    made += new.statements(found, body[at])
                    at += len(old)
                    break
            else:
                made.append(body[at])
                at += 1
        return made

    def _within(self, match: Match) -> Match:
        """The match with what its holes stand for in another form as well."""
        match.holes = {hole: self.visit(node) for hole, node in match.holes.items()}
        return match


def exchange(name: str, *pairs: tuple[str, str]) -> type[Exchange]:
    """The rule, called `name` in errors, that writes each first text of the pairs as the second, holes included.

    >>> rule = exchange("Doubles", ("$x + $x", "2 * $x"))
    >>> ast.unparse(rule().visit(ast.parse("y = f(a.b + a.b) + c")))
    'y = f(2 * a.b) + c'
    """
    return type(name, (Exchange,), {"pairs": pairs_of(*pairs)})


def pairs_of(*pairs: tuple[str, str]) -> list[tuple[Template, Template]]:
    """The templates of a rule that has more to do than to exchange them."""
    return [(Template(old), Template(new)) for old, new in pairs]
