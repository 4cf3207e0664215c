"""Pictures of any size are padded to whole patches, also where the traced one had them."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim
from transformers.models.swin.modeling_swin import SwinConfig, SwinPatchEmbeddings

from .constructs import is_right_on_every_length


class Embeddings(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = SwinPatchEmbeddings(SwinConfig(image_size=8, patch_size=4, embed_dim=4))

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.embeddings.maybe_pad(pixels, pixels.shape[2], pixels.shape[3])


def pictures(height: int, width: int) -> list[torch.Tensor]:
    return [torch.randn(2, 3, height, width)]


def is_right_on_every_size(traced: tuple[int, int]) -> None:
    shapes = ({2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
    sizes = [traced, (8, 8), (9, 8), (8, 11), (10, 9)]
    is_right_on_every_length(Embeddings(), pictures, shapes, sizes)


def are_right_on_every_size() -> None:
    is_right_on_every_size((12, 12))
    is_right_on_every_size((13, 14))


PROGRAMS = {"paddings under a test of sizes": are_right_on_every_size}
