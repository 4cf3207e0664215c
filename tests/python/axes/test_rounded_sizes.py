"""Random programs that compare sizes rounded in one way or another: two that differ may be equal once rounded."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch
from random_programs import model_of

from exportguard import OnnxModel, to_onnx
from exportguard.errors import AxisError

_PROGRAMS = int(os.environ.get("EXPORTGUARD_SIZE_PROGRAMS", "8"))
_FIRST = int(os.environ.get("EXPORTGUARD_SIZE_PROGRAMS_FROM", "0"))
_SIZES = (1, 2, 3, 4, 7, 8, 9, 13, 16, 17, 31, 32, 33, 40, 64, 65, 70)
_ROUNDED = (
    *("{n}", "{n} // {c}", "{n} - {n} % {c}", "{n} + (-{n}) % {c}", "-(-{n} // {c})", "{n} % {c}", "min({n}, {c})"),
)
_FORMS = (
    "torch.zeros(max({a}, {b}))",
    "torch.zeros(min({a}, {b}))",
    "torch.zeros({a} if {a} > {b} else {b})",
    "torch.zeros({b} if {a} >= {b} else {a})",
    "torch.zeros({a} + 1 if {a} != {b} else {b})",
    "torch.zeros(max({a}, {b}, len(z)))",
    "torch.zeros(sorted([{a}, {b}])[0])",
    "x[: max({a} - ({b}), 0)].sum() + y",
    "torch.cat([x, z]) if {a} < {b} else torch.cat([z, y])",
)
_TEXT = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y, z):
        n, m, k = len(x), len(y), len(z)
        return {}
"""


def random_text(chosen: random.Random) -> str:
    def rounded(name: str) -> str:
        text = chosen.choice(_ROUNDED).format(n=name, c=chosen.choice((2, 3, 4, 8, 32)))
        return f"{text}{chosen.choice(('', '', ' + k', ' + 1', ' + k % 4', ' * 2'))}"

    return _TEXT.format(chosen.choice(_FORMS).format(a=rounded("n"), b=rounded(chosen.choice("mmmk"))))


def inputs_of(sizes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return {name: torch.randn(size) for name, size in zip("xyz", sizes, strict=True)}


def require_right(program: torch.nn.Module, model: OnnxModel, chosen: random.Random) -> None:
    for _ in range(60):
        sizes = tuple(chosen.choices(_SIZES, k=3))
        given = inputs_of(sizes)
        try:
            expected: Any = program(**given)
        except RuntimeError:  # sizes that do not go together
            continue
        (got,) = model.run(given).values()
        torch.testing.assert_close(torch.as_tensor(got), expected, msg=f"at {sizes}")


@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _PROGRAMS))
@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
def test_what_is_kept_is_right_at_every_size(seed: int, rewrite: Any) -> None:
    chosen = random.Random(seed)
    text = random_text(chosen)
    program = model_of(text, "/rounded sizes.py")
    example = inputs_of(tuple(chosen.choices(_SIZES[1:], k=3)))
    axes = {name: {0: axis} for name, axis in zip("xyz", "nmk", strict=True)}
    try:
        model = to_onnx(program, kwargs=example, dynamic_shapes=axes, rewrite=rewrite)
    except AxisError:  # it is told that an axis is lost
        return
    require_right(program, model, chosen)


def test_sizes_that_are_equal_once_rounded_are_not_taken_for_each_other() -> None:
    program = model_of(_TEXT.format("torch.zeros(max(n + -n % 32 + k, m + -m % 32 + k))"), "/rounded sizes.py")
    axes = {name: {0: axis} for name, axis in zip("xyz", "nmk", strict=True)}
    model = to_onnx(program, kwargs=inputs_of((7, 40, 8)), dynamic_shapes=axes, rewrite="auto")
    assert all(axis.kept for axis in model.axes)
    require_right(program, model, random.Random(0))
