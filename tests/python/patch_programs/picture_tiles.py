"""Pictures cut into as many tiles as suit their shape: those numbers, and how much of a tile is padding, are data."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextModel,
    LlavaOnevisionConfig,
    LlavaOnevisionModel,
    SiglipVisionConfig,
)

from exportguard import to_onnx, torch_export_patches
from exportguard.runners.onnxruntime import OrtSession
from unchecked import WITHOUT_CHECKS

_SIDE = 16
_SIZES = ([[20, 30], [64, 9], [33, 33]], [[48, 100], [3, 5]], [[16, 32]], [[5, 90], [17, 16], [70, 70], [16, 33]])
_TEXT = {
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 8,
}
_VISION = {
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 1,
    "image_size": _SIDE,
    "patch_size": 4,
}


class Features(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = model.eval()
        torch.nn.init.normal_(self.model.image_newline)

    def forward(self, pixels: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        found = self.model.get_image_features(pixels, sizes)
        return torch.cat(list(getattr(found, "pooler_output", found)))


def _is_right(model: torch.nn.Module) -> None:
    calls = [(torch.randn(len(sizes), 10, 3, _SIDE, _SIDE), torch.tensor(sizes)) for sizes in _SIZES]
    with torch_export_patches(), torch.no_grad():
        exported = torch.export.export(model, calls[0], dynamic_shapes=({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))
    session = OrtSession(to_onnx(exported, options=WITHOUT_CHECKS).to_bytes())
    for call in calls:
        with torch.no_grad():
            expected = model(*call)
        got = session.run(dict(zip(session.input_names, call, strict=True)))
        torch.testing.assert_close(got, [expected], rtol=1e-4, atol=1e-5)


def tiles() -> None:
    resolutions = [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48], [48, 48]]
    parts = {"text_config": LlamaConfig(**_TEXT), "image_grid_pinpoints": resolutions}
    _is_right(Features(LlavaNextModel(LlavaNextConfig(vision_config=CLIPVisionConfig(**_VISION), **parts))))
    vision = SiglipVisionConfig(**_VISION)
    config = LlavaOnevisionConfig(vision_config=vision, vision_aspect_ratio="anyres_max_2", **parts)
    _is_right(Features(LlavaOnevisionModel(config)))


PROGRAMS = {"pictures in tiles": tiles}
