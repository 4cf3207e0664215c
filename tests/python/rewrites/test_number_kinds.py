"""A number that is int on one path and float on the other decides no dtype, or the export is refused."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch

from exportguard import RewriteError, to_onnx

_VALUES: dict[str, Any] = {"bool": True, "int": 2, "float": 0.5, "tensor": torch.tensor(0.25), "ints": torch.tensor(3)}
_DTYPES = (torch.bool, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
_USES = {
    "mul": lambda x, k: x * k,
    "radd": lambda x, k: k + x,
    "where": lambda x, k: torch.where(x > 0, k, x),
    "after arithmetic": lambda x, k: x * (k * 2 + 1),
    "rank 0": lambda x, k: x[0] * k,
    "compared": lambda x, k: x < k,
    "divided": lambda x, k: x / (k + 1),
    "power": lambda x, k: x * 2**k,
}


class Chosen(torch.nn.Module):
    """A value of one kind or of another, beside a tensor."""

    def __init__(self, kinds: tuple[str, str], use: str) -> None:
        super().__init__()
        self.kinds = kinds
        self.use = use

    def forward(self, x, y):
        k = _VALUES[self.kinds[0]]
        if x.sum() > 0:
            k = _VALUES[self.kinds[1]]
        return _USES[self.use](y, k)


def _cases(dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.tensor([sign, 1.0]), torch.tensor([0, 1, 3]).to(dtype)) for sign in (3.0, -3.0)]


_KINDS = list(itertools.combinations(_VALUES, 2))


@pytest.mark.parametrize("use", _USES, ids=str)
@pytest.mark.parametrize("kinds", _KINDS, ids=str)
def test_a_number_of_two_kinds_decides_no_dtype(kinds: tuple[str, str], use: str) -> None:
    dtype = _DTYPES[(list(_USES).index(use) + _KINDS.index(kinds)) % len(_DTYPES)]
    model = Chosen(kinds, use)
    try:
        expected = [copy.deepcopy(model)(*case) for case in _cases(dtype)]
    except (RuntimeError, TypeError):  # eager mode refuses it
        return
    try:
        onnx = to_onnx(model, _cases(dtype)[0], rewrite="auto")
    except RewriteError:
        return
    for case, wanted in zip(_cases(dtype), expected, strict=True):
        (found,) = onnx.run(dict(zip(("x", "y"), case, strict=True))).values()
        torch.testing.assert_close(found, wanted, rtol=2e-3, atol=1e-3)


class MixedInALoop(torch.nn.Module):
    def forward(self, x, y):
        k = 0
        for row in x:
            k = k + 0.5 if row > 1 else k + 1
        return y + k


def test_a_number_that_a_loop_widens_is_refused_beside_integers_alone() -> None:
    model = MixedInALoop()
    x = torch.tensor([3.0, 0.5, 2.0])
    with pytest.raises(RewriteError, match="int or float"):
        to_onnx(model, (x, torch.arange(3)), dynamic_shapes=({0: "rows"}, None), rewrite="auto")
    onnx = to_onnx(model, (x, torch.ones(3)), dynamic_shapes=({0: "rows"}, None), rewrite="auto")
    for values in (x, torch.zeros(5), torch.full((2,), 4.0)):
        assert torch.equal(
            next(iter(onnx.run({"x": values, "y": torch.ones(3)}).values())), model(values, torch.ones(3))
        )


class PowerOfANumber(torch.nn.Module):
    def forward(self, x):
        n = 0
        for row in x:
            n = n + 1 if row > 0 else n - 1
        return x * 2**n


def test_a_power_of_two_with_a_negative_exponent_is_a_fraction() -> None:
    onnx = to_onnx(PowerOfANumber(), (torch.tensor([1.0, 2.0, -1.0]),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 2.0, 3.0, -1.0, 2.0])):
        assert torch.equal(next(iter(onnx.run({"x": x}).values())), PowerOfANumber()(x))
