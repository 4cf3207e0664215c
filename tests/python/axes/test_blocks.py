"""Blocks of pictures: views by halves and quarters of sizes, which say nothing of pictures smaller than a block."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from random_programs import model_of

from called import Called
from exportguard import to_onnx

Function = Callable[[torch.Tensor], torch.Tensor]


def squeezed(x: torch.Tensor) -> torch.Tensor:
    b, c, h, w = x.shape
    x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4).contiguous()
    return x.view(b, c * 4, h // 2, w // 2)


def unsqueezed(x: torch.Tensor) -> torch.Tensor:
    b, c, h, w = x.shape
    x = x.view(b, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).contiguous()
    return x.view(b, c // 4, h * 2, w * 2)


def windows(x: torch.Tensor, size: int) -> torch.Tensor:
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size, size, c)


def joined(parts: torch.Tensor, size: int, h: int, w: int) -> torch.Tensor:
    b = parts.shape[0] // ((h // size) * (w // size))
    x = parts.view(b, h // size, w // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)


def attended(x: torch.Tensor) -> torch.Tensor:
    x = x.permute(0, 2, 3, 1).contiguous()
    parts = windows(x, 4)
    return joined(parts * parts.amax((1, 2), keepdim=True), 4, x.shape[1], x.shape[2])


BLOCKS: dict[str, Function] = {
    "blocks into channels": squeezed,
    "there and back": lambda x: unsqueezed(squeezed(x).tanh()),
    "twice": lambda x: unsqueezed(squeezed(squeezed(x))[:, ::2]),
    "windows": attended,
}


@pytest.mark.parametrize("name", BLOCKS)
def test_pictures_of_any_number_of_blocks(name: str) -> None:
    function = BLOCKS[name]
    model = to_onnx(Called(function).eval(), (torch.randn(2, 4, 8, 12),), dynamic_shapes=({0: "b", 2: "h", 3: "w"},))
    for sizes in ((1, 4, 4, 4), (3, 4, 4, 16), (2, 4, 20, 8), (1, 4, 12, 12)):
        x = torch.randn(sizes)
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, function(x))


#: Whether windows of 4 are shifted, as models write it: not where there is a single one along an axis.
SHIFTED = {
    "the smaller": "min(hp, wp) > 4",
    "the smaller, otherwise": "not min(hp, wp) <= 4",
    "each": "hp > 4 and wp > 4",
    "by counts": "min(hp // 4, wp // 4) >= 2",
    "by their product": "hp > 4 and (hp // 4) * (wp // 4) > hp // 4",
    "the larger beside": "min(hp, wp) > 4 and max(hp, wp) > 4",
}

_WINDOWS = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        b, h, w, c = x.shape
        x = F.pad(x, (0, 0, 0, -w % 4, 0, -h % 4))
        hp, wp = x.shape[1], x.shape[2]
        shift = 2
        if not ({test}):
            shift = 0
        if shift > 0:
            region = torch.zeros(hp, wp)
            region[-4:] += 1
            region[:, -2:] += 2
            x = torch.roll(x + region[None, :, :, None], (-shift, -shift), (1, 2))
        x = x.view(b, hp // 4, 4, wp // 4, 4, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 16, c).softmax(1)
        count = int(x.shape[0] / (hp * wp / 4 / 4))
        x = x.view(count, hp // 4, wp // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(count, hp, wp, c)
        if shift > 0:
            x = torch.roll(x, (shift, shift), (1, 2))
        return x[:, :h, :w]
"""


@pytest.mark.parametrize("name", SHIFTED)
def test_windows_that_are_shifted_in_large_pictures(name: str) -> None:
    model = model_of(_WINDOWS.format(test=SHIFTED[name]), f"/windows/{name}.py").eval()
    example = (torch.randn(2, 9, 14, 3),)
    onnx = to_onnx(model, example, dynamic_shapes=({0: "b", 1: "h", 2: "w"},), rewrite="auto")
    for sizes in (
        (2, 9, 14),
        (1, 4, 4),
        (2, 3, 9),
        (1, 12, 3),
        (2, 1, 1),
        (1, 40, 8),
        (3, 13, 31),
        (2, 8, 8),
        (1, 5, 1),
    ):
        x = torch.randn(*sizes, 3)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
