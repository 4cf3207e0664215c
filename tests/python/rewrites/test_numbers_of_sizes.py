"""Whole numbers that Python makes of a size by logarithms, roots and shifts: the next power of two, and others."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import Module
from torch.nn.functional import pad

from exportguard import to_onnx
from exportguard.rewrites.arithmetic import bit_length, isqrt_


class PowerBelow(Module):
    def forward(self, x):
        return x[: 2 ** math.floor(math.log2(x.shape[0]))].sum(0)


class PowerAbove(Module):
    def forward(self, x):
        rows = x.shape[0]
        return pad(x, (0, 0, 0, 2 ** math.ceil(math.log2(rows)) - rows))


class PowerByInt(Module):
    def forward(self, x):
        power = 2 ** int(math.log2(x.shape[0]))
        return x[:power] * power


class PowerByBits(Module):
    def forward(self, x):
        rows = x.shape[0]
        return pad(x, (0, 0, 0, (1 << (rows - 1).bit_length()) - rows))


class Steps(Module):
    def forward(self, x):
        for i in range(int(math.log2(x.shape[0]))):
            x = x + torch.roll(x, 2**i, 0)
        return x


class Square(Module):
    def forward(self, x):
        root = math.isqrt(x.shape[0])
        return x[: root * root].reshape(root, root, 3).sum(0)


class Bits(Module):
    def forward(self, x):
        rows = x.shape[0]
        return x * ((rows & 6) + (rows | 9)) + (rows ^ 5) - (3 ^ rows) * (rows ^ (rows >> 1))


class ByLength(Module):
    def forward(self, x):
        short, long = sorted((x, x[1:]), key=len)
        return short.sum(0) - long.mean(0)


class ByCount(Module):
    def forward(self, x):
        if x.shape.numel() == 0 or x.numel() > 30:
            return x - x.shape[:1].numel()
        return x * x.size().numel() + x[1:].numel()


@pytest.mark.parametrize(
    "cls", [PowerBelow, PowerAbove, PowerByInt, PowerByBits, Steps, Square, Bits, ByLength, ByCount]
)
def test_a_number_of_a_size_is_right_at_every_size(cls: type[Module]) -> None:
    model = cls().eval()
    onnx = to_onnx(model, (torch.randn(5, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65):
        x = torch.randn(rows, 3)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


def test_bits_and_roots_of_data_are_those_of_python() -> None:
    class OfData(Module):
        def forward(self, x):
            number = int(x.sum())
            return torch.tensor([number.bit_length(), math.isqrt(abs(number))])

    onnx = to_onnx(OfData(), (torch.tensor([5.0]),), rewrite="auto")
    for number in (-9, -1, 0, 1, 2, 3, 4, 15, 16, 17, 1023, 1024):
        (got,) = onnx.run({"x": torch.tensor([float(number)])}).values()
        assert got.tolist() == [number.bit_length(), math.isqrt(abs(number))]
    assert (bit_length(12), isqrt_(17)) == (4, 4)
