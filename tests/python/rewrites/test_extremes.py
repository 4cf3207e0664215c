"""`max(a, b)` and `min(a, b)` give one of their operands with its kind, or the export is refused."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from exportguard import ExportGuardError, to_onnx

_OPERANDS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a size": lambda x: x.shape[0],
    "a size less one": lambda x: x.shape[0] - 1,
    "half of a size": lambda x: x.shape[0] / 2,
    "an int": lambda x: 3,
    "a float": lambda x: 2.5,
    "a small float": lambda x: 1e-6,
    "a tensor": lambda x: x.sum(),
    "a NaN": lambda x: (x.sum() - x.sum()) / (x.sum() - x.sum()),
    "a tensor of integers": lambda x: x.argmax(),
    "a tensor with an axis": lambda x: x[:1, 0],
    "an int of data": lambda x: int(x.sum()),
    "a float of data": lambda x: float(x.sum()),
}
_USES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "beside floats": lambda x, k: x * k,
    "beside integers": lambda x, k: torch.arange(3) * k,
    "computed on": lambda x, k: torch.arange(3) * (k * 2 + 1),
    "divided": lambda x, k: torch.arange(3) / k,
    "rounded down": lambda x, k: x * (k // 2),
    "a tensor": lambda x, k: torch.tensor(k),
    "filled": lambda x, k: torch.full((2,), k),
    "filled like": lambda x, k: torch.full_like(x, k),
    "compared": lambda x, k: torch.arange(3) < k,
    "asked for its type": lambda x, k: x * 2 if isinstance(k, float) else x - 1,
}
_PAIRS = [*itertools.permutations(_OPERANDS, 2)]
_CASES = [torch.linspace(0.5, 3, rows * 2).reshape(rows, 2) * sign for rows in (3, 1, 2, 5) for sign in (1.0, -1.0)]


class Extreme(torch.nn.Module):
    """The larger or smaller of two operands, used in one way."""

    def __init__(self, pair: tuple[str, str], use: str, *, is_max: bool) -> None:
        super().__init__()
        self.first, self.second = (_OPERANDS[name] for name in pair)
        self.use = _USES[use]
        self.is_max = is_max

    def forward(self, x):
        first, second = self.first(x), self.second(x)
        k = max(first, second) if self.is_max else min(first, second)
        return self.use(x, k)


def _converted(model: torch.nn.Module) -> Any:
    """The file; None if the export is refused."""
    try:
        return to_onnx(model, (_CASES[0],), dynamic_shapes=({0: "rows"},), rewrite="auto")
    except ExportGuardError:
        return None


@pytest.mark.parametrize("use", _USES)
@pytest.mark.parametrize("is_max", [True, False], ids=["max", "min"])
def test_the_one_of_two_keeps_its_kind_or_is_refused(use: str, is_max: bool) -> None:
    for pair in random.Random(f"{use}{is_max}").sample(_PAIRS, 4):
        model = Extreme(pair, use, is_max=is_max).eval()
        onnx = _converted(model)
        for x in _CASES if onnx is not None else ():
            try:
                wanted = copy.deepcopy(model)(x.clone())
            except (RuntimeError, TypeError, ZeroDivisionError):
                continue
            (found,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(found, wanted, equal_nan=True, msg=f"{pair}, {len(x)} rows: {found}, {wanted}")


@pytest.mark.parametrize("use", ["beside integers", "computed on", "a tensor", "filled", "asked for its type"])
def test_what_depends_on_the_kind_is_refused_with_its_line(use: str) -> None:
    model = Extreme(("a size", "a float"), use, is_max=False).eval()
    with pytest.raises(ExportGuardError, match=r"test_extremes.*(an int and a float|int or float)"):
        to_onnx(model, (_CASES[0],), dynamic_shapes=({0: "rows"},), rewrite="auto")


@pytest.mark.parametrize("use", ["beside floats", "divided", "rounded down", "filled like", "compared"])
def test_what_does_not_depend_on_the_kind_is_one_program(use: str) -> None:
    model = Extreme(("a size", "a float"), use, is_max=True).eval()
    onnx = to_onnx(model, (_CASES[0],), dynamic_shapes=({0: "rows"},))
    assert all(axis.kept for axis in onnx.axes)
    for x in _CASES:
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))


class FirstOfEquals(torch.nn.Module):
    def forward(self, x):
        nan = torch.log(x.sum())
        return torch.stack([x.new_zeros(()) + k for k in (max(nan, 0.5), max(0.5, nan), min(nan, 0.5), min(0.5, nan))])


def test_nothing_comes_before_or_behind_nan() -> None:
    onnx = to_onnx(FirstOfEquals(), (torch.ones(3, 2),), dynamic_shapes=({0: "rows"},))
    for x in _CASES:
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), FirstOfEquals()(x), equal_nan=True)
