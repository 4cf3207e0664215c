"""Syntax trees gone through, and changed on the way: as `ast` does it, in a third of the time.

What says of a name that it is read, or of an operation which one it is, is no node here: they are half of a tree, and
have neither parts nor a place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

_Node = TypeVar("_Node", bound=ast.AST)

_OF_MARKS = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)

#: `Load`, `Add`, `Not` and the like.
MARKS = frozenset(kind for base in _OF_MARKS for kind in base.__subclasses__())

_LEAVES = MARKS | {ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal, ast.alias}
_OTHER_FIELDS = frozenset({"ctx", "op", "ops", "attr", "arg", "type_comment", "kind", "conversion", "is_async"})


class _FieldsOfParts(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each class of nodes that may hold other nodes than marks."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        fields = () if kind in _LEAVES else tuple(name for name in kind._fields if name not in _OTHER_FIELDS)
        self[kind] = fields
        return fields


_FIELDS = _FieldsOfParts()


def parts_of(node: ast.AST) -> list[ast.AST]:
    """The nodes right below this one, in the order of the source."""
    found: list[ast.AST] = []
    values = vars(node)
    for name in _FIELDS[node.__class__]:
        value = values.get(name)
        if value.__class__ is list:
            found += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walked(tree: ast.AST) -> list[ast.AST]:
    """The tree and all nodes below it, level by level."""
    found = [tree]
    for node in found:  # which grows
        if _FIELDS[node.__class__]:
            found += parts_of(node)
    return found


def located(tree: _Node) -> _Node:
    """The tree, where each node without a place has that of the one around it, as the compiler asks for it."""
    _locate(tree, (1, 0, 1, 0))
    return tree


def _locate(node: ast.AST, around: tuple[Any, ...]) -> None:
    if node._attributes:
        values = vars(node)
        first, column, last, end = around
        first, column = values.setdefault("lineno", first), values.setdefault("col_offset", column)
        if values.get("end_lineno") is None:
            values["end_lineno"] = last
        if values.get("end_col_offset") is None:
            values["end_col_offset"] = end
        around = (first, column, values["end_lineno"], values["end_col_offset"])
    for part in parts_of(node):
        _locate(part, around)


class Transformer(ast.NodeTransformer):
    """`ast.NodeTransformer`, whose methods are looked up once for each class of nodes; marks are not visited."""

    _methods: ClassVar[dict[type[ast.AST], Callable[[Any, Any], Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._methods = {}

    def visit(self, node: ast.AST) -> Any:
        """What the method for this class of nodes makes of it."""
        kind = node.__class__
        method = self._methods.get(kind)
        if method is None:
            own = type(self)
            method = self._methods[kind] = getattr(own, f"visit_{kind.__name__}", own.generic_visit)
        return method(self, node)

    def visit_Name(self, node: ast.Name) -> Any:
        """It has no parts."""
        return node

    def visit_Constant(self, node: ast.Constant) -> Any:
        """It has no parts."""
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """The node, with what became of its parts."""
        values = vars(node)
        for name in _FIELDS[node.__class__]:
            value = values.get(name)
            if value.__class__ is list:
                value[:] = self._visited(value)
            elif isinstance(value, ast.AST):
                made = self.visit(value)
                if made is None:
                    delattr(node, name)
                elif made is not value:
                    setattr(node, name, made)
        return node

    def _visited(self, values: list[Any]) -> list[Any]:
        found: list[Any] = []
        for value in values:
            if not isinstance(value, ast.AST):
                found.append(value)
                continue
            made = self.visit(value)
            if isinstance(made, ast.AST):
                found.append(made)
            elif made is not None:
                found += made
        return found
