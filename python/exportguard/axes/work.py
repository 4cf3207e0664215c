"""How much a program computes at other sizes: the products of its matrix products, convolutions and attention."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node

from exportguard.signature import raw_size

from .evaluation import Evaluation
from .expressions import Sizes

_Shape = Sequence[Any]
_aten = torch.ops.aten


class Work:
    """The products of a program, of what stands in its graph once: a block that is replayed counts for one."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        counted = collections.Counter(
            product
            for node in nodes
            if node.op == "call_function" and (counts := _PRODUCTS.get(node.target)) is not None
            if (product := _product(counts, node)) is not None
        )
        self._parts = [
            (count, Evaluation(product, sorted(product.free_symbols, key=str)), product.free_symbols)
            for product, count in counted.items()
        ]

    def products(self, sizes: Sizes) -> int:
        """How many numbers are multiplied at these sizes, as far as they tell."""
        known = ((count, found) for count, found, symbols in self._parts if sizes.keys() >= symbols)
        return sum(count * int(found(sizes) or 0) for count, found in known)


def _product(counts: Callable[[_Shape, Sequence[_Shape]], Any], node: Node) -> sympy.Expr | None:
    """None where a shape is not known."""
    made = _shape(node)
    given = [_shape(each) if isinstance(each, Node) else None for each in node.args[:3]]
    known = [shape for shape in given if shape is not None]
    if made is None or len(known) < _LEAST:
        return None
    return sympy.sympify(counts(made, known))


def _shape(node: Node) -> _Shape | None:
    value = node.meta.get("val")
    value = value[0] if isinstance(value, tuple | list) and value else value  # attention with what its gradient needs
    return [raw_size(size) for size in value.shape] if isinstance(value, torch.Tensor) else None


def _count(shape: _Shape) -> Any:
    return math.prod(shape, start=sympy.Integer(1))


def _of_matrices(made: _Shape, given: Sequence[_Shape]) -> Any:
    return _count(made) * given[-2 if len(given) < 3 else 1][-1]  # `addmm` has what is added in front


def _of_linear(made: _Shape, given: Sequence[_Shape]) -> Any:
    return _count(made) * given[0][-1]


def _of_convolution(made: _Shape, given: Sequence[_Shape]) -> Any:
    return _count(made) * _count(given[1][1:])


def _of_transposed(made: _Shape, given: Sequence[_Shape]) -> Any:
    return _count(given[0]) * _count(given[1][1:])


def _of_attention(made: _Shape, given: Sequence[_Shape]) -> Any:
    return (_count(given[0]) + _count(made)) * given[1][-2]


_LEAST = 2  # operands of each
_PRODUCTS: dict[Any, Callable[[_Shape, Sequence[_Shape]], Any]] = {
    **dict.fromkeys(
        (_aten.mm.default, _aten.bmm.default, _aten.matmul.default, _aten.addmm.default, _aten.baddbmm.default),
        _of_matrices,
    ),
    _aten.linear.default: _of_linear,
    **dict.fromkeys(
        (_aten.conv1d.default, _aten.conv2d.default, _aten.conv3d.default, _aten.convolution.default), _of_convolution
    ),
    **dict.fromkeys(
        (_aten.conv_transpose1d.default, _aten.conv_transpose2d.input, _aten.conv_transpose3d.input), _of_transposed
    ),
    _aten.scaled_dot_product_attention.default: _of_attention,
}
