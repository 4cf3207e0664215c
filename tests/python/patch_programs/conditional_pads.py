"""Pictures of any size are padded to whole patches, also where the traced one had them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim
from transformers.models.swin.modeling_swin import SwinConfig, SwinPatchEmbeddings

from exportguard.patches.transformers.conditional_pads import HELPERS, PadByNothing
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


def told_behind(x: torch.Tensor) -> torch.Tensor:
    """Short inputs are made longer to be reflected, and cut again by as much."""
    short = 0
    length = x.shape[2]
    if length <= 5:
        short = 5 - length + 1
        x = torch.nn.functional.pad(x, (0, 0, 0, short))
    mirrored = torch.nn.functional.pad(x, (0, 0, 5, 0), mode="reflect")
    return mirrored[:, :, : mirrored.shape[2] - short]


def with_a_mask(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    length = x.shape[2]
    missing = -length % 4
    if missing > 0:
        x = torch.nn.functional.pad(x, (0, 0, 0, missing))
        if mask is None:
            mask = torch.ones(length, dtype=torch.bool)
        mask = torch.nn.functional.pad(mask, (0, missing), value=False)
    blocks = x.unflatten(2, (-1, 4))
    if mask is not None:
        by_block = mask.reshape(-1, 4)
        blocks = blocks.masked_fill(~by_block[:, :, None], -1.0)
    return blocks.softmax(3).flatten(2, 3)


class Blocks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return padded_and_cut(x)


class Mirrored(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return told_behind(x)


class Masked(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return with_a_mask(x)


def pictures(height: int, width: int) -> list[torch.Tensor]:
    return [torch.randn(2, 3, height, width)]


def is_right_on_every_size(traced: tuple[int, int]) -> None:
    shapes = ({2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
    sizes = [traced, (8, 8), (9, 8), (8, 11), (10, 9)]
    is_right_on_every_length(Embeddings(), pictures, shapes, sizes)


SIZES = [(8, 8), (9, 8), (10, 8), (11, 8), (4, 8), (6, 8)]


def functions_are_right_on_every_size(model: torch.nn.Module, functions: tuple[Any, ...], traced: int) -> None:
    change = rewrite(PadByNothing, **HELPERS)
    with pytest.MonkeyPatch.context() as monkeypatch:
        for function in functions:
            monkeypatch.setitem(globals(), function.__name__, change(function))
        is_right_on_every_length(model, pictures, ({2: Dim.DYNAMIC},), [(traced, 8), *SIZES])


def are_right_on_every_size() -> None:
    is_right_on_every_size((12, 12))
    is_right_on_every_size((13, 14))
    for traced in (12, 13):
        functions_are_right_on_every_size(Blocks(), (padded_and_cut, without), traced)
        functions_are_right_on_every_size(Mirrored(), (told_behind,), traced)
        functions_are_right_on_every_size(Masked(), (with_a_mask,), traced)


PROGRAMS = {"paddings under a test of sizes": are_right_on_every_size}
