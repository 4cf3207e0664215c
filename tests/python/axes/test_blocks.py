"""Blocks of pictures: views by halves and quarters of sizes, which say nothing of pictures smaller than a block."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

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
