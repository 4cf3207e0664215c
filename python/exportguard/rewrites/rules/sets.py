"""Sets that a function makes for itself and adds numbers to become lists without a number twice: a loop may fill them.

    seen = set()                          seen = []
    if k not in seen:             →       if _rt.member(k) not in seen:
        seen.add(k)                           _added = _rt.member(k)
                                              if _added not in seen:
                                                  seen.append(_added)

A list finds what it holds by `==`, and so does a set, but for tensors, which a set knows by the object: `member`
refuses them. The order of a set is no one's business, so a function that asks for it keeps its set.
"""

from __future__ import annotations

import ast

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, parts_of, walked

ORDER = -4
_COUNTS = ("len", "sorted", "bool")  # what does not ask for the order of a set


def apply(unit: Unit) -> None:
    """Rewrites such variables; it is no change by itself."""
    rewriter = _Sets(unit)
    if rewriter.names:
        unit.node.body = [statement for old in unit.node.body for statement in rewriter.statements(old)]


class _Sets(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        assigned = [pair for node in walked(unit.node) if isinstance(node, ast.Assign) for pair in _pairs(node)]
        made = {target.id for target, value in assigned if isinstance(target, ast.Name) and _makes_a_set(value)}
        body = unit.node.body
        others = {*scope.parameters(unit.node), *scope.declared(body, ast.Global), *scope.declared(body, ast.Nonlocal)}
        is_shadowed = "set" in (*others, *scope.assigned(body))
        self.names = {name for name in made - others if not is_shadowed and _are_known(unit.node, name)}

    def statements(self, statement: ast.stmt) -> list[ast.stmt]:
        """What a statement becomes."""
        made = self.visit(statement)
        return made if isinstance(made, list) else [made]

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        made = [self._listed(value) if self._is_one(target) else value for target, value in _pairs(node)]
        if isinstance(node.value, ast.Tuple) and len(made) == len(node.value.elts):
            node.value.elts = made
        elif len(made) == 1:
            node.value = made[0]
        return node

    def _is_one(self, target: ast.expr) -> bool:
        return isinstance(target, ast.Name) and target.id in self.names

    @staticmethod
    def _listed(value: ast.expr) -> ast.expr:
        """A set that is made as a list."""
        elements = value.elts if isinstance(value, ast.Set) else []
        members: list[ast.expr] = [build.call("member", element) for element in elements]
        return ast.copy_location(ast.List(members, ast.Load()), value)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add"):
            return node
        if not isinstance(call.func.value, ast.Name) or call.func.value.id not in self.names:
            return node
        name, added = call.func.value.id, f"_added_{self._unit.place(node)}"
        is_new = ast.Compare(build.load(added), [ast.NotIn()], [build.load(name)])
        append = ast.Call(ast.Attribute(build.load(name), "append", ast.Load()), [build.load(added)], [])
        made: list[ast.stmt] = [
            ast.Assign([build.store(added)], build.call("member", call.args[0])),
            ast.If(is_new, [ast.Expr(append)], []),
        ]
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in made]

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if _asks_in(node) in self.names:
            node.left = ast.copy_location(build.call("member", node.left), node.left)
        return node


def _makes_a_set(node: ast.expr) -> bool:
    """Whether an expression is `set()` or `{one}`, which holds nothing twice."""
    if isinstance(node, ast.Set):
        return len(node.elts) == 1 and not isinstance(node.elts[0], ast.Starred)
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "set"
    return is_call and not node.args and not node.keywords  # type: ignore[attr-defined]


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment with what each is given, as far as its text tells."""
    if len(node.targets) > 1:
        return []
    target, value = node.targets[0], node.value
    if not isinstance(target, ast.Tuple):
        return [(target, value)]
    are_many = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
    elements = [*target.elts, *(value.elts if are_many else ())]  # type: ignore[attr-defined]
    if not are_many or any(isinstance(element, ast.Starred) for element in elements):
        return []
    return [*zip(target.elts, value.elts, strict=True)]  # type: ignore[attr-defined]


def _asks_in(node: ast.Compare) -> str | None:
    """The variable of which `x in variable` asks."""
    is_asked = len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn)
    variable = node.comparators[0]
    return variable.id if is_asked and isinstance(variable, ast.Name) else None


def _are_known(function: ast.FunctionDef, name: str) -> bool:
    """Whether all that is done with a variable is the same with a list that holds nothing twice."""
    around = {part: node for node in walked(function) for part in parts_of(node)}
    uses = [node for node in walked(function) if isinstance(node, ast.Name) and node.id == name]
    return all(_is_known(use, around) for use in uses)


def _is_known(use: ast.Name, around: dict[ast.AST, ast.AST]) -> bool:
    parent = around[use]
    if isinstance(use.ctx, ast.Store):
        assignment = around[parent] if isinstance(parent, ast.Tuple) else parent
        pairs = _pairs(assignment) if isinstance(assignment, ast.Assign) else []
        return any(target is use and _makes_a_set(value) for target, value in pairs)
    if isinstance(parent, ast.Compare):
        return _asks_in(parent) == use.id and parent.left is not use
    if isinstance(parent, ast.Call):
        is_counted = isinstance(parent.func, ast.Name) and parent.func.id in _COUNTS
        return is_counted and parent.args == [use] and not parent.keywords
    if isinstance(parent, ast.Attribute) and parent.attr in ("add", "clear"):
        call = around[parent]
        if not isinstance(call, ast.Call) or call.func is not parent or call.keywords:
            return False
        return len(call.args) == (parent.attr == "add") and isinstance(around[call], ast.Expr)
    is_test = isinstance(parent, ast.If | ast.While | ast.IfExp) and parent.test is use
    return is_test or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))
