"""What `max(a, b)` and `min(a, b)` of Python are where a trace has symbols or tensors for their operands.

Python gives one of its two operands: the second if it comes before the first, else the first, and so the first of two
that are alike, or that nothing comes before. torch 2.11 to 2.13 compute `torch.maximum`, `clamp` and `sym_max` while a
program is traced, which make NaN of one NaN, and a float of an int and a float. Here tensors of one element are chosen
by a `where`, and a number of which torch knows only at a call whether it is the int or the float is known as such.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from exportguard.size_floats import PRODUCTS, SUMS

_SCALARS = (bool, int, float, torch.SymInt, torch.SymFloat)

#: What is the int or the float of a `max` or `min`, as torch writes it, by the environment of its trace.
_OF_TWO_KINDS: weakref.WeakKeyDictionary[Any, set[sympy.Basic]] = weakref.WeakKeyDictionary()

#: What keeps its operands as they are, so that an int stays one beside ints.
_KEEPING = (
    *(*SUMS, *PRODUCTS),
    *("FloorDiv", "Identity", "Max", "Min", "Mod", "FloatMod", "Pow", "PowByNatural", "FloatPow", "PythonMod"),
)
_DIVISIONS = ("div", "true_divide", "divide")


def extreme(
    first: Any, second: Any, *, is_max: bool, python: Callable[..., Any], like: Callable[..., torch.Tensor]
) -> Any:
    """`max(first, second)` or `min(first, second)`.

    :param python: the function itself, which compares the two
    :param like: makes a tensor like another one of a number
    """
    operands = (first, second)
    if any(isinstance(operand, torch.Tensor) for operand in operands):
        return _of_tensors(first, second, is_max, like) if _are_alike(operands) else python(first, second)
    is_symbolic = any(isinstance(operand, torch.SymInt) for operand in operands)
    if not is_symbolic or any(type(operand) not in _SCALARS[1:] for operand in operands):
        return python(first, second)
    compute: Callable[..., Any] = torch.sym_max if is_max else torch.sym_min
    found = compute(first, second)
    if isinstance(found, torch.SymFloat):
        _OF_TWO_KINDS.setdefault(found.node.shape_env, set()).add(found.node.expr)
    return found


def _are_alike(operands: tuple[Any, Any]) -> bool:
    """Whether one tensor can stand for either of two: of one element, with the dtype that both have beside others."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    if any(type(tensor.numel()) is not int or tensor.numel() != 1 for tensor in tensors):
        return False
    if len(tensors) == 2:
        return tensors[0].dtype == tensors[1].dtype and tensors[0].dim() == tensors[1].dim()
    (number,) = (operand for operand in operands if not isinstance(operand, torch.Tensor))
    if type(number) not in (int, float):
        return False
    return tensors[0].is_floating_point() or (type(number) is int and tensors[0].dtype != torch.bool)


def _of_tensors(first: Any, second: Any, is_max: bool, like: Callable[..., torch.Tensor]) -> torch.Tensor:
    comes_before = second > first if is_max else second < first
    tensor = first if isinstance(first, torch.Tensor) else second
    a, b = (one if isinstance(one, torch.Tensor) else like(tensor, one) for one in (first, second))
    return torch.where(comes_before, b, a)


def is_of_two_kinds(number: object) -> bool:
    """Whether a symbolic number is an int for some sizes and a float for others."""
    if not isinstance(number, torch.SymFloat):
        return False
    known = _OF_TWO_KINDS.get(number.node.shape_env)
    return bool(known) and _is_among(number.node.expr, known or set())


def _is_among(expression: sympy.Basic, known: set[sympy.Basic]) -> bool:
    if expression in known:
        return True
    if type(expression).__name__ not in _KEEPING or not any(_is_among(part, known) for part in expression.args):
        return False
    return all(_is_among(part, known) or _may_be_whole(part) for part in expression.args)


def _may_be_whole(part: sympy.Basic) -> bool:
    if isinstance(part, sympy.Float):
        return float(part).is_integer()
    return type(part).__name__ == "ToFloat" or bool(part.is_integer)


def decided_by_kind(graphs: list[Graph]) -> Iterator[Node]:
    """The nodes whose result, or whose dtype, is another one if a number of two kinds is the int, not the float."""
    for graph in graphs:
        for node in graph.nodes:
            numbers = [value for value in _values(node) if is_of_two_kinds(value)]
            if numbers and (node.op == "output" or _makes_a_dtype(node)):
                yield node


def _values(node: Node) -> list[Any]:
    return [given.meta.get("val") for given in node.all_input_nodes]


def _makes_a_dtype(node: Node) -> bool:
    """Whether a node gives floats of numbers alone: no tensor that it takes has any, and it is no quotient."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    made = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]
    given = [value for value in _values(node) if isinstance(value, torch.Tensor)]
    is_quotient = node.target._schema.name.split("::")[1] in _DIVISIONS and "rounding_mode" not in node.kwargs
    if is_quotient or any(tensor.is_floating_point() or tensor.is_complex() for tensor in given):
        return False
    return any(tensor.is_floating_point() or tensor.is_complex() for tensor in made)
