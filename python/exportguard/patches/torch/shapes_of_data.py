"""Shapes of what operators make of rows that tensor data count, as `x[mask]`.

In torch 2.11 to 2.13 some operators ask in C++ whether they were given anything, or more than some rows, and a trace
stops there. The operator stays in the program, and asks again when that runs; all that a trace needs is the shape of
its result, which is one formula for every number of rows. What that formula does not hold for is left to torch: sizes
that broadcast where data count both, and statistics that a call writes, which are others where there are no rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

if TYPE_CHECKING:
    from exportguard._core import Changes

_aten = torch.ops.aten

#: Gives what has the shape of the result; None where the formula does not hold.
_Shape = Callable[..., Any]

_check: Callable[..., Any] = torch._check  # without annotations in torch 2.11 to 2.13


def batch_norm(
    input: torch.Tensor,
    weight: object,
    bias: object,
    running_mean: object,
    running_var: object,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> torch.Tensor | None:
    """What a batch without rows leaves in the statistics is nothing in eager mode, and NaN in the other way."""
    return None if training and running_mean is not None else torch.empty_like(input)


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2, compute_mode: int | None = None) -> torch.Tensor | None:
    """The lowering asks whether there are more than 25 rows when the file runs."""
    batch = _common(x1.shape[:-2], x2.shape[:-2])
    return None if batch is None else _fake(x1, x2).new_empty((*batch, x1.shape[-2], x2.shape[-2]))


def cosine_similarity(x1: torch.Tensor, x2: torch.Tensor, dim: int = 1, eps: float = 1e-8) -> torch.Tensor | None:
    shape = _common(x1.shape, x2.shape)
    return None if shape is None else _fake(x1, x2).new_empty(_without(shape, [dim]))


def bilinear(
    input1: torch.Tensor, input2: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor | None:
    rows, others = input1.shape[:-1], input2.shape[:-1]
    return _fake(input1, input2).new_empty((*rows, weight.shape[0])) if _are_equal(rows, others) else None


def tensordot(
    self: torch.Tensor, other: torch.Tensor, dims_self: Sequence[int], dims_other: Sequence[int]
) -> torch.Tensor | None:
    pairs = [[x.shape[axis] for axis in axes] for x, axes in ((self, dims_self), (other, dims_other))]
    if not _are_equal(*pairs):
        return None
    return _fake(self, other).new_empty((*_without(self.shape, dims_self), *_without(other.shape, dims_other)))


def diff(
    self: torch.Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: torch.Tensor | None = None,
    append: torch.Tensor | None = None,
) -> torch.Tensor:
    """C++ takes no more differences than there are rows, so that none are left; so do as many slices."""
    parts = [part for part in (prepend, self, append) if part is not None]
    whole = torch.cat(parts, dim) if n else self
    for _ in range(n):
        whole = _aten.slice.Tensor(whole, dim, 1)
    return self.new_empty(whole.shape)


def trapezoid_of_steps(y: torch.Tensor, *, dx: float = 1, dim: int = -1) -> torch.Tensor:
    return y.new_empty(_without(y.shape, [dim]))


def trapezoid(y: torch.Tensor, x: torch.Tensor, *, dim: int = -1) -> torch.Tensor | None:
    wanted = [y.shape[dim]] if x.ndim == 1 else y.shape
    return y.new_empty(_without(y.shape, [dim])) if _are_equal(x.shape, wanted) else None


def adaptive_avg_pool1d(self: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    """Where the mean is that of nothing, it is NaN in both."""
    return self.new_empty((*self.shape[:-1], *output_size))


def adaptive_max_pool1d(self: torch.Tensor, output_size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    _check(self.shape[-1] > 0, lambda: "adaptive_max_pool1d() needs an element to take the maximum of")
    shape = (*self.shape[:-1], *output_size)
    return self.new_empty(shape), self.new_empty(shape, dtype=torch.int64)


def _spectrum(kind: str) -> _Shape:
    """Transforms along one axis: of complex numbers, "real to complex" or "complex to real"."""

    def transform(self: torch.Tensor, n: Any = None, dim: int = -1, norm: str | None = None) -> torch.Tensor:
        return _transformed(self, kind, [n], [dim % self.ndim])

    return transform


def _spectra(kind: str) -> _Shape:
    """Transforms along several axes, the last one of which `kind` is about."""

    def transform(
        self: torch.Tensor, s: Sequence[Any] | None = None, dim: Sequence[int] | None = None, norm: str | None = None
    ) -> torch.Tensor:
        first = self.ndim - len(s) if s is not None else 0
        axes = [axis % self.ndim for axis in (dim if dim is not None else range(first, self.ndim))]
        return _transformed(self, kind, s if s is not None else [None] * len(axes), axes)

    return transform


def _transformed(x: torch.Tensor, kind: str, lengths: Sequence[Any], axes: Sequence[int]) -> torch.Tensor:
    shape: list[Any] = [*x.shape]
    is_open = [length is None or (type(length) is int and length == -1) for length in lengths]
    for axis, length, is_own in zip(axes, lengths, is_open, strict=True):
        shape[axis] = shape[axis] if is_own else length
    last = axes[-1]
    if kind == "complex to real" and is_open[-1]:
        shape[last] = 2 * (shape[last] - 1)
    for axis in axes:
        _check(shape[axis] >= 1, lambda: "a transform needs a data point")
    if kind == "real to complex":
        shape[last] = shape[last] // 2 + 1
    return x.new_empty(shape, dtype=x.dtype.to_real() if kind == "complex to real" else x.dtype.to_complex())


def _without(shape: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    """The sizes of the other axes."""
    left_out = {axis % len(shape) for axis in axes}
    return [size for axis, size in enumerate(shape) if axis not in left_out]


def _are_equal(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether they are the same sizes for whatever data there is."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return len(sizes) == len(others) and all(map(statically_known_true, map(_is_equal, sizes, others)))


def _is_equal(size: Any, other: Any) -> Any:
    return size == other


def _common(shape: Sequence[Any], other: Sequence[Any]) -> list[Any] | None:
    """What two shapes broadcast to; None if data decide which of them is broadcast."""
    rank = max(len(shape), len(other))
    pairs = zip(*([1] * (rank - len(sizes)) + [*sizes] for sizes in (shape, other)), strict=True)
    common = [_one_of(*pair) for pair in pairs]
    return None if any(size is None for size in common) else common


def _one_of(size: Any, other: Any) -> Any:
    if type(size) is int and size == 1:
        return other
    return size if (type(other) is int and other == 1) or _are_equal([size], [other]) else None


_SHAPES: dict[Any, _Shape] = {
    _aten.batch_norm.default: batch_norm,
    _aten.instance_norm.default: batch_norm,
    _aten.cdist.default: cdist,
    _aten.cosine_similarity.default: cosine_similarity,
    _aten.bilinear.default: bilinear,
    _aten.tensordot.default: tensordot,
    _aten.diff.default: diff,
    _aten.trapezoid.dx: trapezoid_of_steps,
    _aten.trapezoid.x: trapezoid,
    _aten.adaptive_avg_pool1d.default: adaptive_avg_pool1d,
    _aten.adaptive_max_pool1d.default: adaptive_max_pool1d,
    **{op.default: _spectrum("complex") for op in (_aten.fft_fft, _aten.fft_ifft)},
    **{op.default: _spectrum("real to complex") for op in (_aten.fft_rfft, _aten.fft_ihfft)},
    **{op.default: _spectrum("complex to real") for op in (_aten.fft_irfft, _aten.fft_hfft)},
    **{op.default: _spectra("complex") for op in (_aten.fft_fft2, _aten.fft_ifft2, _aten.fft_fftn, _aten.fft_ifftn)},
    **{op.default: _spectra("real to complex") for op in (_aten.fft_rfft2, _aten.fft_rfftn)},
    **{op.default: _spectra("complex to real") for op in (_aten.fft_irfft2, _aten.fft_irfftn)},
}


def _of(op: Any, shape: _Shape) -> Callable[..., Any]:
    """What an operator is made of in C++, or what has its shape where it is given rows that data count."""
    in_cpp = functools.partial(op._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)

    def made(*args: Any, **kwargs: Any) -> Any:
        operands = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        found = shape(*args, **kwargs) if _are_plain(op, operands) and _count_data(*operands) else None
        return in_cpp(*args, **kwargs) if found is None else found

    return made


def _are_plain(op: Any, operands: Sequence[torch.Tensor]) -> bool:
    """Whether the operands are of one kind, which the result keeps; torch refuses or widens others."""
    kinds = {(x.dtype, x.device, x.layout) for x in operands}
    keeps_any = op is _aten.diff.default or all(x.is_floating_point() or x.is_complex() for x in operands)
    return keeps_any and len(kinds) == 1 and not torch._C._is_any_autocast_enabled()


def _count_data(*operands: torch.Tensor) -> bool:
    """Whether data decide a size, which they do in a trace alone."""
    return any(_is_data(size) for x in operands for size in x.shape)


def _fake(*operands: torch.Tensor) -> torch.Tensor:
    """An operand that is one of the trace; others may be constants."""
    return next(x for x in operands if _count_data(x))


def _is_data(size: object) -> bool:
    from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

    return isinstance(size, torch.SymInt) and has_free_unbacked_symbols(size)


_FUNCTIONS = tuple(f"torch.ops.{op}" for op in _SHAPES)


def _apply(changes: Changes) -> None:
    # torch 2.11 to 2.13: an operator asks `py_kernels` before C++, and remembers in `_dispatch_cache` what it found.
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    for op, shape in _SHAPES.items():
        if key not in op.py_kernels:
            changes.set_item(op.py_kernels, key, _of(op, shape))
            changes.set_attribute(op, "_dispatch_cache", {})


def _probe() -> Verdict:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return NEEDED if any(key not in op.py_kernels for op in _SHAPES) else not_needed("torch has them in Python")


PATCHES = (
    Patch(
        name="shapes of rows of data",
        kind="torch",
        target=_FUNCTIONS,
        reason="operators ask in C++ how many rows there are, which stops a trace where tensor data count them",
        upstream="https://github.com/pytorch/pytorch/issues/148702",
        probe=_probe,
        apply=_apply,
    ),
)
