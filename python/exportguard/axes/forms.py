"""Operators whose results have another form at other sizes: another rank, or another number of parts.

`x.squeeze(1)` takes an axis away where it is of size 1, `x.chunk(2)` gives one part of an axis of size 1. A file has
one rank for each value and the parts of the trace, the last ones empty. Torch traces with sizes from 2 up, and asks no
question of a size where all of those give the same form: what such an operator takes for granted is therefore a
condition like those that the model asks for.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.symbol import SymT, symbol_is_type

from exportguard.errors import ExportError
from exportguard.model_code import is_users
from exportguard.signature import TracedInputs, raw_size

from .recording import Decision, QuestionOfNone

_aten = torch.ops.aten

_SQUEEZES = (_aten.squeeze.default, _aten.squeeze.dim, _aten.squeeze.dims)
_SQUEEZES_IN_PLACE = (_aten.squeeze_.default, _aten.squeeze_.dim, _aten.squeeze_.dims)


def _quotient_up(size: sympy.Expr, part: sympy.Expr) -> sympy.Expr:
    return FloorDiv(size + part - 1, part)


def _count_of_chunks(size: sympy.Expr, chunks: sympy.Expr) -> sympy.Expr:
    return _quotient_up(size, _quotient_up(size, chunks))


LOOPS = (torch.ops.higher_order.scan, torch.ops.higher_order.while_loop)

#: How many parts there are of a size, by the operator's second argument.
_COUNTS: Mapping[Any, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    _aten.chunk.default: _count_of_chunks,
    _aten.unsafe_chunk.default: _count_of_chunks,
    _aten.split.Tensor: _quotient_up,
    _aten.unsafe_split.Tensor: _quotient_up,
}

#: Of one row they give a number, of several a matrix.
_COVARIANCES = (_aten.cov.default, _aten.corrcoef.default)

#: What takes an axis away that has one entry: a covariance of one row is a number.
SQUEEZING = (*_SQUEEZES, *_SQUEEZES_IN_PLACE, *_COVARIANCES)

#: The operators of this module.
FORMED = (*SQUEEZING, *_COUNTS)

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def formed_as_traced(node: Node) -> Callable[..., Any] | None:
    """What computes such a node in the form that it was traced with; None for every other one."""
    if node.target in _SQUEEZES or node.target in _SQUEEZES_IN_PLACE:
        # The conversion leaves out those that the trace knows to be of size 1, and no others.
        axes = [axis for axis, size in _asked_to_squeeze(node) if isinstance(size, int) and size == 1]
        in_place = node.target in _SQUEEZES_IN_PLACE

        def squeezed(x: torch.Tensor, *_: object) -> torch.Tensor:
            return x.squeeze_(axes) if in_place else torch.squeeze(x, axes)

        return squeezed
    if node.target in _COVARIANCES:
        covariance: Any = node.target
        rank = node.meta["val"].dim()

        def of_rows(x: torch.Tensor, **options: Any) -> torch.Tensor:
            found: torch.Tensor = covariance(x, **options)
            return found.reshape(found.numel(), 1) if rank and not found.dim() else found

        return of_rows
    if node.target in _COUNTS:
        cut: Any = node.target
        count = len(node.meta["val"])

        def parts(x: torch.Tensor, given: int, dim: int = 0) -> list[torch.Tensor]:
            found = list(cut(x, given, dim))
            return found + [found[-1].narrow(dim, 0, 0)] * (count - len(found))

        return parts
    return None


def decisions_of_forms(calls: Iterable[Node]) -> list[Decision]:
    """What these calls take for granted: an axis of no known size has not one entry, a cut has as many parts."""
    found: dict[sympy.Basic, Decision] = {}
    for node in calls:
        is_squeeze = node.target not in _COUNTS
        for condition in _of_squeeze(node) if is_squeeze else _of_cut(node):
            if condition.free_symbols and condition not in found:
                found[condition] = Decision(condition, line_of(node), is_of_model=True, is_of_squeeze=is_squeeze)
    return [*found.values()]


def require_no_squeezes_of_data(calls: Iterable[Node]) -> None:
    """Refuses to squeeze an axis of which tensor data alone tells how long it is, as of the rows of a mask.

    The result has one rank in a file, and in the model another one where there is a single entry. Torch takes each such
    size for another than 1 (`guard_or_false`, 2.11 to 2.13). One that a check of the model keeps from 1 is left.

    Raises:
        ExportError: with the line that squeezes.
    """
    for node in calls:
        if any(_may_be_one_by_data(size) for _, size in _asked_to_squeeze(node)):
            raise ExportError(_SQUEEZED.format(line_of(node) or node.format_node()))


def _may_be_one_by_data(size: Any) -> bool:
    if not isinstance(size, torch.SymInt):
        return False
    expression = raw_size(size)
    if not any(symbol_is_type(symbol, SymT.UNBACKED_INT) for symbol in expression.free_symbols):
        return False
    span = size.node.shape_env.bound_sympy(expression)
    return bool(span.lower <= 1 <= span.upper)


_SQUEEZED = (
    "an axis is squeezed of which tensor data alone tells the size ({}): where it has a single entry the model takes "
    "the axis away, and goes on with another rank, while a file has one rank for each value. What to do: name the axes "
    "that always have one entry, as `mask.nonzero().squeeze(1)`, or write `flatten()` or `reshape(…)` for what is "
    "meant; behind `torch._check(x.shape[0] > 1)` it may stay, as a covariance of rows may"
)


def questions_of_loops(loops: Iterable[Node], traced: TracedInputs) -> list[QuestionOfNone]:
    """What a program with these loops over tensors takes for granted of every size: that there is something to go
    through.

    What Python makes of no steps may be of another kind than what it makes of some: `sum([])` is a number.
    """
    line = next(map(line_of, loops), None)
    symbols = {symbol for sizes in traced.sizes for size in sizes for symbol in size.free_symbols}
    return [] if line is None else [QuestionOfNone(str(symbol), line) for symbol in sorted(symbols, key=str)]


def _of_squeeze(node: Node) -> Iterator[sympy.Basic]:
    return (sympy.Ne(size if isinstance(size, int) else raw_size(size), 1) for _, size in _asked_to_squeeze(node))


def _asked_to_squeeze(node: Node) -> list[tuple[int, Any]]:
    """The axes that are to go if they are of size 1, with their sizes; none of a number."""
    x, *asked = node.args
    assert isinstance(x, Node)
    sizes = x.meta["val"].shape
    if node.target in _COVARIANCES:
        return [(0, sizes[0])] if len(sizes) == 2 else []
    axes = pytree.tree_leaves(asked) if asked else range(len(sizes))
    return [(axis, sizes[axis]) for axis in axes] if sizes else []


def _of_cut(node: Node) -> Iterator[sympy.Basic]:
    """Nothing for a cut whose arguments are computed."""
    x, given, *rest = node.args
    axis = rest[0] if rest else node.kwargs.get("dim", 0)
    assert isinstance(node.target, torch._ops.OpOverload)
    if not isinstance(x, Node) or not isinstance(given, int) or not isinstance(axis, int):
        return
    size = x.meta["val"].shape[axis]
    if not isinstance(size, int):
        yield sympy.Eq(_COUNTS[node.target](raw_size(size), sympy.Integer(given)), len(node.meta["val"]))


def places_of(node: Node) -> list[tuple[str, int]]:
    """Files and lines of the calls that made the node, the innermost last."""
    frames = _FRAME.finditer(node.meta.get("stack_trace") or "")
    return [(frame["file"], int(frame["line"])) for frame in frames]


def line_of(node: Node) -> str:
    """The innermost line of the model that made the node."""
    places = [place for place in places_of(node) if is_users(place[0])]
    return f"{places[-1][0]}:{places[-1][1]}: {linecache.getline(*places[-1]).strip()}" if places else ""
