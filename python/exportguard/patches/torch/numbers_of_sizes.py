"""Functions of torch that take a size as a plain number: a symbolic one becomes a constant, and its axis with it.

Each is written in operators that take symbolic sizes, for those calls alone that have one. The schemas meant here have
`int` where others have `SymInt` (torch 2.11 to 2.13).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

_Function = Callable[..., Any]


@torch.library.custom_op("exportguard::inverse_stft", mutates_args=())
def _inverse_stft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: torch.Tensor | None,
    center: bool,
    normalized: bool,
    onesided: bool | None,
    length: int,
    return_complex: bool,
) -> torch.Tensor:
    """`torch.istft`, which takes no symbolic length."""
    found: torch.Tensor = torch.ops.aten.istft.default(
        input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
    )
    return found.clone()


@_inverse_stft.register_fake
def _(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: torch.Tensor | None,
    center: bool,
    normalized: bool,
    onesided: bool | None,
    length: int,
    return_complex: bool,
) -> torch.Tensor:
    return input.new_empty((*input.shape[:-2], length), dtype=input.dtype if return_complex else input.dtype.to_real())


def inverse_stft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: object = None,
    return_complex: bool = False,
) -> Any:
    """As many samples as `length`, a symbolic size, says."""
    if length is None or any(map(_is_symbolic, (n_fft, hop_length, win_length))):
        return NotImplemented
    return _inverse_stft(
        input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
    )


# Without annotations in torch 2.11 to 2.13.
_sym_max: _Function = torch.sym_max
_check: _Function = torch._check


def _is_symbolic(value: object) -> bool:
    values = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(item, torch.SymInt) for item in values)


def _instead_of(written: _Function) -> Callable[[_Function], _Function]:
    """What makes of a function one that calls `written` where an argument is a symbolic size.

    `written` returns NotImplemented for calls that it does not know; these go where they went before.
    """

    def replace(original: _Function) -> _Function:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not any(map(_is_symbolic, [*args, *kwargs.values()])):
                return original(*args, **kwargs)
            result = written(*args, **kwargs)
            return original(*args, **kwargs) if result is NotImplemented else result

        return call

    return replace


#: Arguments of those that make a tensor, as functions of torch hand them on.
_AS_IT_IS = {"requires_grad": False, "layout": torch.strided, "pin_memory": False}


def linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """Evenly spaced numbers, counted from the nearer end as ATen does: the last one is exactly `end`.

    The decomposition of `affine_grid` calls it with the sizes of pictures.
    """
    dtype = dtype or torch.get_default_dtype()
    device = {"device": options.pop("device")} if "device" in options else {}
    if not dtype.is_floating_point or not options.items() <= _AS_IT_IS.items():
        return NotImplemented
    place = torch.arange(steps, dtype=dtype, **device)
    gaps = _sym_max(steps - 1, 1)
    step = (end - start) / gaps
    return torch.where(place < _sym_max(steps // 2, 1), start + step * place, end - step * (steps - 1 - place)).to(
        dtype
    )


def logspace(
    start: Any, end: Any, steps: Any, base: float = 10.0, *, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    """Powers of a base whose exponents are evenly spaced; those are computed in double, as torch's reference does."""
    powers = linspace(start, end, steps, dtype=torch.float64, **options)
    dtype = dtype or torch.get_default_dtype()
    is_known = powers is not NotImplemented and dtype.is_floating_point and base >= 0
    return torch.pow(float(base), powers).to(dtype) if is_known else NotImplemented


def _same(size: object, window: object) -> bool:
    if isinstance(size, torch.SymInt) and isinstance(window, torch.SymInt):
        return bool(size.node.expr == window.node.expr)
    return not _is_symbolic((size, window)) and bool(size == window)


def _for_each(value: Any, dims: int) -> list[Any]:
    """What an argument is for each axis, which may be one for all."""
    values = [*value] if isinstance(value, list | tuple | torch.Size) else [value]
    return values * dims if len(values) == 1 else values


def _windows(x: torch.Tensor, axis: int, size: Any, step: Any) -> torch.Tensor:
    """The windows along an axis, each along a further one behind it: a view, as `unfold` gives it.

    Shapes: (…, length, …) becomes (…, count, size, …).
    """
    _check(size > 0)
    _check(step > 0)
    _check(size <= x.shape[axis])
    count = (x.shape[axis] - size) // step + 1
    strides: Any = x.stride()
    shape = (*x.shape[:axis], count, size, *x.shape[axis + 1 :])
    return x.as_strided(shape, (*strides[:axis], strides[axis] * step, *strides[axis:]))


def _pooled(dims: int, reduce: _Function, **plain: object) -> _Function:
    """A pool without padding, one axis after the other: all of an axis at once, or by its windows.

    :param plain: the further options of the function, as they have to be
    """

    def pool(
        input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *further: object, **options: object
    ) -> Any:
        given = dict(zip(plain, further, strict=False)) | options
        has_defaults = all(given.get(name, value) == value for name, value in plain.items())
        sizes = _for_each(kernel_size, dims)
        steps = _for_each(stride, dims) if _is_symbolic(stride) or stride else sizes
        if not has_defaults or any(_for_each(padding, dims)) or len(sizes) != dims or len(steps) != dims:
            return NotImplemented
        for axis, size, step in zip(range(-dims, 0), sizes, steps, strict=True):
            if _same(input.shape[axis], size):
                input = reduce(input, axis, True)
            elif not (_same(size, 1) and _same(step, 1)):
                # Windows of a copy, so that they lie in what the program knows.
                input = reduce(_windows(input.contiguous(), input.ndim + axis, size, step), axis, False)
        return input

    return pool


def unfold(self: torch.Tensor, dimension: int, size: Any, step: Any) -> Any:
    """`Tensor.unfold`: windows along an axis, a view whose last axis is that of the window.

    Not of views, of which a file knows no strides, and no copies in their place: they may be written into.
    """
    if not self.ndim or _is_symbolic(dimension) or not is_contiguous_or_false(self):
        return NotImplemented
    axis = dimension % self.ndim
    return _windows(self, axis, size, step).movedim(axis + 1, -1)


def patches_of_pictures(
    input: torch.Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """`torch.nn.functional.unfold`: (batch, channels, height, width) becomes (batch, channels * kernel, windows)."""
    is_plain = all(_same(value, 1) for value in _for_each(dilation, 2)) and not any(_for_each(padding, 2))
    if not is_plain or input.ndim != 4:
        return NotImplemented
    (height, width), steps = _for_each(kernel_size, 2), _for_each(stride, 2)
    rows = _windows(input.contiguous(), 2, height, steps[0])
    blocks = _windows(rows.contiguous(), 4, width, steps[1])
    batch, channels, down, _, across, _ = blocks.shape
    return blocks.permute(0, 1, 3, 5, 2, 4).reshape(batch, channels * height * width, down * across)


def diagonal(self: torch.Tensor, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of the columns from `offset` on, or of the rows from `-offset` on: a view."""
    if _is_symbolic((dim1, dim2)) or not self.ndim:
        return NotImplemented
    below, right = _sym_max(-offset, 0), _sym_max(offset, 0)
    rest = _from(_from(self, dim1 % self.ndim, below), dim2 % self.ndim, right)
    return torch.diagonal(rest, 0, dim1, dim2)


def _from(x: torch.Tensor, axis: int, start: Any) -> torch.Tensor:
    return x[(slice(None),) * axis + (slice(start, None),)]


def diag(input: torch.Tensor, diagonal_: Any = 0, **options: Any) -> Any:
    """`torch.diag`: the diagonal of a matrix, or a matrix with that diagonal."""
    offset = options.pop("diagonal", diagonal_)
    if options or input.ndim not in (1, 2):
        return NotImplemented
    return diagonal(input, offset).clone() if input.ndim == 2 else diag_embed(input, offset)


def diag_embed(input: torch.Tensor, offset: Any = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Matrices with the last axis for a diagonal, `offset` columns from the first or as many rows below it."""
    if (dim1, dim2) != (-2, -1):
        return NotImplemented
    below, right = _sym_max(-offset, 0), _sym_max(offset, 0)
    return torch.nn.functional.pad(torch.diag_embed(input), (right, below, below, right))


def adaptive_average(input: torch.Tensor, output_size: Any) -> Any:
    """Of a line, as of a picture of one row: that operator takes sizes."""
    size = _for_each(output_size, 1)
    return torch.nn.functional.adaptive_avg_pool2d(input.unsqueeze(-2), (1, *size)).squeeze(-2)


def _with_padding(dims: int) -> _Function:
    """A convolution whose padding is a size: the picture is padded before it."""

    def convolve(
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Any = 1,
    ) -> Any:
        if not _is_symbolic(padding) or _is_symbolic((*_for_each(stride, dims), *_for_each(dilation, dims), groups)):
            return NotImplemented
        around = [side for size in reversed(_for_each(padding, dims)) for side in (size, size)]
        padded = torch.nn.functional.pad(input, around)
        return _CONVOLUTIONS[dims](padded, weight, bias, stride, 0, dilation, groups)

    return convolve


_CONVOLUTIONS: dict[int, _Function] = {1: torch.conv1d, 2: torch.conv2d}


def _indices(part: Callable[[torch.Tensor, int], torch.Tensor]) -> _Function:
    def indices(row: Any, col: Any, offset: int = 0, **options: Any) -> Any:
        dtype = options.pop("dtype", torch.int64)
        if set(options) - {"device"}:
            return NotImplemented
        found: torch.Tensor = part(torch.ones(row, col, **options), offset).nonzero().T.to(dtype)
        return found

    return indices


def _window(of_turns: Callable[[torch.Tensor], torch.Tensor]) -> _Function:
    """A window by the turns of its places, `2 pi k / length`, which is symmetric with one place fewer."""

    def window(window_length: Any, periodic: bool = True, **options: Any) -> Any:
        dtype = options.pop("dtype", None) or torch.get_default_dtype()
        if set(options) - {"device"}:
            return NotImplemented
        place = torch.arange(window_length, dtype=dtype, **options)
        turns = place * (2 * torch.pi) / (window_length if periodic else _sym_max(window_length - 1, 1))
        is_single = torch.ones((), dtype=torch.int64, **options) * window_length == 1
        return torch.where(is_single, torch.ones_like(turns), of_turns(turns))

    return window


def _raised_cosine(first: float, second: float, third: float = 0.0) -> _Function:
    def of_turns(turns: torch.Tensor) -> torch.Tensor:
        raised = first - second * torch.cos(turns)
        return raised + third * torch.cos(2 * turns) if third else raised

    return _window(of_turns)


def _triangle(turns: torch.Tensor) -> torch.Tensor:
    return 1 - (turns / torch.pi - 1).abs()


def kaiser(window_length: Any, periodic: bool = True, beta: float = 12.0, **options: Any) -> Any:
    """The window of a Bessel function, `i0(beta sqrt(1 - x²)) / i0(beta)` with x from -1 to 1."""

    def of_turns(turns: torch.Tensor) -> torch.Tensor:
        whole = turns.new_full((), beta)
        inside = (1 - (turns / torch.pi - 1).square()).clamp(min=0)  # rounding leaves less than nothing
        return torch.i0(whole * inside.sqrt()) / torch.i0(whole)

    return NotImplemented if _is_symbolic(beta) else _window(of_turns)(window_length, periodic, **options)


def _frequencies(half: bool) -> _Function:
    """The frequencies of a transform of `n` samples, or those of the first half of its spectrum."""

    def frequencies(n: Any, d: float = 1.0, **options: Any) -> Any:
        dtype = options.pop("dtype", None) or torch.get_default_dtype()
        if set(options) - {"device"}:
            return NotImplemented
        place: torch.Tensor = torch.arange(n // 2 + 1 if half else n, **options)
        if not half:
            place = torch.where(place < (n + 1) // 2, place, place - n)
        return place.to(dtype) * (1.0 / (n * d))

    return frequencies


def _probe(schema: Any, argument: str) -> Callable[[], Verdict]:
    # The schema as text: its types show a SymInt as an int.
    def probe() -> Verdict:
        if f"SymInt {argument}" in str(schema._schema) or f"SymInt[2] {argument}" in str(schema._schema):
            return not_needed("the operator takes a symbolic size")
        return NEEDED

    return probe


def _needed() -> Verdict:
    """Torch takes a size there, and a convolution of ONNX none."""
    return NEEDED


_aten = torch.ops.aten
_REASON = "a size that is passed as a number becomes a constant, and its axis with it"
_ONNX = "https://github.com/onnx/onnx/blob/main/docs/Operators.md#Conv"
_UPSTREAM = {
    "linspace": "https://github.com/pytorch/pytorch/pull/184939",
    "upper triangle": "https://github.com/pytorch/pytorch/issues/12653",
    **dict.fromkeys(("padding of signals", "padding of pictures"), _ONNX),
    "lower triangle": "https://github.com/pytorch/pytorch/issues/12653",
    "Hann window": "https://github.com/pytorch/pytorch/issues/142458",
    **{
        f"{name} window": "https://github.com/pytorch/pytorch/issues/142458"
        for name in ("Hamming", "Blackman", "Bartlett", "Kaiser")
    },
}
#: Further arguments of pools in their order, as they are by themselves.
_AVERAGED: dict[str, object] = {"ceil_mode": False, "count_include_pad": True, "divisor_override": None}
_LARGEST: dict[str, object] = {"dilation": 1, "ceil_mode": False, "return_indices": False}
_NUMBERS = "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/native_functions.yaml"
_POOLING = "https://github.com/pytorch/pytorch/issues/39323"
_WRITTEN: tuple[tuple[str, str, _Function, Callable[[], Verdict]], ...] = (
    ("linspace", "torch.linspace", linspace, _probe(_aten.linspace.default, "steps")),
    (
        "average over all",
        "torch.nn.functional.avg_pool2d",
        _pooled(2, torch.mean, **_AVERAGED),
        _probe(_aten.avg_pool2d.default, "kernel_size"),
    ),
    (
        "average over a line",
        "torch.nn.functional.avg_pool1d",
        _pooled(1, torch.mean, **_AVERAGED),
        _probe(_aten.avg_pool1d.default, "kernel_size"),
    ),
    (
        "largest of all",
        "torch.nn.functional.max_pool2d",
        _pooled(2, torch.amax, **_LARGEST),
        _probe(_aten.max_pool2d.default, "kernel_size"),
    ),
    (
        "largest of a line",
        "torch.nn.functional.max_pool1d",
        _pooled(1, torch.amax, **_LARGEST),
        _probe(_aten.max_pool1d.default, "kernel_size"),
    ),
    ("upper triangle", "torch.triu_indices", _indices(torch.triu), _probe(_aten.triu_indices.default, "row")),
    ("lower triangle", "torch.tril_indices", _indices(torch.tril), _probe(_aten.tril_indices.default, "row")),
    ("logspace", "torch.logspace", logspace, _probe(_aten.logspace.default, "steps")),
    ("Hann window", "torch.hann_window", _raised_cosine(0.5, 0.5), _probe(_aten.hann_window.default, "window_length")),
    ("frequencies", "torch.fft.fftfreq", _frequencies(half=False), _probe(_aten.fft_fftfreq.default, "n")),
    ("half of the frequencies", "torch.fft.rfftfreq", _frequencies(half=True), _probe(_aten.fft_rfftfreq.default, "n")),
    ("signal of spectra", "torch.istft", inverse_stft, _probe(_aten.istft.default, "length")),
    (
        "Hamming window",
        "torch.hamming_window",
        _raised_cosine(0.54, 0.46),
        _probe(_aten.hamming_window.default, "window_length"),
    ),
    (
        "Blackman window",
        "torch.blackman_window",
        _raised_cosine(0.42, 0.5, 0.08),
        _probe(_aten.blackman_window.default, "window_length"),
    ),
    (
        "Bartlett window",
        "torch.bartlett_window",
        _window(_triangle),
        _probe(_aten.bartlett_window.default, "window_length"),
    ),
    ("Kaiser window", "torch.kaiser_window", kaiser, _probe(_aten.kaiser_window.default, "window_length")),
    ("windows", "torch.Tensor.unfold", unfold, _probe(_aten.unfold.default, "size")),
    ("patches", "torch.nn.functional.unfold", patches_of_pictures, _probe(_aten.im2col.default, "kernel_size")),
    ("diagonal", "torch.diagonal", diagonal, _probe(_aten.diagonal.default, "offset")),
    ("diagonal of itself", "torch.Tensor.diagonal", diagonal, _probe(_aten.diagonal.default, "offset")),
    ("matrix or diagonal", "torch.diag", diag, _probe(_aten.diag.default, "diagonal")),
    ("matrix or diagonal of itself", "torch.Tensor.diag", diag, _probe(_aten.diag.default, "diagonal")),
    ("matrices by diagonals", "torch.diag_embed", diag_embed, _probe(_aten.diag_embed.default, "offset")),
    (
        "average of parts of a line",
        "torch.nn.functional.adaptive_avg_pool1d",
        adaptive_average,
        _probe(_aten.adaptive_avg_pool1d.default, "output_size"),
    ),
    ("padding of signals", "torch.nn.functional.conv1d", _with_padding(1), _needed),
    ("padding of pictures", "torch.nn.functional.conv2d", _with_padding(2), _needed),
)

PATCHES = tuple(
    Patch(
        name=f"{name} of a symbolic length",
        kind="torch",
        target=target,
        reason=_REASON,
        upstream=_UPSTREAM.get(name, _POOLING if "torch.nn.functional" in target else _NUMBERS),
        probe=probe,
        replace=_instead_of(written),
    )
    for name, target, written, probe in _WRITTEN
)
