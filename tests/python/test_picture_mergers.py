"""What merges the patches of each picture is called once for all of them, where it is known what it does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from exportguard.patches.transformers.picture_loops import merged_rows, resized_positions
from exportguard.source.errors import RewriteError

SIDE, WIDTH, TOKEN = 2, 6, 4


class Merger(torch.nn.Module):
    """Blocks of patches become tokens; each row of them ends with one more."""

    def __init__(self) -> None:
        super().__init__()
        self.spatial_merge_size = SIDE
        self.before_rms = torch.nn.RMSNorm(WIDTH)
        self.proj_conv = torch.nn.Conv2d(WIDTH, 8, SIDE, SIDE)
        self.proj_act = torch.nn.GELU()
        self.proj_out = torch.nn.Conv2d(8, TOKEN, 1)
        self.image_newline = torch.nn.Parameter(torch.randn(TOKEN))


class Frames(Merger):
    def forward(self, patches: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        frames = self.before_rms(patches).view(-1, *size, WIDTH).permute(0, 3, 1, 2)
        tokens = self.proj_out(self.proj_act(self.proj_conv(frames))).permute(0, 2, 3, 1)
        ends = self.image_newline.expand(*tokens.shape[:2], 1, TOKEN)
        return torch.cat([tokens, ends], dim=2).reshape(1, -1, TOKEN)


class Pictures(Merger):
    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.after_rms = torch.nn.Linear(TOKEN, TOKEN), torch.nn.RMSNorm(TOKEN)
        self.image_begin, self.image_end = (torch.nn.Parameter(torch.randn(TOKEN)) for _ in range(2))

    def forward(self, patches: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        frames = self.before_rms(patches).view(-1, *size, WIDTH).permute(0, 3, 1, 2)
        tokens = self.proj_out(self.proj_act(self.proj_conv(frames))).permute(0, 2, 3, 1)
        ends = self.image_newline.expand(*tokens.shape[:2], 1, TOKEN)
        inner = self.mlp(torch.cat([tokens, ends], dim=2).reshape(1, -1, TOKEN))
        first, last = (one.view(1, 1, TOKEN) for one in (self.image_begin, self.image_end))
        return self.after_rms(torch.cat([first, inner, last], dim=1))


GRIDS = {
    "pictures": [(1, 4, 6), (1, 2, 2), (1, 8, 4)],
    "one picture": [(1, 2, 6)],
    "clips": [(3, 2, 4), (1, 4, 4), (2, 6, 2)],
}


def in_a_loop(merger: Callable[..., torch.Tensor], states: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    parts = states.split([int(count) for count in grid.prod(-1)], dim=1)
    sizes = [(height, width) for _, height, width in grid.tolist()]
    return torch.cat([merger(part, size=size) for part, size in zip(parts, sizes, strict=True)], dim=1)


@pytest.mark.parametrize(
    ("cls", "name"), [(Frames, "pictures"), (Frames, "one picture"), (Frames, "clips"), (Pictures, "pictures")]
)
def test_all_pictures_are_merged_as_each_of_them_is(cls: Any, name: str) -> None:
    torch.manual_seed(0)
    merger, grid = cls().eval(), torch.tensor(GRIDS[name])
    states = torch.randn(1, int(grid.prod(-1).sum()), WIDTH)
    torch.testing.assert_close(merged_rows(merger, states, grid), in_a_loop(merger, states, grid))


class Scaled(Frames):
    def forward(self, patches: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        return self.scale * self.before_rms(patches)


def test_a_merger_that_does_something_else_is_refused() -> None:
    grid = torch.tensor([[1, 2, 2]])
    with pytest.raises(RewriteError, match=r"Scaled is called for each .* it reads before_rms, scale\. Convert"):
        merged_rows(Scaled(), torch.randn(1, 4, WIDTH), grid)


def _table(module: Any) -> torch.Tensor:
    side = module.position_edge
    table: torch.Tensor = module.position_embedding.weight[1:].reshape(1, side, side, WIDTH)
    return table.permute(0, 3, 1, 2)


class ToTheSize(torch.nn.Module):
    def __init__(self, mode: str = "bilinear", side: int = 3) -> None:
        super().__init__()
        self.config = SimpleNamespace(interpolate_mode=mode)
        self.position_edge, self.position_embedding = side, torch.nn.Embedding(side * side + 1, WIDTH)

    def interpolate_pos_encoding(self, states: torch.Tensor, height: int, width: int) -> torch.Tensor:
        found = nn.functional.interpolate(
            _table(self), size=(height, width), mode=self.config.interpolate_mode, align_corners=False
        )
        return found.flatten(2).transpose(1, 2)


class ByScales(ToTheSize):
    def interpolate_pos_encoding(self, states: torch.Tensor, height: int, width: int) -> torch.Tensor:
        down = (int(height) + 0.1) / self.position_edge
        across = (int(width) + 0.1) / self.position_edge
        found = nn.functional.interpolate(
            _table(self), mode=self.config.interpolate_mode, scale_factor=(down, across), align_corners=False
        )
        return found.flatten(2).transpose(1, 2)


@pytest.mark.parametrize("cls", [ToTheSize, ByScales])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("side", [1, 3, 8])
def test_positions_are_resized_for_all_pictures_as_for_each(cls: Any, mode: str, side: int) -> None:
    embedding = cls(mode, side)
    for grid in ([[1, 4, 6], [1, 2, 2], [1, 8, 5]], [[3, 2, 4], [1, 3, 3]], [[1, 1, 17]]):
        each = [embedding.interpolate_pos_encoding(None, h, w).squeeze(0).repeat(t, 1) for t, h, w in grid]
        torch.testing.assert_close(resized_positions(embedding, torch.tensor(grid)), torch.cat(each))


class Doubled(ToTheSize):
    def interpolate_pos_encoding(self, states: torch.Tensor, height: int, width: int) -> torch.Tensor:
        scales = (2 * height / self.position_edge, 2 * width / self.position_edge)
        return nn.functional.interpolate(_table(self), scale_factor=scales, mode="bilinear", align_corners=False)


class Turned(ToTheSize):
    def interpolate_pos_encoding(self, states: torch.Tensor, height: int, width: int) -> torch.Tensor:
        down = (int(width) + 0.1) / self.position_edge
        across = (int(height) + 0.1) / self.position_edge
        return nn.functional.interpolate(
            _table(self), scale_factor=(down, across), mode=self.config.interpolate_mode, align_corners=False
        )


@pytest.mark.parametrize("embedding", [Doubled(), Turned(), ToTheSize("area"), ByScales("nearest")])
def test_positions_that_are_resized_in_another_way_are_refused(embedding: ToTheSize) -> None:
    name = type(embedding).__name__
    with pytest.raises(RewriteError, match=rf"{name} is called for each .* in another way than to the size of a pict"):
        resized_positions(embedding, torch.tensor([[1, 2, 2]]))
