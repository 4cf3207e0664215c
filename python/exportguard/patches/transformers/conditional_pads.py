"""Paddings under a test of sizes, as `if n % 4 != 0: x = pad(x, (0, 4 - n % 4))`, pad by nothing where it is false.

So do cuts that undo them, as `if n > 0: x = x[:, :-n]`.

A test of sizes is decided while a model is traced, and the program pads, or does not, whatever its sizes are later.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import placed, rewrite
from exportguard.source.reading import copied

_MARKER = r"(?:nn\.functional|F)\.pad\(|^\s+(\w+) = \1\[[^\]]*:-[a-z]"
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ARITHMETIC = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List,
    ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip

_max: Any = torch.sym_max
_min: Any = torch.sym_min

Comparison = tuple[Any, str, Any]


def size_test(*comparisons: Comparison) -> Any:
    """1 where one of them holds and 0 elsewhere, as a size; None where there is no symbolic size to decide it."""
    if not all(_is_open(*comparison) for comparison in comparisons):
        return None
    first, *others = (_indicator(*comparison) for comparison in comparisons)
    for other in others:
        first = _max(first, other)
    return first if _may_vary(first) else None


def amounts(applies: object, pads: Sequence[Any]) -> list[Any]:
    """How far to pad: as `pads` say where `applies` is 1, not at all where it is 0."""
    return [0 if isinstance(pad, int) and pad == 0 else pad * applies for pad in pads]


def _is_open(left: object, sign: str, right: object) -> bool:
    sides = (left, right)
    are_sizes = all(isinstance(side, int | torch.SymInt) for side in sides)
    return are_sizes and any(isinstance(side, torch.SymInt) for side in sides)


def _may_vary(size: object) -> bool:
    """Whether the ranges of the symbols allow for several values; what the traced sizes gave rise to is no reason."""
    if not isinstance(size, torch.SymInt):
        return False
    bounds = size.node.shape_env.bound_sympy(size.node.expr)
    return bool(bounds.lower != bounds.upper)


def _indicator(left: Any, sign: str, right: Any) -> Any:
    if sign in ("==", "!="):
        differs = _one_if_positive(_max(left - right, right - left))
        return differs if sign == "!=" else 1 - differs
    difference = left - right if sign.startswith(">") else right - left
    return _one_if_positive(difference + 1 if sign.endswith("=") else difference)


def _one_if_positive(number: object) -> Any:
    return _max(_min(number, 1), 0)


class PadByNothing(ast.NodeTransformer):
    """Beside `if test: x = pad(x, by)` stands `x = pad(x, amounts(size_test(…), by))`, for sizes that are open."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._function = node
        self._count = 0
        self.generic_visit(node)
        return ast.fix_missing_locations(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        comparisons = _comparisons(node.test)
        flags = [
            statement
            for statement in node.body
            if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name)
        ]
        always = [statement for statement in node.body if statement not in flags]
        if not comparisons or node.orelse or not self._is_all(node, always):
            return node
        self._count += 1
        applies = f"_applies_{self._count}"
        unless = "".join(f"not {ast.unparse(flag.test)} and " for flag in flags)
        test = f"{unless}({applies} := size_test({', '.join(comparisons)})) is not None"
        head = ast.If(placed(ast.parse(test, mode="eval").body, node.test), [], [])
        ast.copy_location(head, node)
        head.body = [_by_amounts(copied(statement), applies) for statement in always]
        head.orelse = [node]
        return head

    def _is_all(self, node: ast.If, always: Sequence[ast.stmt]) -> bool:
        """Whether the test decides nothing but how far to pad, where the flags in it are not set."""
        made = [statement for statement in always if _pad_call(statement) is None and _cut(statement) is None]
        if len(made) == len(always) or not all(_is_arithmetic(statement) for statement in made):
            return False
        names = {
            name.id
            for statement in made
            for name in ast.walk(statement)
            if isinstance(name, ast.Name) and _is_store(name)
        }
        inside = {id(inner) for inner in ast.walk(node)}
        outside = [inner for inner in ast.walk(self._function) if id(inner) not in inside]
        tests = {ast.unparse(inner.test) for inner in outside if isinstance(inner, ast.If | ast.IfExp)}
        return not names & _reads_of_others(outside) and ast.unparse(node.test) not in tests


def _reads_of_others(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that are read, but for reads in a branch that has given the name a value of its own."""
    own: set[int] = set()
    for branch in nodes:
        given: set[str] = set()
        for statement in branch.body if isinstance(branch, ast.If) else ():
            own |= {id(node) for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id in given}
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            given |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and not _is_store(node) and id(node) not in own}


def _is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _comparisons(test: ast.expr) -> list[str]:
    """Each comparison of the test as what `size_test` takes; none if it is made of something else."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        parts = [_comparisons(value) for value in test.values]
        return [one for part in parts for one in part] if all(parts) else []
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or type(test.ops[0]) not in _SIGNS:
        return []
    sides = (test.left, test.comparators[0])
    if not all(isinstance(node, _ARITHMETIC) for side in sides for node in ast.walk(side)):
        return []
    return [f"({ast.unparse(sides[0])}, {_SIGNS[type(test.ops[0])]!r}, {ast.unparse(sides[1])})"]


def _is_arithmetic(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    return all(isinstance(node, _ARITHMETIC) for node in ast.walk(statement.value))


def _pad_call(statement: ast.stmt) -> ast.Call | None:
    """The call, if the statement pads a variable in place of itself."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    is_pad = ast.unparse(call.func).endswith(("F.pad", "functional.pad")) and bool(call.args)
    return call if is_pad and ast.unparse(call.args[0]) == ast.unparse(statement.targets[0]) else None


def _cut(statement: ast.stmt) -> tuple[ast.Slice, str] | None:
    """The slice `:-n` and the size of its axis, if the statement cuts a variable at the end of that axis alone."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Subscript):
        return None
    variable, index = ast.unparse(statement.value.value), statement.value.slice
    if variable != ast.unparse(statement.targets[0]):
        return None
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    cuts = [place for place, part in enumerate(parts) if ast.unparse(part) not in (":", "...")]
    part = parts[cuts[0]] if len(cuts) == 1 else None
    if not isinstance(part, ast.Slice) or part.lower or part.step:
        return None
    if not isinstance(part.upper, ast.UnaryOp) or not isinstance(part.upper.op, ast.USub):
        return None
    is_from_end = any(ast.unparse(piece) == "..." for piece in parts[: cuts[0]])
    return part, f"{variable}.shape[{cuts[0] - len(parts) if is_from_end else cuts[0]}]"


def _by_amounts(statement: ast.stmt, applies: str) -> ast.stmt:
    call, cut = _pad_call(statement), _cut(statement)
    if cut is not None:
        part, size = cut
        upper = f"{size} + {applies} * {ast.unparse(part.upper or part)}"
        part.upper = placed(ast.parse(upper, mode="eval").body, part)
    if call is None:
        return statement
    keyword = next((one for one in call.keywords if one.arg == "pad"), None)
    by = keyword.value if keyword else call.args[1]
    amount = placed(ast.parse(f"amounts({applies}, {ast.unparse(by)})", mode="eval").body, by)
    if keyword:
        keyword.value = amount
    else:
        call.args[1] = amount
    return statement


def _has_test(function: ast.FunctionDef) -> bool:
    """Whether a comparison decides about a padding or a cut, in whatever way."""
    tests = [node for node in ast.walk(function) if isinstance(node, ast.If) and _comparisons(node.test)]
    return any(
        _pad_call(statement) is not None or _cut(statement) is not None for test in tests for statement in test.body
    )


_replace = rewrite(PadByNothing, size_test=size_test, amounts=amounts)


PATCHES = (
    construct_patch(
        name="paddings under a test of sizes",
        marker=_MARKER,
        mentions=(".pad(", ":-"),
        replace=_replace,
        has=_has_test,
        reason="the test is decided while the model is traced, and the program pads every size as the traced one",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
