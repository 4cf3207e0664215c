"""Paddings under a test of sizes, as `if n % 4 != 0: x = pad(x, (0, 4 - n % 4))`, pad by nothing where it is false.

So do cuts that undo them, as `if n > 0: x = x[:, :-n]`. A number that such a branch gives a name, as how far it padded,
is told behind it as well, and a mask of ones that it makes where there is none hides nothing where nothing is padded.

A test of sizes is decided while a model is traced, and the program pads, or does not, whatever its sizes are later.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import placed, rewrite
from exportguard.source.reading import copied, is_same_tree
from exportguard.source.templates import Match, Template
from exportguard.source.walking import Transformer

_MARKER = r"(?:nn\.functional|F)\.pad\(|^\s+(\w+) = \1\[[^\]]*:-[a-z]"
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ARITHMETIC = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List,
    ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip

_PADS = (Template("F.pad($x, ...)"), Template("$nn.functional.pad($x, ...)"))
_FROM_END = Template("-$n")
_SIZE = Template("$x.shape[$axis]")
_UPPER = Template("$size + only_where($applies, $upper)")
_AMOUNTS = Template("amounts($applies, $by)")
_COMPARISON = Template("($left, $sign, $right)")
_NUMBER = Template("$name = number_or($applies, $name, $before)")
_NO_MASK = Template("$mask is None")
_A_MASK = Template("$mask is not None")
_ONES = Template("$mask = torch.ones(...)")
_HIDDEN = (Template("$x.masked_fill(~$mask, ...)"), Template("$x.masked_fill($mask.logical_not(), ...)"))
_ASKED = Template("($applies := size_test()) is not None")

_VIEWS = ("expand", "flatten", "reshape", "unflatten", "unsqueeze", "view")

_max: Any = torch.sym_max
_min: Any = torch.sym_min

Comparison = tuple[Any, str, Any]


@dataclass(frozen=True)
class SizeTest:
    """A test that is true where one of its comparisons holds, and a size that is 1 there and 0 elsewhere."""

    comparisons: Sequence[Comparison]
    indicator: Any

    def times(self, number: Any) -> Any:
        """The number where the test is true and 0 elsewhere, without the test where the number tells it: sizes that
        stand in what follows for each layer are short then."""
        if isinstance(number, int):
            return number * self.indicator if number else 0
        if any(_is_none_without(comparison, number) for comparison in self.comparisons):
            return number
        only = self.comparisons[0] if len(self.comparisons) == 1 else None
        if only is not None and _is_what_is_left(only, number):
            return number % _divisor(only[0])
        difference = None if only is None else _difference(*only)
        if difference is not None and _is_same(number, difference):
            return _max(number, 0)
        return number * self.indicator


def size_test(*comparisons: Comparison) -> SizeTest | None:
    """Whether one of them holds, as sizes; None where there is no symbolic size to decide it."""
    if not all(_is_open(*comparison) for comparison in comparisons):
        return None
    first, *others = (_indicator(*comparison) for comparison in comparisons)
    for other in others:
        first = _max(first, other)
    return SizeTest(comparisons, first) if _may_vary(first) else None


def amounts(applies: SizeTest, pads: Sequence[Any]) -> list[Any]:
    """How far to pad: as `pads` say where the test is true, not at all where it is false."""
    return [only_where(applies, pad) for pad in pads]


def only_where(applies: SizeTest, number: Any) -> Any:
    """The number where the test is true, 0 where it is false."""
    return applies.times(number)


def number_or(applies: SizeTest, number: Any, before: int) -> Any:
    """The number where the test is true, what it was before where it is false."""
    return before + applies.times(number - before)


def _is_open(left: object, sign: str, right: object) -> bool:
    sides = (left, right)
    are_sizes = all(isinstance(side, int | torch.SymInt) for side in sides)
    return are_sizes and any(isinstance(side, torch.SymInt) for side in sides)


def _bounds(size: torch.SymInt) -> Any:
    """By the ranges of the symbols; what the traced sizes gave rise to is no reason."""
    return size.node.shape_env.bound_sympy(size.node.expr)


def _may_vary(size: object) -> bool:
    """Whether the ranges of the symbols allow for several values."""
    return isinstance(size, torch.SymInt) and bool(_bounds(size).lower != _bounds(size).upper)


def _is_never_negative(size: object) -> bool:
    return bool(_bounds(size).lower >= 0) if isinstance(size, torch.SymInt) else isinstance(size, int) and size >= 0


def _indicator(left: Any, sign: str, right: Any) -> Any:
    if sign in ("==", "!="):
        apart = left - right if _is_never_negative(left - right) else _max(left - right, right - left)
        differs = _one_if_positive(apart)
        return differs if sign == "!=" else 1 - differs
    return _one_if_positive(_difference(left, sign, right))


def _difference(left: Any, sign: str, right: Any) -> Any:
    """What is above 0 where a comparison of order holds; None of others."""
    if sign in ("==", "!="):
        return None
    difference = left - right if sign.startswith(">") else right - left
    return difference + 1 if sign.endswith("=") else difference


def _one_if_positive(number: object) -> Any:
    up_to_one = _min(number, 1)
    return up_to_one if _is_never_negative(number) else _max(up_to_one, 0)


def _is_same(one: object, other: object) -> bool:
    both = [side.node.expr if isinstance(side, torch.SymInt) else side for side in (one, other)]
    return bool(both[0] == both[1])


def _is_none_without(comparison: Comparison, number: Any) -> bool:
    """Whether the number, or what it is the negative of, is 0 wherever the comparison does not hold."""
    left, sign, right = comparison
    if not _is_same(number, left) and not _is_same(-number, left):
        return False
    is_nothing_else = sign == "!=" or (sign == ">" and _is_never_negative(left))
    is_flag = sign == "==" and isinstance(left, torch.SymInt) and _bounds(left).lower == 0 and _bounds(left).upper == 1
    return (is_nothing_else and _is_same(right, 0)) or (is_flag and _is_same(right, 1))


def _divisor(remainder: object) -> int:
    """Of `n % 4`; 0 of something else."""
    if not isinstance(remainder, torch.SymInt) or type(remainder.node.expr).__name__ not in ("Mod", "PythonMod"):
        return 0
    divisor = remainder.node.expr.args[1]
    return max(int(divisor), 0) if divisor.is_Integer else 0


def _is_what_is_left(comparison: Comparison, number: Any) -> bool:
    """Whether the number is `4 - n % 4`, and the test is whether that remainder is something."""
    left, sign, right = comparison
    return sign in ("!=", ">") and _is_same(right, 0) and _divisor(left) > 0 and _is_same(number, _divisor(left) - left)


class PadByNothing(Transformer):
    """Beside `if test: x = pad(x, by)` stands `x = pad(x, amounts(size_test(…), by))`, for sizes that are open."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._function = node
        self._count = 0
        self.generic_visit(node)
        return ast.fix_missing_locations(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        comparisons = _comparisons(node.test)
        flags = [inner for inner in node.body if isinstance(inner, ast.If) and isinstance(inner.test, ast.Name)]
        always = [statement for statement in node.body if statement not in flags]
        if not comparisons or node.orelse or not self._is_all(node, always):
            return node
        self._count += 1
        applies = ast.Name(f"_applies_{self._count}", ast.Load())
        asked = _ASKED.filled(Match({"applies": applies}), node.test)[0]
        asked.left.value.args = comparisons
        unset: list[ast.expr] = [ast.UnaryOp(ast.Not(), copied(flag.test)) for flag in flags]
        head = ast.If(ast.BoolOp(ast.And(), [*unset, asked]) if unset else asked, [], [])
        placed(head, node.test)
        ast.copy_location(head, node)
        head.body = [_by_amounts(copied(statement), applies) for statement in always]
        for name, before in self._numbers_before(node).items():
            found = Match({"name": ast.Name(name, ast.Load()), "applies": applies, "before": before})
            head.body += _NUMBER.filled(found, node)
        head.orelse = [node]
        return head

    def _is_all(self, node: ast.If, always: Sequence[ast.stmt]) -> bool:
        """Whether the test decides nothing but how far to pad, where the flags in it are not set."""
        inside = {id(inner) for inner in ast.walk(node)}
        outside = [inner for inner in ast.walk(self._function) if id(inner) not in inside]
        masks = [statement for statement in always if self._is_mask_that_hides_nothing(statement, outside)]
        padded = [statement for statement in always if _pad_call(statement) is not None or _cut(statement) is not None]
        made = [statement for statement in always if statement not in masks and statement not in padded]
        if not padded or not all(_is_arithmetic(statement) for statement in made):
            return False
        names = _stored(made) - self._numbers_before(node).keys()
        tests = [inner.test for inner in outside if isinstance(inner, ast.If | ast.IfExp)]
        return not names & _reads_of_others(outside) and not any(is_same_tree(test, node.test) for test in tests)

    def _numbers_before(self, node: ast.If) -> dict[str, ast.Constant]:
        """The numbers that the test decides about, and what each of them is where it is false."""
        block = next(block for block in _blocks(self._function) if any(one is node for one in block))
        before = list(itertools.takewhile(lambda one: one is not node, block))
        found = {name: _last_value(name, before) for name in _numbers(node)}
        return {name: value for name, value in found.items() if value is not None}

    @staticmethod
    def _is_mask_that_hides_nothing(statement: ast.stmt, outside: Sequence[ast.AST]) -> bool:
        """Whether ones become the mask where there is none, and what is read of it tells only where to fill."""
        if not isinstance(statement, ast.If) or statement.orelse or len(statement.body) != 1:
            return False
        none, ones = _NO_MASK.match(statement.test), _ONES.match(statement.body[0])
        if none is None or ones is None or none.text("mask") != ones.names.get("mask", ones.text("mask")):
            return False
        return _only_hides(none.text("mask"), outside)


def _only_hides(mask: str, nodes: Sequence[ast.AST]) -> bool:
    """Whether a mask is read to fill what it hides, and where there is one, alone."""
    uses = [node for node in nodes if isinstance(node, ast.If) and _is_asked_for(mask, node)]
    names = {mask}
    known: set[int] = set()
    for node in (inner for use in uses for inner in ast.walk(use)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            base = _base(node.value)
            if base is not None and base.id in names:
                names.add(node.targets[0].id)
                known.add(id(base))
        bases = [_base(found.holes["mask"]) for hidden in _HIDDEN if (found := hidden.match(node))]
        known |= {id(base) for base in bases if base is not None}
    known |= {id(node.test.left) for node in uses if isinstance(node.test, ast.Compare)}
    reads = [node for node in nodes if isinstance(node, ast.Name) and node.id in names and not _is_store(node)]
    return all(id(read) in known for read in reads)


def _is_asked_for(mask: str, node: ast.If) -> bool:
    found = _A_MASK.match(node.test)
    return found is not None and found.text("mask") == mask and not node.orelse


def _base(value: ast.expr) -> ast.Name | None:
    """The variable that something is a view of."""
    while not isinstance(value, ast.Name):
        if isinstance(value, ast.Subscript):
            value = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _VIEWS:
            value = value.func.value
        else:
            return None
    return value


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements in the tree."""
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


def _numbers(node: ast.If) -> list[str]:
    """The names that the branch gives a number of sizes."""
    assigned = [one for one in node.body if isinstance(one, ast.Assign) and _is_arithmetic(one)]
    names = [(one.targets[0], one.value) for one in assigned if len(one.targets) == 1]
    is_number = (not any(isinstance(part, ast.Tuple | ast.List) for part in ast.walk(value)) for _, value in names)
    kept = itertools.compress(names, is_number)
    return [target.id for target, _ in kept if isinstance(target, ast.Name)]


def _last_value(name: str, block: Sequence[ast.stmt]) -> ast.Constant | None:
    """The whole number that a name has behind a block; None if it has another one, or that is not known."""
    last = next((one for one in reversed(block) if name in _stored([one])), None)
    if not isinstance(last, ast.Assign) or not isinstance(last.targets[0], ast.Name) or len(last.targets) > 1:
        return None
    value = last.value
    return value if isinstance(value, ast.Constant) and type(value.value) is int else None


def _stored(statements: Sequence[ast.stmt]) -> set[str]:
    parts = (part for statement in statements for part in ast.walk(statement))
    return {part.id for part in parts if isinstance(part, ast.Name) and _is_store(part)}


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


def _comparisons(test: ast.expr) -> list[ast.expr]:
    """Each comparison of the test as what `size_test` takes; none if it is made of something else."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        parts = [_comparisons(value) for value in test.values]
        return [comparison for part in parts for comparison in part] if all(parts) else []
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or type(test.ops[0]) not in _SIGNS:
        return []
    sides = (test.left, test.comparators[0])
    if not all(isinstance(node, _ARITHMETIC) for side in sides for node in ast.walk(side)):
        return []
    sign = ast.Constant(_SIGNS[type(test.ops[0])])
    return _COMPARISON.filled(Match({"left": sides[0], "sign": sign, "right": sides[1]}), test)


def _is_arithmetic(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    return all(isinstance(node, _ARITHMETIC) for node in ast.walk(statement.value))


def _pad_call(statement: ast.stmt) -> ast.Call | None:
    """The call, if the statement pads a variable in place of itself."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return None
    call = statement.value
    is_pad = any(pad.match(call) for pad in _PADS)
    return call if is_pad and is_same_tree(call.args[0], statement.targets[0]) else None


def _cut(statement: ast.stmt) -> tuple[ast.Slice, ast.expr] | None:
    """The slice `:-n` and the size of its axis, if the statement cuts a variable at the end of that axis alone."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Subscript):
        return None
    variable, index = statement.value.value, statement.value.slice
    if not is_same_tree(variable, statement.targets[0]):
        return None
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    cuts = [place for place, part in enumerate(parts) if not _is_whole(part) and not _is_ellipsis(part)]
    part = parts[cuts[0]] if len(cuts) == 1 else None
    if not isinstance(part, ast.Slice) or part.upper is None or part.lower or part.step:
        return None
    if not _FROM_END.match(part.upper):
        return None
    axis = cuts[0] - len(parts) if any(map(_is_ellipsis, parts[: cuts[0]])) else cuts[0]
    return part, _SIZE.filled(Match({"x": variable, "axis": ast.Constant(axis)}), part)[0]


def _is_whole(part: ast.expr) -> bool:
    return isinstance(part, ast.Slice) and (part.lower, part.upper, part.step) == (None, None, None)


def _is_ellipsis(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value is Ellipsis


def _by_amounts(statement: ast.stmt, applies: ast.Name) -> ast.stmt:
    call, cut = _pad_call(statement), _cut(statement)
    if cut is not None:
        part, size = cut
        part.upper = _UPPER.filled(Match({"size": size, "applies": applies, "upper": part.upper or part}), part)[0]
    if call is None:
        return statement
    keyword = next((keyword for keyword in call.keywords if keyword.arg == "pad"), None)
    by = keyword.value if keyword else call.args[1]
    amount = _AMOUNTS.filled(Match({"applies": applies, "by": by}), by)[0]
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


#: What the statements beside a test call.
HELPERS = {"size_test": size_test, "amounts": amounts, "only_where": only_where, "number_or": number_or}
_replace = rewrite(PadByNothing, **HELPERS)


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
