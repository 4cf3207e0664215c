"""Small untrained models of pictures, saved as checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers

_ONE_BLOCK: dict[str, Any] = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic"}


def save_resnet(folder: Path) -> str:
    config = transformers.ResNetConfig(**_ONE_BLOCK)
    transformers.ResNetForImageClassification(config).save_pretrained(folder)
    return str(folder)


def save_detr(folder: Path) -> str:
    backbone = transformers.ResNetConfig(**_ONE_BLOCK, out_features=["stage2"])
    config = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=16,
        encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16, encoder_attention_heads=2,
        decoder_attention_heads=2, num_queries=4,
    )  # fmt: skip
    transformers.DetrForObjectDetection(config).save_pretrained(folder)
    return str(folder)
