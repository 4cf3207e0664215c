"""Where the last digit of a function of `math` decides what is computed of a size: `int(math.exp2(math.log2(n)))`.

ONNX has no operator for many of these functions in double precision. A file computes them from others, and may be off
from C's by the last digits. Beside a tensor that is nothing; what is rounded to a whole number, or compared, is another
one where the exact value is that number. Of one function of a rational number it is not, but for the powers and cubes
that are seen to: such values are no rational numbers, and nearly none is that near to one. Of what is made of two of
them, or with constants as `math.pi`, it often is.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterator, Sequence

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

_CUBE_ROOT = 1 / 3
_DIGITS = 2**20  # what the constants of arithmetic may divide by to be no approximations


class _Made(enum.IntEnum):
    """How a number was made of sizes."""

    RATIONAL = 0  # by arithmetic with numbers of few digits
    DECIMAL = 1  # by arithmetic with others, which may stand for an irrational one
    SAME = 2  # with functions that a file computes as C does
    OFF = 3  # with one function that it does not, whose value is no rational number
    ROOT = 4  # by a root, which may be one
    MIXED = 5  # with more than one


_OFF = (
    *("log1p", "log2", "log10", "tan", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "erf", "erfc"),
    *("lgamma", "special_erf", "special_erfc", "special_log1p"),
)
_ROOTS = ("hypot", "pow")  # of powers that of a third alone
_GROWING = ("expm1", "special_expm1", "sinh", "cosh")  # to where the last digits are whole numbers
_SUMS = ("add", "sub", "rsub", "mul", "div", "truediv", "true_divide")
_REMAINDERS = ("mod", "remainder", "fmod")
_DECIDING = (
    *("eq", "ne", "lt", "le", "gt", "ge", "floor", "ceil", "trunc", "round", "floordiv", "floor_divide", "sym_int"),
    *("is_integer", "isnan", "isinf", "isfinite", "sign"),
)
_KEEPING = (
    *("reshape", "view", "clone", "detach", "alias", "item", "_local_scalar_dense", "scalar_tensor", "sym_float"),
    *("neg", "abs", "pos", "copysign", "where", "maximum", "minimum", "sym_max", "sym_min", "sym_ite", "clamp"),
    *("squeeze", "lift_fresh_copy", "full", "full_like", "ones_like", "zeros_like"),
)
_CONVERTING = ("to", "_to_copy")
_SIZES = ("sym_size", "sym_numel", "sym_stride", "sym_storage_offset")


def decided_by_last_digits(module: GraphModule) -> Iterator[Node]:
    """The nodes that round or compare a number of which only C knows the last digit."""
    graphs = [inner.graph for inner in module.modules() if isinstance(inner, GraphModule)]
    if any(_is_function_of_a_number(node) for graph in graphs for node in graph.nodes):
        yield from _in(module, [])


def _is_function_of_a_number(node: Node) -> bool:
    value = node.meta.get("val")
    is_tensor = isinstance(value, torch.Tensor) and value.dim() > 0
    return not is_tensor and node.op == "call_function" and _name(node) in (*_OFF, *_GROWING, *_ROOTS)


def _in(module: GraphModule, given: Sequence[_Made | None]) -> Iterator[Node]:
    made: dict[Node, _Made | None] = {}
    operands = iter(given)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            made[node] = next(operands, None)
        elif node.op == "call_function":
            if _decides(node) and _of_inputs(node, made) == _Made.MIXED:
                yield node
            if node.target is torch.ops.higher_order.cond:
                inner = [_of(operand, made) for operand in node.args[3]]
                for branch in node.args[1:3]:
                    yield from _in(getattr(module, branch.target), inner)
            made[node] = _of_call(node, made)


def _name(node: Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[1]
    return getattr(node.target, "__name__", "")


def _of(value: object, made: dict[Node, _Made | None]) -> _Made | None:
    """None for what is made of tensor data, or is no number."""
    if isinstance(value, Node):
        return made.get(value)
    has_few_digits = not isinstance(value, float) or (value * _DIGITS).is_integer()
    return _Made.RATIONAL if has_few_digits else _Made.DECIMAL


def _of_inputs(node: Node, made: dict[Node, _Made | None]) -> _Made | None:
    found = [_of(value, made) for value in pytree.tree_leaves((node.args, node.kwargs))]
    known = [one for one in found if one is not None]
    return max(known, default=_Made.RATIONAL) if len(known) == len(found) else None


def _decides(node: Node) -> bool:
    name = _name(node)
    if name in _CONVERTING:
        return not _is_float(node) and any(map(_is_float, node.all_input_nodes))
    return name in _DECIDING or name in _REMAINDERS


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, float | torch.SymFloat) or (isinstance(value, torch.Tensor) and value.is_floating_point())


def _of_call(node: Node, made: dict[Node, _Made | None]) -> _Made | None:
    name, value = _name(node), node.meta.get("val")
    if name in _SIZES:
        return _Made.RATIONAL
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return _of_results(node, node.args[0], made)
    found = _of_inputs(node, made)
    if found is None or isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    if isinstance(value, torch.Tensor) and value.dim():
        return None
    if _decides(node) and name not in _REMAINDERS:
        return _Made.RATIONAL
    return found if name in (*_KEEPING, *_CONVERTING) else _of_function(node, found, made)


def _of_function(node: Node, found: _Made, made: dict[Node, _Made | None]) -> _Made:
    name = _name(node)
    if name in _GROWING:
        return _Made.MIXED
    if name in _OFF:
        return _Made.OFF if found <= (_Made.RATIONAL if name == "tan" else _Made.DECIMAL) else _Made.MIXED
    if name == "hypot" or (
        name == "pow" and node.args[1] == _CUBE_ROOT and isinstance(node.target, torch._ops.OpOverload)
    ):
        return _Made.ROOT if found <= _Made.DECIMAL else _Made.MIXED
    if name not in (*_SUMS, *_REMAINDERS):
        return max(found, _Made.SAME) if found <= _Made.SAME else _Made.MIXED
    if found < _Made.OFF:
        return found
    others = sorted(_of(value, made) or _Made.RATIONAL for value in node.args[:2])[:1]
    return _Made.OFF if found == _Made.OFF and others == [_Made.RATIONAL] else _Made.MIXED


def _of_results(node: Node, call: Node, made: dict[Node, _Made | None]) -> _Made | None:
    """What comes out of a branch or a loop."""
    taken = [_of(leaf, made) for leaf in pytree.tree_leaves(call.args) if isinstance(leaf, Node)]
    is_off = any(one is not None and one >= _Made.OFF for one in taken)
    return _Made.MIXED if is_off and _is_float(node) and not getattr(node.meta["val"], "ndim", 0) else None
