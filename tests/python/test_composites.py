"""Operators that an export leaves whole and torch cannot take apart for sizes that change, by the way of `to_onnx`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from called import CalledWithAll
from exportguard import OnnxModel, to_onnx


def check(function: Callable[..., Any], *calls: tuple[torch.Tensor, ...]) -> None:
    """Exports with the first call, whose first axes are dynamic, and compares each."""
    names = tuple({0: f"n{i}"} for i, _ in enumerate(calls[0]))
    model = to_onnx(CalledWithAll(function).eval(), calls[0], dynamic_shapes=(names,))
    for call in calls:
        feed = {value.name: x for value, x in zip(model.inputs, call, strict=True)}
        expected = torch.utils._pytree.tree_leaves(function(*call))
        for got, wanted in zip(model.run(feed).values(), expected, strict=True):
            tolerance = 2e-3 if wanted.dtype == torch.float16 else 2e-6
            torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


WINDOWS = {
    "hann": lambda n, **options: torch.hann_window(n, **options),
    "hamming": lambda n, **options: torch.hamming_window(n, **options),
    "hamming of other parts": lambda n, **options: torch.hamming_window(n, False, 0.6, 0.4, **options),
    "hamming of another part": lambda n, **options: torch.hamming_window(n, True, 0.6, **options),
    "blackman": lambda n, **options: torch.blackman_window(n, **options),
    "blackman to the end": lambda n, **options: torch.blackman_window(n, False, **options),
    "bartlett": lambda n, **options: torch.bartlett_window(n, **options),
    "bartlett to the end": lambda n, **options: torch.bartlett_window(n, periodic=False, **options),
    "kaiser": lambda n, **options: torch.kaiser_window(n, **options),
    "a flat kaiser": lambda n, **options: torch.kaiser_window(n, False, 3.0, **options),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_a_known_length(name: str, dtype: torch.dtype) -> None:
    window = WINDOWS[name]
    check(lambda x: [window(n, dtype=dtype) + x.to(dtype)[:, None] for n in (1, 2, 7, 12)], (torch.rand(4),))


SEQUENCES: dict[str, Callable[..., torch.Tensor]] = {
    "steps first": lambda x, y, z: pad_sequence([x, y, z]),
    "rows first": lambda x, y, z: pad_sequence([x, y, z], batch_first=True, padding_value=-1.5),
    "behind padding": lambda x, y, z: pad_sequence([x, y, z], True, 2.0, "left"),
    "of one": lambda x, y, z: pad_sequence([x], padding_value=1.0) + y.sum() + z.sum(),
    "of whole numbers": lambda x, y, z: pad_sequence([x.long(), y.long(), z.long()], True, 3),
    "beside a constant": lambda x, y, z: pad_sequence([x, torch.ones(3, *x.shape[1:]), y, z]),
}


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)], ids=["vectors", "rows", "matrices"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_as_long_as_the_longest(name: str, shape: tuple[int, ...]) -> None:
    def of(*lengths: int) -> tuple[torch.Tensor, ...]:
        return tuple(5 * torch.randn(length, *shape) for length in lengths)

    check(SEQUENCES[name], of(4, 6, 5), of(7, 2, 2), of(1, 1, 9), of(3, 3, 3))


def test_a_try_around_an_export_is_none_of_the_model() -> None:
    def rows_as_one(x: torch.Tensor) -> torch.Tensor:
        found = x[x > 0]
        return found.new_ones(found.shape[0], 4).reshape(found.shape[0], -1)

    try:
        check(rows_as_one, (torch.randn(5),), (torch.ones(3),))
    except ZeroDivisionError:
        pytest.fail("it is the caller who catches it")


def _with_nan(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    x = torch.randn(*sizes, dtype=dtype)
    x[0, 0, :2, :2] = float("nan")
    return x


FLOATS = [torch.float32, torch.float64, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fractional_pools_of_pictures_with_their_samples(dtype: torch.dtype) -> None:
    def call(x: torch.Tensor, samples: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pool = torch.nn.functional.fractional_max_pool2d
        pooled = pool(x, 2, output_size=(2, 3), _random_samples=samples)
        return pooled, *pool(x, (3, 2), output_size=(1, 2), return_indices=True, _random_samples=samples)

    sizes = [(2, 3, 6, 7), (1, 3, 9, 5), (4, 3, 7, 12)]
    calls = [(_with_nan(dtype, *size), torch.rand(*size[:2], 2, dtype=dtype)) for size in sizes]
    axes = ({0: "batch", 2: "height", 3: "width"}, {0: "batch"})
    model = to_onnx(CalledWithAll(call).eval(), calls[0], dynamic_shapes=(axes,))
    for given in calls:
        _require_equal(model, call, given)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fractional_pools_of_volumes_with_their_samples(dtype: torch.dtype) -> None:
    """Of known sizes: the shape that torch gives the result of a trace reads them as numbers, in C++."""

    def call(x: torch.Tensor, samples: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pool = torch.nn.functional.fractional_max_pool3d
        return pool(x, (2, 2, 3), output_size=(2, 3, 2), return_indices=True, _random_samples=samples)

    given = (_with_nan(dtype, 2, 3, 5, 6, 7), torch.rand(2, 3, 3, dtype=dtype))
    _require_equal(to_onnx(CalledWithAll(call).eval(), given), call, given)


def _require_equal(model: OnnxModel, call: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> None:
    got = model.run({value.name: x for value, x in zip(model.inputs, given, strict=True)}).values()
    for made, wanted in zip(got, call(*given), strict=True):
        torch.testing.assert_close(torch.as_tensor(made), wanted, rtol=0, atol=0, equal_nan=True)
