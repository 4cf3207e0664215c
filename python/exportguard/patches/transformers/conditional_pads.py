"""Paddings under a test of sizes, as `if n % 4 != 0: x = pad(x, (0, 4 - n % 4))`, pad by nothing where it is false.

A test of sizes is decided while a model is traced, and the program pads, or does not, whatever its sizes are later.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from exportguard.patches.constructs import construct_patch
from exportguard.patches.declaration import SourceDoesNotFitError
from exportguard.patches.rewriting import placed, rewrite

if TYPE_CHECKING:
    from exportguard._core import Changes

_PAD = r"(?:nn\.functional|F)\.pad\("
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ARITHMETIC = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List,
    ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip

_max: Any = torch.sym_max
_min: Any = torch.sym_min
_not: Any = torch.sym_not

Comparison = tuple[Any, str, Any]


def size_test(*comparisons: Comparison) -> Any:
    """1 where one of them holds and 0 elsewhere, as a size; None where there is no symbolic size to decide it."""
    open_ones = [one for one in comparisons if not _is_decided(*one)]
    if not open_ones or len(open_ones) < len(comparisons):
        return None
    first, *others = (_indicator(*one) for one in open_ones)
    for other in others:
        first = _max(first, other)
    return first


def amounts(applies: Any, pads: Sequence[Any]) -> list[Any]:
    """How far to pad: as `pads` say where `applies` is 1, not at all where it is 0."""
    return [0 if isinstance(pad, int) and pad == 0 else pad * applies for pad in pads]


def _is_decided(left: Any, sign: str, right: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not any(isinstance(side, torch.SymInt) for side in (left, right)):
        return True
    if not all(isinstance(side, int | torch.SymInt) for side in (left, right)):
        return True
    holds = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    test = holds.get(sign, left == right)
    return statically_known_true(test) or statically_known_true(_not(test))


def _indicator(left: Any, sign: str, right: Any) -> Any:
    if sign in ("==", "!="):
        differs = _one_if_positive(_max(left - right, right - left))
        return differs if sign == "!=" else 1 - differs
    difference = left - right if sign.startswith(">") else right - left
    return _one_if_positive(difference + 1 if sign.endswith("=") else difference)


def _one_if_positive(number: Any) -> Any:
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
        if not comparisons or node.orelse or not self._is_all(node):
            return node
        self._count += 1
        applies = f"_applies_{self._count}"
        head = ast.parse(f"if ({applies} := size_test({', '.join(comparisons)})) is not None:\n pass").body[0]
        assert isinstance(head, ast.If)
        placed(head, node.test)
        head.body = [_by_amounts(copy.deepcopy(one), applies) for one in node.body]
        head.orelse = [node]
        return head

    def _is_all(self, node: ast.If) -> bool:
        """Whether the test decides nothing but how far to pad."""
        made = [one for one in node.body if _pad_call(one) is None]
        if len(made) == len(node.body) or not all(_is_arithmetic(one) for one in made):
            return False
        names = {name.id for one in made for name in ast.walk(one) if isinstance(name, ast.Name) and _is_store(name)}
        inside = {id(one) for one in ast.walk(node)}
        outside = [one for one in ast.walk(self._function) if id(one) not in inside]
        tests = {ast.unparse(one.test) for one in outside if isinstance(one, ast.If | ast.IfExp)}
        return not names & _reads_of_others(outside) and ast.unparse(node.test) not in tests


def _reads_of_others(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that are read, but for reads in a branch that has given the name a value of its own."""
    own: set[int] = set()
    for branch in nodes:
        given: set[str] = set()
        for statement in branch.body if isinstance(branch, ast.If) else ():
            own |= {id(one) for one in ast.walk(statement) if isinstance(one, ast.Name) and one.id in given}
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            given |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {one.id for one in nodes if isinstance(one, ast.Name) and not _is_store(one) and id(one) not in own}


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
    if not all(isinstance(one, _ARITHMETIC) for side in sides for one in ast.walk(side)):
        return []
    return [f"({ast.unparse(sides[0])}, {_SIGNS[type(test.ops[0])]!r}, {ast.unparse(sides[1])})"]


def _is_arithmetic(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    return all(isinstance(one, _ARITHMETIC) for one in ast.walk(statement.value))


def _pad_call(statement: ast.stmt) -> ast.Call | None:
    """The call, if the statement pads a variable in place of itself."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    is_pad = ast.unparse(call.func).endswith(("F.pad", "functional.pad")) and bool(call.args)
    return call if is_pad and ast.unparse(call.args[0]) == ast.unparse(statement.targets[0]) else None


def _by_amounts(statement: ast.stmt, applies: str) -> ast.stmt:
    call = _pad_call(statement)
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


_replace = rewrite(PadByNothing, size_test=size_test, amounts=amounts)


def _install(changes: Changes, owner: Any, name: str) -> None:
    try:
        changes.set_attribute(owner, name, _replace(vars(owner)[name]))
    except SourceDoesNotFitError:
        return  # it pads under no test, or the test decides more than that


PATCHES = (
    construct_patch(
        name="paddings under a test of sizes",
        marker=_PAD,
        install=_install,
        reason="the test is decided while the model is traced, and the program pads every size as the traced one",
        upstream="https://github.com/pytorch/pytorch/issues/158786",
    ),
)
