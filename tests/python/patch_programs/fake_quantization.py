"""Rounding to a grid in training, of a batch of any size."""

from __future__ import annotations

from collections.abc import Callable

import torch

from exportguard import to_onnx

SCALES, ZEROS = torch.tensor([0.1, 0.02, 0.3]), torch.tensor([0, 3, -2], dtype=torch.int32)

FUNCTIONS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
    lambda x: torch.fake_quantize_per_tensor_affine(x, SCALES[:1], ZEROS[1:2], 0, 255),
    lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -8, 7),
]


class Rounded(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def rounds_batches_of_any_size() -> None:
    for function in FUNCTIONS:
        model = to_onnx(Rounded(function).eval(), (torch.randn(4, 3),), dynamic_shapes=({0: "batch"},))
        for size in (1, 4, 9):
            x = torch.randn(size, 3) * 5
            (got,) = model.run({"x": x}).values()
            torch.testing.assert_close(torch.as_tensor(got), function(x))


PROGRAMS = {"fake quantization of symbolic sizes": rounds_batches_of_any_size}
