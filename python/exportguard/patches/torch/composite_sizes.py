"""Operators of torch that are made of others in C++ and read sizes as numbers there: dynamic axes become constants.

Each is written in Python, in operators that take symbolic sizes, where the dispatcher looks for what a composite
operator is made of. It stays in the program, with the shape that it then has; the converter has a lowering of its own,
or takes it apart in the same way (`exportguard.composites`).
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import is_contiguous_or_false

from exportguard.composites import COMPOSITES
from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

if TYPE_CHECKING:
    from exportguard._core import Changes

_aten = torch.ops.aten
_Made = Callable[..., Any]

# Without annotations in torch 2.11 to 2.13.
_broadcast_shapes: _Made = torch.broadcast_shapes
_check: _Made = torch._check


def take_along_dim(self: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """`gather` of tensors that broadcast to each other but for the axis."""
    if dim is None:
        return self.reshape(-1).gather(0, indices.reshape(-1))
    axis = dim % self.ndim
    others = [tuple(1 if i == axis else size for i, size in enumerate(x.shape)) for x in (self, indices)]
    shape = _broadcast_shapes(*others)

    def grown(x: torch.Tensor) -> torch.Tensor:
        return x.expand([x.shape[i] if i == axis else size for i, size in enumerate(shape)])

    return grown(self).gather(axis, grown(indices))


def kron(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Every element of the one times the other."""
    rank = max(self.ndim, other.ndim)
    a, b = (x[(None,) * (rank - x.ndim)] for x in (self, other))
    shape = [m * n for m, n in zip(a.shape, b.shape, strict=True)]
    for axis in range(rank):
        a, b = a.unsqueeze(2 * axis + 1), b.unsqueeze(2 * axis)
    return (a * b).reshape(shape)


def multi_dot(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The product of matrices, the first and the last perhaps vectors, from left to right.

    torch looks for the order with the least work, which depends on the sizes.
    """
    product: torch.Tensor = functools.reduce(torch.matmul, tensors)
    return product


def vander(x: torch.Tensor, N: int | None = None, increasing: bool = False) -> torch.Tensor:  # noqa: N803 - torch's
    """The powers of every element."""
    count: Any = x.shape[0] if N is None else N
    rising = x.unsqueeze(-1) ** torch.arange(count, device=x.device)
    return rising if increasing else rising.flip(-1)


def _is_fake(value: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def combinations(self: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """Which are chosen is for the converter; here, how many there are."""
    if not _is_fake(self):
        chosen: torch.Tensor = _in_cpp(_aten.combinations.default, self, r, with_replacement)
        return chosen
    count: Any = self.shape[0] + (r - 1 if with_replacement else 0)
    ways = functools.reduce(operator.mul, (count - i for i in range(r)), 1) // math.factorial(r)
    return self.new_empty((ways, r))


def fill_diagonal(self: torch.Tensor, fill_value: float, wrap: bool = False) -> torch.Tensor:
    """C++ asks which side of the matrix is the shorter one."""
    if not _is_fake(self) or self.ndim != 2 or wrap:
        filled: torch.Tensor = _in_cpp(_aten.fill_diagonal_.default, self, fill_value, wrap)
        return filled
    self.diagonal().fill_(fill_value)
    return self


def tensor_split(self: torch.Tensor, sections: int, dim: int = 0) -> list[torch.Tensor]:
    """Parts of one size, the first of them one longer; C++ asks how many of these there are."""
    if not _is_fake(self) or not self.ndim or type(sections) is not int or sections < 1:
        found: list[torch.Tensor] = _in_cpp(_aten.tensor_split.sections, self, sections, dim)
        return found
    axis = dim % self.ndim
    sizes = [(self.shape[axis] + sections - 1 - i) // sections for i in range(sections)]
    starts = itertools.accumulate(sizes[:-1], initial=0)
    return [_part(self, axis, start, size) for start, size in zip(starts, sizes, strict=True)]


def _part(x: torch.Tensor, axis: int, start: Any, size: Any) -> torch.Tensor:
    """A view of what lies there without a question: that it does is known."""
    offset: Any = x.storage_offset()
    return x.as_strided((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.stride(), offset + start * x.stride(axis))


def _in_cpp(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def _slope(x: torch.Tensor, axis: int, edge_order: int) -> torch.Tensor:
    _check(x.shape[axis] > edge_order)
    return torch.empty_like(x) if x.is_floating_point() or x.is_complex() else torch.empty_like(x, dtype=torch.float32)


def _axes(x: torch.Tensor, dim: int | Sequence[int] | None) -> list[int]:
    if dim is None:
        return list(range(x.ndim))
    return [axis % x.ndim for axis in ([dim] if isinstance(dim, int) else dim)]


def _gradient(op: object) -> _Made:
    """Differences along some axes, by one overload: here, their shapes."""

    def gradient(self: torch.Tensor, **options: Any) -> list[torch.Tensor]:
        if not _is_fake(self):
            found: list[torch.Tensor] = _in_cpp(op, self, **options)
            return found
        edge_order = options.get("edge_order", 1)
        return [_slope(self, axis, edge_order) for axis in _axes(self, options.get("dim"))]

    return gradient


def covariance(
    self: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Of the rows, over the columns, each as often as `fweights` says and as heavy as `aweights` says."""
    rows = self.reshape(1, -1) if self.ndim < 2 else self
    weights = [w for w in (fweights, aweights) if w is not None]
    total: Any = rows.shape[1]
    weighted, rest = rows, total - correction
    if weights:
        weight = functools.reduce(torch.mul, weights)
        total, weighted = weight.sum(), rows * weight
        share = (weight * aweights).sum() / total if aweights is not None else 1
        rest = total - correction * share
    centred = rows - (weighted.sum(1) / total).unsqueeze(1)
    spread = centred * functools.reduce(torch.mul, weights) if weights else centred
    covered = torch.matmul(centred, spread.mT.conj())
    divisor = (rows.new_ones(()) * rest).clamp(min=0)
    found: torch.Tensor = covered / divisor
    return found.reshape(()) if self.ndim < 2 else found.squeeze()


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> torch.Tensor:
    """C++ compares sizes to choose a kernel; where they are data, which none can, the shape is all there is.

    That there are as many values as keys is in the documentation alone: for other numbers the kernel of torch 2.13 on
    the CPU reads what lies behind the values.
    """
    operands = (query, key, value, *([] if attn_mask is None else [attn_mask]))
    is_fake = _is_fake(query)
    if not is_fake or not any(_is_data(size) for x in operands for size in x.shape):
        if is_fake:
            keys, values = key.shape[-2], value.shape[-2]
            _check(keys == values, lambda: f"attention to {keys} keys with {values} values: they must be as many")
        found: torch.Tensor = _in_cpp(
            _aten.scaled_dot_product_attention.default, *operands[:3], attn_mask, dropout_p, is_causal, **options
        )
        return found
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """C++ makes rows of a batch, multiplies and unfolds them again, and asks about sizes at each of these calls."""
    operands = [input, weight, *([] if bias is None else [bias])]
    is_differentiated = torch.is_grad_enabled() and any(x.requires_grad for x in operands)
    if is_differentiated or torch._C._is_any_autocast_enabled() or not _is_plain_layer(*operands):
        found: torch.Tensor = _in_cpp(_aten.linear.default, input, weight, bias)
        return found
    product = input.new_empty((*input.shape[:-1], weight.shape[0]))
    # With a bias the unfolded rows are a view, as a model may ask.
    is_view = bias is not None and input.ndim > 2 and is_contiguous_or_false(input)
    return _aten.alias.default(product) if is_view else product


def _is_plain_layer(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> bool:
    """Whether nothing of what a layer is given may be refused: torch says what is wrong with the rest."""
    operands = [input, weight, *([] if bias is None else [bias])]
    kinds = {(x.dtype, x.device, x.layout) for x in operands}
    is_bias_plain = bias is None or (bias.ndim == 1 and _is_number(bias.shape[0], weight.shape[0]))
    has_ranks = input.ndim > 1 and weight.ndim == 2 and len(kinds) == 1 and all(map(_is_fake, operands))
    return has_ranks and is_bias_plain and _is_number(input.shape[-1], weight.shape[1])


def _is_number(*sizes: object) -> bool:
    """Whether sizes are one number that is known."""
    return all(type(size) is int for size in sizes) and len({*sizes}) == 1


def max_pool1d(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> torch.Tensor:
    """C++ looks at the length before it pools; over pictures that are one row high it does not."""
    if not _is_fake(self):
        found: torch.Tensor = _in_cpp(_aten.max_pool1d.default, self, kernel_size, stride, padding, dilation, ceil_mode)
        return found
    steps = stride or kernel_size
    # Without a batch the channels stand where pictures have theirs all the same.
    rows, _ = _aten.max_pool2d_with_indices.default(
        self.unsqueeze(-2), [1, *kernel_size], [1, *steps], [0, *padding], [1, *dilation], ceil_mode
    )
    pooled: torch.Tensor = rows.squeeze(-2)
    return pooled


def reshape(self: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """C++ asks whether the other sizes are 0 where one is left open; eager refuses that, whatever data say."""
    found: torch.Tensor = _in_cpp(_aten.reshape.default, self, _without_open_size(shape, self.numel()))
    return found


def unflatten(self: torch.Tensor, dim: int, sizes: Sequence[Any]) -> torch.Tensor:
    """The same of one axis."""
    axis = dim % max(self.ndim, 1)
    known = _without_open_size(sizes, self.shape[axis]) if self.ndim else sizes
    found: torch.Tensor = _in_cpp(_aten.unflatten.int, self, dim, known)
    return found


def _without_open_size(shape: Sequence[Any], total: Any) -> Sequence[Any]:
    """The shape with what -1 stands for, if the sizes beside it follow from tensor data."""
    if not any(map(_is_open, shape)):
        return shape
    others = math.prod(size for size in shape if not _is_open(size))
    if not _is_data(others):
        return shape
    _check(others != 0)
    return [total // others if _is_open(size) else size for size in shape]


def _is_open(size: object) -> bool:
    return type(size) is int and size == -1


def _is_data(size: object) -> bool:
    """Whether a size follows from tensor data, so that no guard can be set on it."""
    return isinstance(size, torch.SymInt) and not size.node.has_hint()


_MADE: dict[Any, _Made] = {
    _aten.scaled_dot_product_attention.default: attention,
    _aten.linear.default: linear,
    _aten.max_pool1d.default: max_pool1d,
    _aten.reshape.default: reshape,
    _aten.unflatten.int: unflatten,
    _aten.take_along_dim.default: take_along_dim,
    _aten.kron.default: kron,
    _aten.linalg_multi_dot.default: multi_dot,
    _aten.vander.default: vander,
    _aten.gradient.scalarint: _gradient(_aten.gradient.scalarint),
    _aten.gradient.scalararray: _gradient(_aten.gradient.scalararray),
    _aten.gradient.array: _gradient(_aten.gradient.array),
    _aten.gradient.scalarrayint: _gradient(_aten.gradient.scalarrayint),
    _aten.gradient.scalarrayarray: _gradient(_aten.gradient.scalarrayarray),
    _aten.combinations.default: combinations,
    _aten.cov.default: covariance,
    _aten.fill_diagonal_.default: fill_diagonal,
    _aten.tensor_split.sections: tensor_split,
    **COMPOSITES,
}


#: What calls them.
_FUNCTIONS = (
    "torch.take_along_dim",
    "torch.kron",
    "torch.linalg.multi_dot",
    "torch.vander",
    "torch.gradient",
    "torch.combinations",
    "torch.cov",
    "torch.Tensor.fill_diagonal_",
    "torch.tensor_split",
    "torch.Tensor.tensor_split",
    "torch.ops.aten.scaled_dot_product_attention.default",
    "torch.ops.aten.linear.default",
    "torch.ops.aten.max_pool1d.default",
    "torch.ops.aten.reshape.default",
    "torch.ops.aten.unflatten.int",
    "torch.linalg.matrix_norm",
    "torch.linalg.norm",
    "torch.linalg.cond",
)


def _apply(changes: Changes) -> None:
    # torch 2.11 to 2.13: an operator asks `py_kernels` before C++, and remembers in `_dispatch_cache` what it found.
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    for op, made in _MADE.items():
        if key not in op.py_kernels:
            changes.set_item(op.py_kernels, key, made)
            changes.set_attribute(op, "_dispatch_cache", {})


def _probe() -> Verdict:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    is_missing = any(key not in op.py_kernels for op in _MADE)
    return NEEDED if is_missing else not_needed("torch has them in Python")


PATCHES = (
    Patch(
        name="sizes of composite operators",
        kind="torch",
        target=_FUNCTIONS,
        reason="operators made of others in C++ read sizes as numbers: axes become constants, and data stops a trace",
        upstream="https://github.com/pytorch/pytorch/issues/148702",
        probe=_probe,
        apply=_apply,
    ),
)
