"""Pictures of any size are padded to whole patches, also where the traced one had them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim
from transformers.models.swin.modeling_swin import SwinConfig, SwinPatchEmbeddings

from exportguard.patches.transformers.conditional_pads import PadByNothing, amounts, size_test
from exportguard.source.editing import rewrite

from .constructs import is_right_on_every_length


class Embeddings(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = SwinPatchEmbeddings(SwinConfig(image_size=8, patch_size=4, embed_dim=4))

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.embeddings.maybe_pad(pixels, pixels.shape[2], pixels.shape[3])


def padded_and_cut(x: torch.Tensor) -> torch.Tensor:
    missing = -x.shape[2] % 4
    if missing > 0:
        x = torch.nn.functional.pad(x, (0, 0, 0, missing))
    x = x.unflatten(2, (-1, 4)).flip(3).flatten(2, 3)
    return without(x, missing)


def without(x: torch.Tensor, count: int, doubled: bool = False) -> torch.Tensor:
    if count > 0:
        x = x[..., :-count, :]
        if doubled:
            x = x * 2
    return x


class Blocks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return padded_and_cut(x)


def pictures(height: int, width: int) -> list[torch.Tensor]:
    return [torch.randn(2, 3, height, width)]


def is_right_on_every_size(traced: tuple[int, int]) -> None:
    shapes = ({2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
    sizes = [traced, (8, 8), (9, 8), (8, 11), (10, 9)]
    is_right_on_every_length(Embeddings(), pictures, shapes, sizes)


def blocks_are_right_on_every_size(traced: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    change = rewrite(PadByNothing, size_test=size_test, amounts=amounts)
    for function in (padded_and_cut, without):
        monkeypatch.setitem(globals(), function.__name__, change(function))
    is_right_on_every_length(Blocks(), pictures, ({2: Dim.DYNAMIC},), [traced, (8, 8), (9, 8), (10, 8), (11, 8)])


def are_right_on_every_size() -> None:
    is_right_on_every_size((12, 12))
    is_right_on_every_size((13, 14))
    with pytest.MonkeyPatch.context() as monkeypatch:
        blocks_are_right_on_every_size((12, 8), monkeypatch)
    with pytest.MonkeyPatch.context() as monkeypatch:
        blocks_are_right_on_every_size((13, 8), monkeypatch)


PROGRAMS = {"paddings under a test of sizes": are_right_on_every_size}
