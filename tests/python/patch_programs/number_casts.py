"""`torch_int` and `torch_float` of numbers that are made of the sizes of pictures."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch.export import Dim
from transformers.utils import generic

from exportguard.models.catalogue import BuildOptions, build_architecture
from exportguard.models.tables import Architecture

from .constructs import is_right_on_every_length

SIZES = [(4, 5), (1, 1), (2, 7), (9, 3)]


class Cast(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        height, width = (generic.torch_int(size) for size in x.shape)
        half = generic.torch_int(height / 2) + 1
        return x.new_ones(height + width, half), x * generic.torch_float(width) / generic.torch_float(height / 4)


class Biased(torch.nn.Module):
    """An encoder of pictures whose table of relative positions is scaled to their size."""

    def __init__(self) -> None:
        super().__init__()
        config = {"num_hidden_layers": 1, "use_relative_position_bias": True, "image_size": 32, "patch_size": 8}
        architecture = Architecture(name="beit", task="feature-extraction", model_type="beit", config=config)
        self.model: Any = build_architecture(architecture, BuildOptions()).model.eval()
        for parameter in self.model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.model(pixel_values=pixels, interpolate_pos_encoding=True).last_hidden_state


def pictures(height: int, width: int) -> list[torch.Tensor]:
    return [torch.linspace(-1, 1, 3 * 64 * height * width).reshape(1, 3, 8 * height, 8 * width)]


def casts() -> None:
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    is_right_on_every_length(Cast(), lambda *sizes: [torch.ones(sizes)], (axes,), SIZES)
    if not transformers.__version__.startswith("4."):  # which scales the tables of BEIT otherwise
        is_right_on_every_length(Biased().eval(), pictures, ({2: Dim.DYNAMIC, 3: Dim.DYNAMIC},), SIZES)


PROGRAMS = {"casts of numbers": casts}
