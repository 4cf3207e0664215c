"""What an exported program that was handed over takes for granted of its sizes, as torch keeps it.

`ExportedProgram._guards_code` has the guards of its trace as Python (torch 2.11 to 2.13; kept in files, too), such as
`L['x'].size()[0] == L['y'].size()[1]`, and `range_constraints` the ends of its symbols. `ExportedProgram.module()` asks
for both (torch/export/_unlift.py, `_convert_guards_code_to_fn`), and so does a file.
"""

from __future__ import annotations

import ast
import logging
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
from torch.export import ExportedProgram
from torch.utils._sympy import functions
from torch.utils._sympy.numbers import int_oo

from .axes.limits import Limit
from .axes.regions import place_of, symbol_of
from .example import Place
from .leaf_paths import input_steps
from .signature import TracedInputs

logger = logging.getLogger(__name__)

_SIZE = re.compile(r"L((?:\['[^']*'\]|\[\d+\]|\.\w+)+?)\.size\(\)\[(\d+)\]")
_STEP = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")
_KNOWN_BY_NUMBER = re.compile(r"(.+)_(\d+)")
_OF_ITSELF = 2  # the least size that a trace takes for granted of an axis, and torch does not ask for

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.FloorDiv: functions.FloorDiv,
    ast.Mod: functions.PythonMod,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
}
_CALLED: Mapping[str, Callable[..., Any]] = {
    "max": functions.Max,
    "min": functions.Min,
    "Max": functions.Max,
    "Min": functions.Min,
    "FloorDiv": functions.FloorDiv,
    "Mod": functions.PythonMod,
    "PythonMod": functions.PythonMod,
}


def limits_of_program(program: ExportedProgram, traced: TracedInputs, names: Sequence[str]) -> list[Limit]:
    """The conditions on its sizes; `names` are those of all leaves of the inputs.

    That axes which were given one name are of one size is what was promised.
    """
    found = (*_ends(traced), *_guards(program, traced))
    return [Limit(_as_read(told, condition, names), condition) for told, condition in found]


_Told = tuple[str, sympy.Basic]


def _ends(traced: TracedInputs) -> Iterator[_Told]:
    """Those of `range_constraints`, at the first axis that is of a symbol."""
    seen: set[sympy.Basic] = set()
    for leaf, sizes in enumerate(traced.sizes):
        for axis, size in enumerate(sizes):
            if size in seen or size not in traced.ranges or not _is_tensor(traced, leaf):
                continue
            seen.add(size)
            low, high = traced.ranges[size].lower, traced.ranges[size].upper
            symbol = symbol_of(Place(leaf, axis))
            if low > _OF_ITSELF:
                yield f"{symbol} >= {low}", sympy.Ge(symbol, low)
            if high != int_oo:
                yield f"{symbol} <= {high}", sympy.Le(symbol, high)


def _guards(program: ExportedProgram, traced: TracedInputs) -> Iterator[_Told]:
    guards = getattr(program, "_guards_code", ())
    leaves = _leaves_by_path(program) if guards else {}
    for guard in guards:
        places = [_place(found, leaves) for found in _SIZE.finditer(guard)]
        known = [place for place in places if place is not None and _is_tensor(traced, place.leaf)]
        if len(known) == len(places) and _is_promised(guard, known, traced):
            continue
        told = _with_sizes(guard, map(symbol_of, known)) if len(known) == len(places) else guard
        try:
            yield told, _condition(ast.parse(told, mode="eval").body)
        except (_UntoldError, SyntaxError) as error:
            logger.warning("the file does not check a guard of the exported program, %s: %s", guard, error)


def _with_sizes(guard: str, sizes: Iterable[object]) -> str:
    """The text with these in the place of the sizes that it asks for."""
    given = iter(sizes)
    return _SIZE.sub(lambda _: str(next(given)), guard)


def _as_read(told: str, condition: sympy.Basic, names: Sequence[str]) -> str:
    """With each size as users read it: `x.shape[0]`."""
    for symbol in condition.free_symbols:
        place = place_of(symbol)
        told = re.sub(rf"\b{symbol}\b", f"{names[place.leaf]}.shape[{place.axis}]", told)
    return told


def _is_tensor(traced: TracedInputs, leaf: int) -> bool:
    return bool(traced.taken[leaf]) and hasattr(traced.leaves[leaf], "shape")


def _is_promised(guard: str, places: Sequence[Place], traced: TracedInputs) -> bool:
    """Whether it says that axes of one name are equal: those of a `Dim` may be 0 or 1, those of none at least 2."""
    sizes = [_size(traced, place) for place in places]
    named = [traced.ranges[size].lower < _OF_ITSELF for size in sizes if size in traced.ranges]
    first, _, second = _with_sizes(guard, sizes).partition(" == ")
    return first == second and bool(named) and all(named)


def _size(traced: TracedInputs, place: Place) -> sympy.Basic:
    """With what the trace has found equal in the place of it."""
    size = traced.leaves[place.leaf].shape[place.axis]
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


_Path = tuple[str, ...]


def _leaves_by_path(program: ExportedProgram) -> dict[_Path, int]:
    """Each leaf of the inputs by what torch calls it: `L['cache'].keys[0]`, and in strict mode `L['flat_args'][3]`."""
    exact = {steps: leaf for leaf, steps in enumerate(input_steps(program))}
    others: dict[_Path, int] = {("flat_args", str(leaf)): leaf for leaf in exact.values()}
    for (name, *steps), leaf in exact.items():
        by_number = _KNOWN_BY_NUMBER.fullmatch(name)
        if by_number is not None:  # of `*args`
            others[by_number[1], by_number[2], *steps] = leaf
    return {**others, **exact}


def _place(found: re.Match[str], leaves: Mapping[_Path, int]) -> Place | None:
    steps = (step[0] or step[1] or step[2] for step in _STEP.findall(found[1]))
    leaf = leaves.get(tuple(steps))
    return None if leaf is None else Place(leaf, int(found[2]))


class _UntoldError(Exception):
    """Something in a guard that is no whole number of the inputs' sizes."""


def _condition(node: ast.expr) -> sympy.Basic:
    """A relation, or several of them."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return sympy.And(*map(_condition, values))
        case ast.BoolOp(op=ast.Or(), values=values):
            return sympy.Or(*map(_condition, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return sympy.Not(_condition(operand))
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_number(one) for one in (left, *others)]
            pairs = zip(ops, sides[:-1], sides[1:], strict=True)
            return sympy.And(*(_looked_up(_COMPARED, type(op))(first, second) for op, first, second in pairs))
    raise _UntoldError(ast.unparse(node))


def _number(node: ast.expr) -> sympy.Expr:
    match node:
        case ast.Constant(value=int() as value):
            return sympy.Integer(value)
        case ast.Name(id=name) if name.startswith("size_"):
            return symbol_of(place_of(sympy.Symbol(name)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(left=left, op=op, right=right):
            return _looked_up(_BINARY, type(op))(_number(left), _number(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _looked_up(_CALLED, name)(*map(_number, args))
    raise _UntoldError(ast.unparse(node))


def _looked_up(table: Mapping[Any, Callable[..., Any]], key: Any) -> Callable[..., Any]:
    if key not in table:
        raise _UntoldError(getattr(key, "__name__", key))
    return table[key]
