"""Quotients of sizes, as the factors by which pictures are enlarged, are compared exactly, and counted with tensors."""

from __future__ import annotations

import pytest
import sympy
import torch
from random_programs import model_of
from torch.utils._sympy.functions import FloorDiv, IntTrueDiv, ToFloat

from exportguard import to_onnx
from exportguard.axes.expressions import Range
from exportguard.axes.implication import Answer, decide
from exportguard.axes.vast import holds_for_tensors_in_memory

h, w, n = sympy.symbols("h w n", integer=True, positive=True)
DOMAIN = {symbol: Range(2) for symbol in (h, w, n)}


def halved(size: sympy.Symbol) -> sympy.Expr:
    return FloorDiv(size - 1, 2) + 1


HOLD = {
    "no factor of two halves is above 2": IntTrueDiv(w, halved(w)) <= IntTrueDiv(2 * h, h),
    "nor above a number": IntTrueDiv(w, halved(w)) <= 2,
    "a factor is no less than another": IntTrueDiv(4 * h, h + 1) >= IntTrueDiv(w, w + 1),
    "a half is less than 1": IntTrueDiv(halved(h), h) < 1.0,
    "the whole is more than its half": IntTrueDiv(h, halved(h)) > 1.0,
    "is no multiple": sympy.Ne(IntTrueDiv(2 * h + 1, h), 2.0),
    "is just so many": sympy.Eq(IntTrueDiv(3 * h * w, w * h), 3.0),
}
OPEN = {
    "what rounding makes equal is not below": IntTrueDiv(w, w + 1) < IntTrueDiv(w + 1, w + 2),
    "a divisor of 0": IntTrueDiv(w, w - 2) >= 1,
    "a divisor of 0 below 1": IntTrueDiv(w, w - 2) > 0.0,
    "a half that is 1": IntTrueDiv(FloorDiv(h + 2, 2), h) < 1.0,
    "beside a large number": IntTrueDiv(1000 * h - 1, h) < 1000.0,
    "beside a fraction": IntTrueDiv(h, 2 * h + 1) < 0.5,
}


@pytest.mark.parametrize("guard", HOLD.values(), ids=HOLD.keys())
def test_an_order_of_quotients_is_proved(guard: sympy.Basic) -> None:
    assert decide(guard, DOMAIN).answer == Answer.PROVED


@pytest.mark.parametrize("guard", OPEN.values(), ids=OPEN.keys())
def test_what_floats_do_not_keep_is_not_proved(guard: sympy.Basic) -> None:
    assert decide(guard, DOMAIN).answer != Answer.PROVED


def proved(comparison: sympy.Basic) -> bool:
    return decide(comparison, DOMAIN).answer == Answer.PROVED


counted = ToFloat(8 * n * halved(w)) * IntTrueDiv(h, halved(h))


@pytest.mark.parametrize(("most", "holds"), [(2.0**31, True), (2.0**29, False)])
def test_what_is_less_than_a_tensor_has_entries_is_counted_with_it(most: float, holds: bool) -> None:
    assert holds_for_tensors_in_memory(counted <= most, [n * h * w * 8], proved) is holds
    assert holds_for_tensors_in_memory(counted <= most, [n], proved) is False


class Enlarges(torch.nn.Module):
    """Halves a picture and enlarges it by 2, or to an odd size, as networks for diffusion do."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(2, 2, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[2:] if any(side % 2 for side in x.shape[2:]) else None
        y = self.convolution(x)
        factor = 2 if size is None else max([whole / half for whole, half in zip(size, y.shape[2:], strict=True)])
        if y.numel() * factor > 2**31:
            y = y.contiguous()
        if size is None:
            return torch.cat([torch.nn.functional.interpolate(y, scale_factor=2.0, mode="nearest"), x], 1)
        return torch.cat([torch.nn.functional.interpolate(y, size=size, mode="nearest"), x], 1)


class EnlargesTwice(torch.nn.Module):
    """Two of its axes are 1 at the least picture that is no multiple of 4: what is traced there is for few others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.second = torch.nn.Conv2d(4, 4, 3, stride=2, padding=1)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        flat = x.permute(0, 2, 3, 1).reshape(batch, height * width, channels).softmax(1)
        return flat.reshape(batch, height, width, channels).permute(0, 3, 1, 2).contiguous() + x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_odd = any(side % 4 for side in x.shape[2:])
        y = self.first(x)
        z = self.attention(self.second(y))
        for like in (y, x):
            sizes = {"size": like.shape[2:]} if is_odd else {"scale_factor": 2.0}
            z = self.attention(torch.nn.functional.interpolate(z, mode="nearest", **sizes))
        return torch.cat([z, x], 1)


@pytest.mark.parametrize("module", [Enlarges(), EnlargesTwice()], ids=["once", "twice"])
def test_pictures_of_odd_sizes_become_branches(module: torch.nn.Module) -> None:
    module = module.eval()
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    model = to_onnx(module, (torch.randn(2, 2, 16, 24),), dynamic_shapes=shapes, rewrite="auto")
    for sizes in ((1, 16, 16), (2, 15, 16), (1, 8, 9), (3, 7, 13), (1, 1, 1), (2, 1, 4), (1, 33, 3), (1, 2, 2)):
        x = torch.randn(sizes[0], 2, *sizes[1:])
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, module(x))


SCALED = {
    "its half, rounded up": "(n + 1) // 2",
    "its half": "n // 2 + 1",
    "its thirds": "-(-n // 3)",
    "what a pool leaves": "F.max_pool1d(x[None, None], 2, ceil_mode=True).shape[-1]",
    "what a convolution leaves": "F.conv1d(x[None, None], torch.ones(1, 1, 3), stride=2, padding=1).shape[-1]",
}
_PROGRAM = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        k = {count}
        queries, keys = torch.arange(n)[:, None] * max(k / n, 1.0), torch.arange(k)[None] * max(n / k, 1.0)
        return queries - keys + (k - 1) * max(n / k, 1.0)
"""


@pytest.mark.parametrize("name", SCALED)
def test_positions_are_scaled_by_the_larger_quotient(name: str) -> None:
    """Relative positions of queries and of fewer keys, as vision transformers with pooled keys have them."""
    model = model_of(_PROGRAM.format(count=SCALED[name]), f"/scaled/{name}.py").eval()
    onnx = to_onnx(model, (torch.rand(12),), dynamic_shapes=({0: "n"},), rewrite="auto")
    for size in (1, 2, 3, 4, 5, 6, 7, 31, 32):
        x = torch.rand(size)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


RESIZED = {
    "the lesser scale": "s = min(16 / min(h, w), 40 / max(h, w))",
    "a bound on the longer side": "s = 16 / min(h, w)\n        if max(h, w) * s > 40:\n            s = 40 / max(h, w)",
}
_RESIZE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        h, w = x.shape[-2:]
        {scale}
        return F.interpolate(x, size=(int(round(h * s)), int(round(w * s))), mode="bilinear")
"""


@pytest.mark.parametrize("name", RESIZED)
def test_a_picture_is_resized_to_a_shorter_side_and_a_longest(name: str) -> None:
    model = model_of(_RESIZE.format(scale=RESIZED[name]), f"/resized/{name}.py").eval()
    axes = ({0: "batch", 2: "height", 3: "width"},)
    onnx = to_onnx(model, (torch.rand(2, 3, 8, 12),), dynamic_shapes=axes, rewrite="auto")
    for height, width in ((1, 1), (5, 7), (9, 4), (30, 4), (4, 30), (16, 16), (33, 21)):
        x = torch.rand(1, 3, height, width)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
