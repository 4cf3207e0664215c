"""Python's functions of numbers, of sizes that change; and a loss that asks its data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from called import Called
from exportguard import to_onnx
from exportguard.errors import ExportError

NAMES = ("sqrt", "log", "exp", "log2", "log10", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan")


def is_right(function: Callable[[torch.Tensor], Any]) -> None:
    model = to_onnx(Called(function).eval(), (torch.randn(5, 7),), dynamic_shapes=({0: "rows", 1: "columns"},))
    for sizes in [(5, 7), (3, 4), (2, 9)]:
        x = torch.randn(sizes)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, function(x), rtol=1e-5, atol=1e-6)


def of_a_size(name: str) -> None:
    function = getattr(math, name)
    if name in ("asin", "acos"):
        is_right(lambda x: x * getattr(math, name)(1 / x.shape[1]))
    else:
        is_right(lambda x: x / getattr(math, name)(x.shape[1] + x.shape[0]))
    assert getattr(math, name) is function
    if name == "log":
        is_right(lambda x: x * math.log(x.shape[1], 3) + math.ceil(math.log(x.shape[0] + 0.5, x.shape[1])))


def functions_of_sizes() -> None:
    for name in NAMES:
        of_a_size(name)


def functions_of_numpy() -> None:
    for name in ("sqrt", "log", "exp", "log2", "log10", "cos", "cosh", "sin", "sinh", "tan", "tanh", "arctan"):
        function = getattr(np, name)
        is_right(lambda x, of=function: x / of(x.shape[1] + x.shape[0] / 2))
    is_right(lambda x: x * np.arcsin(1 / x.shape[1]) - np.arccos(1 / x.shape[0]))
    is_right(lambda x: x * np.sqrt(np.prod(x.shape)) + np.rint(x.shape[0] / 2) / 4)
    is_right(lambda x: x * np.ceil(np.log2(x.shape[0] + 0.5)))
    assert not hasattr(torch.SymInt, "log")


def padded_to_a_multiple(x: torch.Tensor) -> torch.Tensor:
    parts = x.shape[1] / 4
    if not parts.is_integer():
        x = functional.pad(x, (0, math.ceil(parts) * 4 - x.shape[1]))
    return x.unflatten(1, (-1, 4)).sum(2)


def doubled_where_it_is_even(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if ((x.shape[1] + 2 * x.shape[0]) / 2).is_integer() else x - 1


def doubled_where_a_side_divides_all(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if (x.shape[0] * x.shape[1] / x.shape[1]).is_integer() else x


def quotients() -> None:
    """A question for a remainder, which both answers may follow."""
    for function in (padded_to_a_multiple, doubled_where_it_is_even, doubled_where_a_side_divides_all):
        for rows, columns in ((5, 7), (3, 8)):
            model = to_onnx(
                Called(function).eval(),
                (torch.randn(rows, columns),),
                dynamic_shapes=({0: "rows", 1: "columns"},),
                rewrite="auto",
            )
            for sizes in [(rows, columns), (3, 4), (2, 9), (1, 1), (4, 12)]:
                x = torch.randn(sizes)
                (got,) = model.run({"x": x}).values()
                torch.testing.assert_close(got, function(x), rtol=1e-5, atol=1e-6)


def losses() -> None:
    for options in ({}, {"full": True, "reduction": "sum"}, {"reduction": "none", "eps": 0.5}):
        is_right(lambda x, o=options: functional.gaussian_nll_loss(x, x.flip(0), x.exp(), **o))
        is_right(lambda x, o=options: functional.gaussian_nll_loss(x, x.flip(0), x.exp().sum(1), **o))
        is_right(lambda x, o=options: functional.gaussian_nll_loss(x, x * 2, x.exp()[:, :1], **o))
    with pytest.raises(ExportError, match="the variance"):
        is_right(lambda x: functional.gaussian_nll_loss(x, x * 2, x.exp()[0, :1]))


def rounded_to_digits() -> None:
    is_right(lambda x: x * round(x.shape[1] * 7, -1) + round(x.shape[0] * 0.75, 1))


PROGRAMS = {
    "sizes rounded to digits": rounded_to_digits,
    "functions of numbers, of a size": functions_of_sizes,
    "functions of numpy, of a size": functions_of_numpy,
    "quotients that are whole": quotients,
    "checks of losses": losses,
}
