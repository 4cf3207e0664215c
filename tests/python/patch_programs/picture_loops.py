"""Layers that see a picture in its rows and columns, whose numbers are data."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.export import Dim

from .pictures import is_right_on_all, require

# One frame each, at least two blocks in each direction.
PICTURES = (
    torch.tensor([[1, 4, 6], [1, 8, 4]]),
    torch.tensor([[1, 6, 4], [1, 4, 4], [1, 4, 8]]),
    torch.tensor([[1, 4, 10]]),
)
CLIPS = (
    torch.tensor([[1, 4, 6], [3, 2, 4]]),
    torch.tensor([[2, 2, 2], [1, 6, 4], [1, 2, 8]]),
    torch.tensor([[4, 4, 2]]),
)


def _model(name: str) -> Any:
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


class Tower(torch.nn.Module):
    """Positions resized to each picture, and rows that end in a token of their own."""

    def __init__(self) -> None:
        super().__init__()
        hunyuan = _model("hunyuan_vl")
        config = hunyuan.HunYuanVLVisionConfig(
            hidden_size=8,
            intermediate_size=8,
            num_attention_heads=2,
            num_hidden_layers=1,
            max_image_size=20,
            patch_size=4,
            text_hidden_size=6,
        )
        self.tower = hunyuan.HunYuanVLVisionTransformer(config).eval()
        for parameter in self.tower.parameters():
            torch.nn.init.normal_(parameter, std=0.5)

    def forward(self, pixels: torch.Tensor, grid: torch.Tensor) -> Any:
        found = self.tower(pixels, grid)
        return found.last_hidden_state, found.pooler_output


class Convolution(torch.nn.Module):
    """Patches in blocks, whose neighbours in a frame are anywhere in the sequence."""

    def __init__(self) -> None:
        super().__init__()
        config = SimpleNamespace(spatial_merge_size=2, hidden_size=4, conv_kernel_size=3)
        self.layer = _model("lfm3_vl").Lfm3VlVisionShortConv(config, 0).eval()

    def forward(self, states: torch.Tensor, grid: torch.Tensor) -> Any:
        sizes = grid if torch.compiler.is_exporting() else grid.tolist()
        return self.layer(states, grid_thw=sizes)


def loops() -> None:
    require("get_vision_position_ids")
    if importlib.util.find_spec("transformers.models.lfm3_vl") is None:
        pytest.skip("this transformers goes through its pictures by loops of another form, which are refused")
    torch.manual_seed(0)
    axes = ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    is_right_on_all(Tower(), [(torch.randn(int(grid.prod(1).sum()), 48), grid) for grid in PICTURES], axes)
    is_right_on_all(Convolution(), [(torch.randn(int(grid.prod(1).sum()), 4), grid) for grid in CLIPS], axes)


PROGRAMS = {"layers over the rows and columns of pictures": loops}
