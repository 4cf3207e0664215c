"""Operators that change a tensor by a number of Python, where sizes are symbols."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from called import Called
from exportguard import to_onnx

CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "//=": lambda y: operator.ifloordiv(y, 3),
    "div_ that rounds": lambda y: y.div_(2, rounding_mode="trunc"),
    "%=": lambda y: operator.imod(y, 3),
    "fmod_": lambda y: y.fmod_(3),
    "**=": lambda y: operator.ipow(y, 2),
    "&=": lambda y: operator.iand(y, 3),
    "|=": lambda y: operator.ior(y, 3),
    "^=": lambda y: operator.ixor(y, 3),
    "<<=": lambda y: operator.ilshift(y, 1),
    ">>=": lambda y: operator.irshift(y, 1),
    "eq_": lambda y: y.eq_(3),
    "clamp_min_": lambda y: y.clamp_min_(2),
    "copysign_": lambda y: y.copysign_(-1),
    "xlogy_": lambda y: y.xlogy_(2),
}
_OF_FLOATS = ("copysign_", "xlogy_")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("is_of_data", [False, True], ids=["a clone", "a selection"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_number_changes_a_tensor_of_any_size(name: str, is_of_data: bool) -> None:
    def changed(x: torch.Tensor) -> torch.Tensor:
        y = x[x > 0] if is_of_data else x.clone()
        CHANGES[name](y)
        return y

    def numbers(*shape: int) -> torch.Tensor:
        made = torch.arange(shape[0] * shape[1]).reshape(shape) - 2
        return made.float() if name in _OF_FLOATS else made

    model = to_onnx(Called(changed).eval(), (numbers(2, 3),), dynamic_shapes=({0: "a", 1: "b"},))
    for shape in ((2, 3), (3, 4), (5, 1)):
        (got,) = model.run({"x": numbers(*shape)}).values()
        torch.testing.assert_close(torch.as_tensor(got), changed(numbers(*shape)), equal_nan=True)
