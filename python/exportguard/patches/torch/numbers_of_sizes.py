"""Functions of torch that take a size as a plain number: a symbolic one becomes a constant, and its axis with it.

Each is written in operators that take symbolic sizes, for those calls alone that have one. The schemas meant here have
`int` where others have `SymInt` (torch 2.11 to 2.13).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

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


def _is_whole(x: torch.Tensor, kernel_size: object, dims: int) -> bool:
    """Whether the window is all of the last axes, for every size."""
    kernel = kernel_size if isinstance(kernel_size, list | tuple | torch.Size) else [kernel_size] * dims
    return len(kernel) == dims and all(
        _same(size, window) for size, window in zip(x.shape[-dims:], kernel, strict=True)
    )


def _same(size: object, window: object) -> bool:
    if isinstance(size, torch.SymInt) and isinstance(window, torch.SymInt):
        return bool(size.node.expr == window.node.expr)
    return not _is_symbolic((size, window)) and bool(size == window)


def _pooled(dims: int, reduce: _Function) -> _Function:
    def pool(
        input: torch.Tensor, kernel_size: object, stride: object = None, padding: object = 0, **options: Any
    ) -> Any:
        has_defaults = padding in (0, (0,) * dims, [0] * dims) and not options
        if not has_defaults or not _is_whole(input, kernel_size, dims):
            return NotImplemented
        return reduce(input, [*range(-dims, 0)], True)

    return pool


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


_aten = torch.ops.aten
_REASON = "a size that is passed as a number becomes a constant, and its axis with it"
_UPSTREAM = {
    "linspace": "https://github.com/pytorch/pytorch/pull/184939",
    "upper triangle": "https://github.com/pytorch/pytorch/issues/12653",
    "lower triangle": "https://github.com/pytorch/pytorch/issues/12653",
    "Hann window": "https://github.com/pytorch/pytorch/issues/142458",
    **{
        f"{name} window": "https://github.com/pytorch/pytorch/issues/142458"
        for name in ("Hamming", "Blackman", "Bartlett", "Kaiser")
    },
}
_POOLING = "https://github.com/pytorch/pytorch/issues/39323"
_WRITTEN: tuple[tuple[str, str, _Function, Callable[[], Verdict]], ...] = (
    ("linspace", "torch.linspace", linspace, _probe(_aten.linspace.default, "steps")),
    (
        "average over all",
        "torch.nn.functional.avg_pool2d",
        _pooled(2, torch.mean),
        _probe(_aten.avg_pool2d.default, "kernel_size"),
    ),
    (
        "average over a line",
        "torch.nn.functional.avg_pool1d",
        _pooled(1, torch.mean),
        _probe(_aten.avg_pool1d.default, "kernel_size"),
    ),
    (
        "largest of all",
        "torch.nn.functional.max_pool2d",
        _pooled(2, torch.amax),
        _probe(_aten.max_pool2d.default, "kernel_size"),
    ),
    (
        "largest of a line",
        "torch.nn.functional.max_pool1d",
        _pooled(1, torch.amax),
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
)

PATCHES = tuple(
    Patch(
        name=f"{name} of a symbolic length",
        kind="torch",
        target=target,
        reason=_REASON,
        upstream=_UPSTREAM.get(name, _POOLING),
        probe=probe,
        replace=_instead_of(written),
    )
    for name, target, written, probe in _WRITTEN
)
