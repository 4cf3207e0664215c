"""Composite operators written in operators that take symbolic sizes, for the trace of a model and for the conversion.

In torch 2.11 to 2.13 they are made of others in C++, which reads sizes as numbers there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_Made = Callable[..., Any]

# Without annotations in torch 2.11 to 2.13.
_check: _Made = torch._check
_sym_max: _Made = torch.sym_max


def _matrix_axes(x: torch.Tensor, dim: Sequence[int]) -> tuple[int, int]:
    _check(len(dim) == 2, lambda: f"a norm of matrices goes over two axes, got {list(dim)}")
    rows, columns = (axis % x.ndim for axis in dim)
    _check(rows != columns, lambda: f"a norm of matrices goes over two axes, got {list(dim)}")
    return rows, columns


def _largest(magnitudes: torch.Tensor, axis: int) -> torch.Tensor:
    """Along an axis, which stays; 0 of no magnitude."""
    return magnitudes.amax(axis, keepdim=True).clamp(min=0)


def _of_sums(x: torch.Tensor, order: float, axes: tuple[int, int], keepdim: bool) -> torch.Tensor:
    """The largest sum of magnitudes, or the smallest: of columns for an order of 1, of rows for infinity."""
    added, compared = axes if abs(order) == 1 else reversed(axes)
    sums = x.abs().sum(added, keepdim=True)
    chosen = _largest(sums, compared) if order > 0 else sums.amin(compared, keepdim=True)
    return chosen if keepdim else chosen.squeeze(axes)


def _of_singular_values(x: torch.Tensor, reduce: _Made, axes: tuple[int, int], keepdim: bool) -> torch.Tensor:
    found: torch.Tensor = reduce(torch.linalg.svdvals(x.movedim(axes, (-2, -1))))
    if keepdim:
        for axis in sorted(axes):
            found = found.unsqueeze(axis)
    return found


def matrix_norm(
    self: torch.Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch.linalg.matrix_norm`: of sums, of singular values, or of all elements."""
    x = self if dtype is None else self.to(dtype)
    axes = _matrix_axes(x, dim)
    if ord == "fro":
        frobenius: torch.Tensor = torch.linalg.vector_norm(x, 2, axes, keepdim)
        return frobenius
    if ord == "nuc":
        return _of_singular_values(x, lambda values: values.sum(-1), axes, keepdim)
    _check(ord in (1, -1, 2, -2, math.inf, -math.inf), lambda: f"there is no norm of matrices of order {ord}")
    order = float(ord)
    if abs(order) != 2:
        return _of_sums(x, order, axes, keepdim)
    return _of_singular_values(
        x, lambda values: _largest(values, -1).squeeze(-1) if order > 0 else values.amin(-1), axes, keepdim
    )


def norm(
    self: torch.Tensor,
    ord: float | str | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`torch.linalg.norm`: of vectors along one axis or over all of them, of matrices over two."""
    axes = None if ord is None and dim is None else _given_axes(self, dim)
    if ord is None or (not isinstance(ord, str) and axes is not None and len(axes) == 1):
        found: torch.Tensor = torch.linalg.vector_norm(self, 2 if ord is None else ord, axes, keepdim, dtype=dtype)
        return found
    return matrix_norm(self, ord, axes or (), keepdim, dtype=dtype)


def condition_number(self: torch.Tensor, p: float | str | None = None) -> torch.Tensor:
    """`torch.linalg.cond`: the ratio of the singular values, or the norms of the matrix and of its inverse."""
    if p is None or p in (2, -2):
        values = torch.linalg.svdvals(self)
        first, last = values.select(-1, 0), values.select(-1, -1)
        ratio: torch.Tensor = last / first if p == -2 else first / last
        return ratio
    inverse, info = torch.linalg.inv_ex(self)
    inverse = torch.where((info > 0)[..., None, None], math.inf, inverse)
    return matrix_norm(self, p) * matrix_norm(inverse, p)


def _given_axes(x: torch.Tensor, dim: Sequence[int] | None) -> list[int]:
    return list(range(x.ndim)) if dim is None else [axis % x.ndim for axis in dim]


def _angles(length: int, turns: float, periodic: bool, dtype: torch.dtype | None) -> torch.Tensor:
    """`length` positions along so many turns; a periodic window leaves out the last one. Narrow dtypes are for the end,
    as in torch."""
    wide = torch.float64 if (dtype or torch.get_default_dtype()) == torch.float64 else torch.float32
    steps = length if periodic else length - 1
    return torch.arange(length, dtype=wide) * (2 * math.pi * turns / max(steps, 1))


def _as_window(made: torch.Tensor, length: int, options: Mapping[str, Any]) -> torch.Tensor:
    """A window of one entry is that entry, whatever its formula says."""
    window = torch.ones_like(made) if length == 1 else made
    return window.to(options.get("dtype") or torch.get_default_dtype())


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> torch.Tensor:
    """`torch.hamming_window`."""
    angles = _angles(window_length, 1, periodic, options.get("dtype"))
    return _as_window(alpha - beta * angles.cos(), window_length, options)


def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> torch.Tensor:
    """`torch.blackman_window`."""
    angles = _angles(window_length, 1, periodic, options.get("dtype"))
    return _as_window(0.42 - 0.5 * angles.cos() + 0.08 * (2 * angles).cos(), window_length, options)


def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> torch.Tensor:
    """`torch.bartlett_window`: a triangle."""
    rising = _angles(window_length, 1, periodic, options.get("dtype")) / math.pi
    return _as_window(torch.where(rising > 1, 2 - rising, rising), window_length, options)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> torch.Tensor:
    """`torch.kaiser_window`."""
    places = _angles(window_length, 1, periodic, options.get("dtype")) / math.pi - 1
    depth = beta * (1 - places.square()).clamp(min=0).sqrt()
    return _as_window(torch.i0(depth) / torch.i0(torch.full_like(depth, beta)), window_length, options)


def pad_sequence(
    sequences: Sequence[torch.Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> torch.Tensor:
    """`torch.nn.utils.rnn.pad_sequence`: each as long as the longest."""
    longest: Any = functools.reduce(_sym_max, [x.shape[0] for x in sequences])
    axis = 0 if batch_first else 1

    def padded(x: torch.Tensor) -> torch.Tensor:
        missing = x.new_full((longest - x.shape[0], *x.shape[1:]), padding_value)
        return torch.cat([x, missing] if padding_side == "right" else [missing, x])

    if sequences[0].ndim > 1:
        return torch.stack([padded(x) for x in sequences], axis)
    # Of vectors torch asks whether one is empty before it joins them, which a size does not say.
    return torch.stack([padded(x.unsqueeze(1)) for x in sequences], axis).squeeze(2)


def _window_starts(samples: torch.Tensor, size: Any, count: Any, kernel: int) -> torch.Tensor:
    """Where the windows of an axis begin, [batch, channels, count], by a sample for each channel, [batch, channels].
    The last window ends where the axis does. Rounded in the dtype of the samples, as torch's kernel does it."""
    number = torch.arange(count)
    step = torch.scalar_tensor(size - kernel, dtype=samples.dtype) / torch.scalar_tensor(count - 1, dtype=samples.dtype)
    sample = samples.unsqueeze(-1)
    starts = ((number.to(samples.dtype) + sample) * step).long() - (sample * step).long()
    return torch.where(number == count - 1, size - kernel, starts)


def _places_in_windows(starts: Sequence[torch.Tensor], kernel: Sequence[int], sizes: Sequence[Any]) -> torch.Tensor:
    """The place in its channel of each element of each window, [batch, channels, counts…, kernel…]."""
    places = starts[0].new_zeros(())
    for axis, (start, reach, size) in enumerate(zip(starts, kernel, sizes, strict=True)):
        along = start.unsqueeze(-1) + torch.arange(reach)  # [batch, channels, count, kernel]
        at = tuple(slice(None) if other == axis else None for other in range(len(kernel)))
        places = places * size + along[(slice(None), slice(None), *at, *at)]
    return places


def _fractional_max_pool(
    x: torch.Tensor, kernel: Sequence[int], counts: Sequence[Any], samples: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest element of each window and its place in the channel; `samples` of each spatial axis."""
    spatial = len(kernel)
    batch = x if x.ndim == spatial + 2 else x.unsqueeze(0)
    sizes = batch.shape[2:]
    starts = [_window_starts(*axis) for axis in zip(samples, sizes, counts, kernel, strict=True)]
    places = _places_in_windows(starts, kernel, sizes).flatten(2 + spatial)
    elements = batch.flatten(2).gather(2, places.flatten(2)).view(places.shape)
    chosen = elements.max(-1, keepdim=True).indices
    last_nan = torch.where(elements.isnan(), torch.arange(places.shape[-1]), -1).amax(-1, keepdim=True)
    chosen = torch.where(last_nan < 0, chosen, last_nan)
    greatest, place = (each.gather(-1, chosen).squeeze(-1) for each in (elements, places))
    return (greatest, place) if x.ndim == spatial + 2 else (greatest.squeeze(0), place.squeeze(0))


def fractional_max_pool2d(
    self: torch.Tensor, kernel_size: Sequence[int], output_size: Sequence[Any], random_samples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.nn.functional.fractional_max_pool2d` with its samples, the first of which is of the columns."""
    columns, rows = random_samples.unbind(-1)
    return _fractional_max_pool(self, kernel_size, output_size, (rows, columns))


def fractional_max_pool3d(
    self: torch.Tensor, kernel_size: Sequence[int], output_size: Sequence[Any], random_samples: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.nn.functional.fractional_max_pool3d` with its samples."""
    return _fractional_max_pool(self, kernel_size, output_size, random_samples.unbind(-1))


def copied(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """`Tensor.copy_` as a functional program has it: `src` in the place of all elements."""
    return src.to(self.dtype).expand_as(self)


def trilinear(
    i1: torch.Tensor,
    i2: torch.Tensor,
    i3: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """`aten::_trilinear`, which a functional program has in the place of `bilinear`: the product of three tensors, each
    with new axes of one entry at the places that are told, summed over some axes."""
    axes = [*range(i1.ndim + len(expand1))]
    operands: list[Any] = []
    for tensor, expanded in ((i1, expand1), (i2, expand2), (i3, expand3)):
        operands += [tensor, [axis for axis in axes if axis not in expanded]]
    return torch.einsum(*operands, [axis for axis in axes if axis not in sumdim])


#: By the operator, what the conversion makes of those that a trace leaves as they are.
CONVERTED: dict[Any, _Made] = {
    _aten.copy.default: copied,
    _aten._trilinear.default: trilinear,
    _aten.hamming_window.default: hamming_window,
    _aten.hamming_window.periodic: hamming_window,
    _aten.hamming_window.periodic_alpha: hamming_window,
    _aten.hamming_window.periodic_alpha_beta: hamming_window,
    _aten.blackman_window.default: blackman_window,
    _aten.blackman_window.periodic: blackman_window,
    _aten.bartlett_window.default: bartlett_window,
    _aten.bartlett_window.periodic: bartlett_window,
    _aten.kaiser_window.default: kaiser_window,
    _aten.kaiser_window.periodic: kaiser_window,
    _aten.kaiser_window.beta: kaiser_window,
    _aten.pad_sequence.default: pad_sequence,
    _aten.fractional_max_pool2d.default: fractional_max_pool2d,
    _aten.fractional_max_pool3d.default: fractional_max_pool3d,
}

#: By the operator, what it is made of.
COMPOSITES: dict[Any, _Made] = {
    _aten.linalg_matrix_norm.default: matrix_norm,
    _aten.linalg_matrix_norm.str_ord: matrix_norm,
    _aten.linalg_norm.default: norm,
    _aten.linalg_norm.ord_str: norm,
    _aten.linalg_cond.default: condition_number,
    _aten.linalg_cond.p_str: condition_number,
}
