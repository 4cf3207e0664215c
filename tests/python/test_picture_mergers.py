"""What merges the patches of each picture is called once for all of them, where it is known what it does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

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


class Shifted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(interpolate_mode="bilinear")
        self.position_edge, self.position_embedding = 3, torch.nn.Embedding(10, WIDTH)

    def interpolate_pos_encoding(self, states: torch.Tensor, height: int, width: int) -> torch.Tensor:
        table = self.position_embedding.weight[1:].view(1, 3, 3, WIDTH).permute(0, 3, 1, 2)
        scales = ((height + 0.1) / 3, (width + 0.1) / 3)
        return torch.nn.functional.interpolate(table, scale_factor=scales, mode="bilinear", align_corners=False)


def test_positions_that_are_resized_in_another_way_are_refused() -> None:
    pytest.importorskip("transformers.vision_utils")
    with pytest.raises(RewriteError, match=r"Shifted is called for each .* in another way than to the size of a pict"):
        resized_positions(Shifted(), torch.tensor([[1, 2, 2]]))
