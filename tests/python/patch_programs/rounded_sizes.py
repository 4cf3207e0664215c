"""Sizes padded to whole windows, several times over."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from exportguard import to_onnx


class Rounded(torch.nn.Module):
    """Pads to whole windows and takes the greatest of each, in the two ways in which people write it."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for width in (8, 3, 2):
            x = pad(x, (0, -x.shape[1] % width)).unflatten(1, (-1, width)).amax(2)
        return pad(x, (0, x.shape[1] % 2)), pad(x, (0, (5 - x.shape[1] % 5) % 5))


class Windows(torch.nn.Module):
    """Windows of a picture, each by itself, put together again; every second one merges four pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for width in (3, 2, 3):
            x = pad(x, (0, -x.shape[3] % width, 0, -x.shape[2] % width))
            y = self.each(x, width)
            x = y[:, :, ::2, ::2] + y[:, :, 1::2, 1::2].mean() if width == 2 else x + y
        return x

    @staticmethod
    def each(x: torch.Tensor, width: int) -> torch.Tensor:
        batch, channels, *sizes = x.shape
        rows, columns = (size // width for size in sizes)
        windows = x.view(batch, channels, rows, width, columns, width).permute(0, 2, 4, 1, 3, 5)
        answers = windows.reshape(-1, channels, width * width).softmax(-1)
        answers = answers.view(batch, rows, columns, channels, width, width)
        return answers.permute(0, 3, 1, 4, 2, 5).reshape(batch, channels, *sizes)


def has_each_size_once() -> None:
    model = Rounded().eval()
    made = to_onnx(model, (torch.randn(2, 67),), dynamic_shapes=({1: "tokens"},))
    lengths = [str(output.shape[1]) for output in made.outputs]
    assert [length.count("tokens") for length in lengths] == [1, 1], lengths
    for tokens in (1, 7, 24, 48, 67, 97):
        x = torch.randn(2, tokens)
        for got, want in zip(made.run({"x": x}).values(), model(x), strict=True):
            torch.testing.assert_close(got, want)


def keeps_windows_whole() -> None:
    """Without the patch it takes minutes, where it ends."""
    model, axes = Windows().eval(), {0: "batch", 2: "height", 3: "width"}
    made = to_onnx(model, (torch.randn(2, 3, 7, 8),), dynamic_shapes=(axes,))
    for sizes in ((2, 3, 7, 8), (1, 3, 9, 4), (3, 3, 12, 31)):
        x = torch.randn(*sizes)
        (got,) = made.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


def rounds_up() -> None:
    has_each_size_once()
    keeps_windows_whole()


PROGRAMS = {"sizes rounded up": rounds_up}
