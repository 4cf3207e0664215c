"""A model that takes pictures of any height and width has a file that does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from small_pictures import save_detr, save_resnet

import exportguard
from exportguard.models.catalogue import build_model
from exportguard.runners.onnxruntime import OrtSession
from exportguard.ship import FolderOptions, export_model
from exportguard.ship.layout import MODEL_FILE

_SIZES = ((1, 64, 64), (2, 97, 130), (1, 160, 75))


def _segformer(folder: Path) -> None:
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 1, 1], decoder_hidden_size=8,
        image_size=64,
    )  # fmt: skip
    transformers.SegformerForSemanticSegmentation(config).save_pretrained(folder)
    # Its configuration names a size, and its processor makes others.
    transformers.DetrImageProcessor(size={"shortest_edge": 40, "longest_edge": 90}).save_pretrained(folder)


@pytest.mark.parametrize(
    ("make", "runtime"),
    [
        (save_resnet, "onnxruntime"),
        (save_resnet, "transformers.js"),
        (_segformer, "optimum"),
        (save_detr, "onnxruntime"),
    ],
)
def test_the_file_takes_any_size(make: Callable[[Path], object], runtime: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make(tmp_path / "model")
    export_model(str(tmp_path / "model"), tmp_path / "out", FolderOptions(runtime=runtime))
    session = OrtSession(next((tmp_path / "out").rglob(MODEL_FILE)))
    model = build_model(str(tmp_path / "model")).model
    for batch, height, width in _SIZES:
        inputs = {"pixel_values": torch.randn(batch, 3, height, width)}
        if "pixel_mask" in session.input_names:
            inputs["pixel_mask"] = torch.ones(batch, height, width, dtype=torch.int64)
            inputs["pixel_mask"][0, :, width // 2 :] = 0
        with torch.no_grad():
            expected = model(**inputs)[0]
        torch.testing.assert_close(session.run(inputs)[0], expected, rtol=1e-3, atol=1e-4)


def test_a_model_of_one_size_has_a_file_of_that_size(tmp_path: Path) -> None:
    export_model("vit", tmp_path / "out")
    size: Any = build_model("vit").model.config.image_size
    assert exportguard.load(tmp_path / "out" / MODEL_FILE).inputs[0].shape[2:] == (size, size)
