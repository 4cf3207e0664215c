"""Entries written at an index that is a size, or one number of a tensor, also in the branches of a test on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from called import Called
from exportguard import to_onnx

Function = Callable[[torch.Tensor], torch.Tensor]


def written(*index: Any, value: Any = 7.0, rows: int = 0) -> Function:
    """A function that writes `value` at an index in a copy of `x`; a part of the index may be a function of `x`."""

    def function(x: torch.Tensor) -> torch.Tensor:
        copy = x.clone() if not rows else x.unsqueeze(1).repeat(1, rows, 1)
        places = tuple(part(x) if callable(part) else part for part in index)
        copy[places if len(places) > 1 else places[0]] = value(x) if callable(value) else value
        return copy

    return function


def last(x: torch.Tensor) -> Any:
    return x.shape[1] - 1


def middle(x: torch.Tensor) -> Any:
    return x.shape[1] // 2


def last_row(x: torch.Tensor) -> Any:
    return x.shape[0] - 1


def every_row(x: torch.Tensor) -> Any:
    return torch.arange(x.shape[0])


def largest(x: torch.Tensor) -> Any:
    return x.sum(0).argmax()


def increased(x: torch.Tensor) -> torch.Tensor:
    copy = x.clone()
    copy[..., -x.shape[1]] += 1.0
    copy[last_row(x)][middle(x)] *= 3.0
    return copy


def kept_within(x: torch.Tensor) -> torch.Tensor:
    scores = torch.ones(x.shape[1], x.shape[1])
    for _ in range(2):
        scores[middle(x), last(x)] += x.sum()
    return scores


FUNCTIONS: list[Function] = [
    written(..., last),
    written(last_row),
    written(slice(None), middle, value=lambda x: x[:, 0]),
    written(slice(None), middle, value=last),
    written(last_row, last, value=lambda x: x[0, 0]),
    written(None, slice(None), None, last, value=lambda x: x[:1, :1]),
    written(every_row, last, value=lambda x: x[:, 0] * 2),
    written(last_row, slice(1, None), slice(None, 2), rows=3, value=lambda x: x[:1, :2]),
    written(slice(None), 1, last, rows=3),
    written(..., [0, 2], last, rows=3, value=lambda x: x[:, :1]),
    written(slice(None), True, 2, last, rows=3),
    written(lambda x: x[:, 0] > 0, last),
    written(slice(None), largest, value=lambda x: x[:, 0]),
    written(last_row, largest),
    increased,
    kept_within,
]


def are_right(functions: list[Function], **options: Any) -> None:
    for function in functions:
        model = to_onnx(Called(function).eval(), (torch.randn(4, 6),), dynamic_shapes=({0: "b", 1: "n"},), **options)
        for sizes in [(4, 6), (2, 3), (3, 9), (1, 2), (1, 1)]:
            x = torch.randn(sizes)
            try:
                want = function(x)
            except IndexError:
                continue
            (got,) = model.run({"x": x}).values()
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def writes_at_sizes() -> None:
    are_right(FUNCTIONS)


PROGRAMS = {"entries written at sizes": writes_at_sizes}
