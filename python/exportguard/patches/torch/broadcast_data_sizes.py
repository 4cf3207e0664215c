"""Tensors of sizes that tensor data decide, beside others and expanded to their size.

Of `x[mask]` torch 2.11 to 2.13 does not know how many rows it has. Beside a tensor of `n` rows, and where it is
expanded to `n`, they take for granted that it has as many, and write `n` for its size from there on. It may have a
single row as well, which is broadcast: a file would leave out an expansion that it needs, or count `n` rows where there
is one. Here the result has `n` rows, and the size of what is broadcast stays one of its own, which is 1 or `n`. Of
`x[mask] + y[other]` they take for granted that both have as many rows; here the result has a size made of both.

So it is with axes that a user gave different names: where `y` of `m` rows is expanded to the `n` of another input, or
copied into that, it may have one row as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from exportguard.common_sizes import common_size, parts_of
from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import NEEDED, Patch, Replacement, Verdict, by_target, not_needed
from exportguard.size_names import are_named_apart

if TYPE_CHECKING:
    from exportguard._core import Changes

_SHAPES = "torch._refs._broadcast_shapes"
_SHAPES_OF_META = "torch._meta_registrations._broadcast_shapes"
_PAIR = "torch._subclasses.fake_impls.infer_size"
_ARGUMENTS = "torch._refs._maybe_broadcast"
_ARGUMENTS_OF_META = "torch._meta_registrations._maybe_broadcast"
_CHANGED = "torch._meta_registrations.check_inplace_broadcast"
_EXPAND = "torch._refs.expand"
_EXPANDED = "torch._prims._broadcast_in_dim_meta"


def _of_shapes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The common shape of several; of those that are None, or a number, as torch has it."""

    @functools.wraps(original)
    def _broadcast_shapes(*shapes: Any) -> Any:
        lists = [shape for shape in shapes if isinstance(shape, Sequence)]
        if not any(map(_has_data_sizes, lists)):
            return original(*shapes)
        settled = iter(_settled(lists))
        return original(*(next(settled) if isinstance(shape, Sequence) else shape for shape in shapes))

    return _broadcast_shapes


def _of_pair(original: Callable[..., Any]) -> Callable[..., Any]:
    """The common shape of two operands of an operator by elements."""

    @functools.wraps(original)
    def infer_size(a: Sequence[Any], b: Sequence[Any]) -> Any:
        return original(*_settled([a, b])) if _has_data_sizes(a) or _has_data_sizes(b) else original(a, b)

    return infer_size


def _of_expanded(original: Callable[..., Any]) -> Callable[..., Any]:
    """A tensor expanded to a shape, `broadcast_dimensions` being the axes of that shape that it has."""

    @functools.wraps(original)
    def _broadcast_in_dim_meta(a: torch.Tensor, shape: Sequence[Any], broadcast_dimensions: Sequence[int]) -> Any:
        wanted = [shape[place] for place in broadcast_dimensions]
        if not _may_have_ones(a.shape, wanted):
            return original(a, shape, broadcast_dimensions)
        return original(_settled_tensor(a, wanted), shape, broadcast_dimensions)

    return _broadcast_in_dim_meta


def _of_expand(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same by the function that shape functions call, beside the operator."""

    @functools.wraps(original)
    def expand(a: torch.Tensor, *shape: Any, implicit: bool = False) -> Any:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        last = wanted[len(wanted) - a.dim() :]
        if len(wanted) < a.dim() or not _may_have_ones(a.shape, last):
            return original(a, *shape, implicit=implicit)
        return original(_settled_tensor(a, last), *shape, implicit=implicit)

    return expand


def _of_changed(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is changed in place keeps its size: of each operand an axis has that size, or 1."""

    @functools.wraps(original)
    def check_inplace_broadcast(self_shape: Sequence[Any], *args_shape: Sequence[Any]) -> None:
        if _has_data_sizes(self_shape):
            args_shape = tuple(_operand_beside(shape, self_shape) for shape in args_shape)
        original(self_shape, *args_shape)

    return check_inplace_broadcast


def _of_arguments(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors as they broadcast together, whose sizes torch otherwise takes for equal once more."""

    @functools.wraps(original)
    def _maybe_broadcast(*args: Any, preserve_cpu_scalar_tensors: bool = True) -> Any:
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        if not any(_has_data_sizes(each.shape) for each in tensors):
            return original(*args, preserve_cpu_scalar_tensors=preserve_cpu_scalar_tensors)
        settled = iter(_settled([each.shape for each in tensors]))
        wide = (
            each.as_strided(next(settled), each.stride()) if isinstance(each, torch.Tensor) else each for each in args
        )
        return original(*wide, preserve_cpu_scalar_tensors=preserve_cpu_scalar_tensors)

    return _maybe_broadcast


def _apply(changes: Changes) -> list[Replacement]:
    # torch 2.11 to 2.13: what gives an operator of `prims` its shape is an attribute of the operator.
    operator: Any = torch.ops.prims.broadcast_in_dim.default
    changes.set_attribute(operator, "prim_meta_impl", _of_expanded(operator.prim_meta_impl))
    return []


#: Those that torch writes in Python, in the function that returns a tensor of any shape, with `out=` the changed one.
_CHANGING = (
    *("bitwise_and_.Tensor", "bitwise_or_.Tensor", "bitwise_xor_.Tensor"),
    *("__iand__.Tensor", "__ior__.Tensor", "__ixor__.Tensor"),
    *("bitwise_left_shift_.Tensor", "bitwise_right_shift_.Tensor", "__ilshift__.Tensor", "__irshift__.Tensor"),
    *("floor_divide_.Tensor", "div_.Tensor_mode", "remainder_.Tensor", "fmod_.Tensor", "pow_.Tensor"),
    *("eq_.Tensor", "ne_.Tensor", "lt_.Tensor", "le_.Tensor", "gt_.Tensor", "ge_.Tensor"),
    *(
        "clamp_min_.Tensor",
        "clamp_max_.Tensor",
        "copysign_.Tensor",
        "xlogy_.Tensor",
        "atan2_.default",
        "hypot_.default",
    ),
)


def _changing() -> Iterator[Any]:
    """The operators, of which torch 2.11 to 2.13 ask whether the changed tensor is to be resized."""
    from torch._decomp import decomposition_table

    for name in _CHANGING:
        packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        if op in decomposition_table:
            yield op


def _of_change(op: Any) -> Callable[..., Any]:
    """How what an operator changes in place looks behind it: as before. Eager mode resizes nothing that it changes."""
    from torch._decomp import decomposition_table

    made = decomposition_table[op]

    def change(mode: Any, self: torch.Tensor, other: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        with mode:
            # Python hands a number on as it is: `x //= 3`.
            shape = other.shape if isinstance(other, torch.Tensor) else ()
            if not _has_data_sizes((*self.shape, *shape)):
                changed: torch.Tensor = made(self, other, *args, **kwargs)
                return changed
            one = self.new_empty([1] * self.ndim)
            another = other.new_empty([1] * other.ndim) if isinstance(other, torch.Tensor) else other
            made(one, another, *args, **kwargs)  # the dtypes are looked at
            torch._meta_registrations.check_inplace_broadcast(self.shape, shape)  # type: ignore[no-untyped-call]
            return self

    return change


def _probe_of_changes() -> Verdict:
    return NEEDED if any(_changing()) else not_needed("torch does not write them in Python")


def _apply_to_changes(changes: Changes) -> None:
    # torch 2.11 to 2.13: `FakeTensorMode` looks here first where a size is a symbol.
    from torch._subclasses.fake_impls import get_fast_op_impls

    for op in _changing():
        changes.set_item(get_fast_op_impls(), op, _of_change(op))


def _has_data_sizes(shape: Sequence[Any]) -> bool:
    return any(map(_is_of_data, shape))


def _may_have_ones(shape: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether a tensor that is expanded may have one row where another size is wanted, though the example has that."""
    return _has_data_sizes(shape) or any(map(are_named_apart, shape, wanted))


def _is_of_data(size: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

    return isinstance(size, torch.SymInt) and has_free_unbacked_symbols(size)


def _settled(shapes: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The shapes with 1 for sizes that data decide, where another operand has a size that they do not.

    Where data decide all sizes of an axis each becomes the common one: of masks that count 1 and `k` rows it is `k`.
    """
    settled = [list(shape) for shape in shapes]
    for axis in range(1, max(map(len, settled)) + 1):
        sizes = [shape[-axis] for shape in settled if axis <= len(shape)]
        known = next(filter(_is_known, sizes), None)
        common = _common_size(sizes) if known is None else None
        for shape in settled:
            if axis <= len(shape) and _is_of_data(shape[-axis]):
                shape[-axis] = _one_beside(shape[-axis], known) if known is not None else common
    return settled


def _common_size(sizes: Sequence[Any]) -> Any:
    """What sizes that data decide make together, all of them being 1 or one number `k`, which may be 0.

    Of one that was made so the parts are taken, in place of itself.
    """
    of_data = [size for size in sizes if _is_of_data(size)]
    parts = {part for size in of_data for part in parts_of(size.node.expr)}
    if not of_data or len(parts) == 1:
        return of_data[0] if of_data else None
    return of_data[0].node.shape_env.create_symintnode(common_size(parts), hint=None)


def _settled_tensor(a: torch.Tensor, wanted: Sequence[Any]) -> torch.Tensor:
    """A tensor with 1 for sizes that data decide, where another size is wanted."""
    sizes = [_one_beside(size, other) for size, other in zip(a.shape, wanted, strict=True)]
    return a.as_strided(sizes, a.stride())


def _operand_beside(shape: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
    """The shape of an operand with 1 where data decide how long the changed tensor is."""
    ends = range(1, min(len(shape), len(kept)) + 1)
    ones = {axis: _one_beside(shape[-axis], kept[-axis]) for axis in ends if _is_of_data(kept[-axis])}
    return [ones.get(len(shape) - place, size) for place, size in enumerate(shape)]


def _is_known(size: Any) -> bool:
    """Whether it is a size that data do not decide, and to which others are broadcast."""
    return not _is_of_data(size) and not (isinstance(size, int) and size == 1)


def _one_beside(size: Any, other: Any) -> Any:
    """1 for a size that is 1 or another one, where data decide one of them or both have names; else the size itself."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_or

    are_apart = _is_of_data(size) or _is_of_data(other) or are_named_apart(size, other)
    if not are_apart or statically_known_true(size == other):
        return size
    if isinstance(other, int) and other <= 1:  # as it is
        return size
    torch._check(sym_or(size == 1, size == other))  # type: ignore[no-untyped-call]
    return 1


_UPSTREAM = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/"

PATCHES = (
    Patch(
        name="broadcast sizes of data",
        kind="torch",
        target=(_SHAPES, _SHAPES_OF_META, _PAIR, _ARGUMENTS, _ARGUMENTS_OF_META, _CHANGED, _EXPAND),
        reason="a tensor whose rows data count is taken to have as many as one beside it, also where it has one",
        upstream=f"{_UPSTREAM}_refs/__init__.py",
        probe=expecting(
            Expected(path=_SHAPES, parameters="_shapes", has=("guard_or_false(common_shape[idx] == 1)",)),
            Expected(path=_PAIR, parameters="a, b", has=("guard_or_false(sizeA == 1)",)),
            Expected(path=_ARGUMENTS, parameters="args, preserve_cpu_scalar_tensors", has=("guard_or_false(x != y)",)),
            Expected(path=_CHANGED, parameters="self_shape, args_shape", has=("broadcasted_shape == self_shape",)),
            Expected(path=_EXPAND, parameters="a, shape, implicit"),
        ),
        replace=by_target(
            {
                _SHAPES: _of_shapes,
                _PAIR: _of_pair,
                _ARGUMENTS: _of_arguments,
                _CHANGED: _of_changed,
                _EXPAND: _of_expand,
            }
        ),
    ),
    Patch(
        name="expanded sizes of data",
        kind="torch",
        target=_EXPANDED,
        reason="a tensor whose rows data count is taken to have as many as it is expanded to, also where it has one",
        upstream=f"{_UPSTREAM}_prims/__init__.py",
        probe=expecting(
            Expected(
                path=_EXPANDED,
                parameters="a, shape, broadcast_dimensions",
                has=("guard_or_false(a.shape[original_idx] == 1)",),
            )
        ),
        apply=_apply,
    ),
    Patch(
        name="changes of sizes of data",
        kind="torch",
        target=tuple(f"torch.ops.aten.{name}" for name in _CHANGING),
        reason="whether a tensor is resized is asked where it is changed in place, as in `x[i:] |= y[i:]`",
        upstream=f"{_UPSTREAM}_prims_common/wrappers.py",
        probe=_probe_of_changes,
        apply=_apply_to_changes,
    ),
)
