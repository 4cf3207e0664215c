"""Pictures of several sizes in one batch, whose patches a model draws: their order says nothing."""

from __future__ import annotations

from typing import Any

import torch
from transformers import ViltConfig, ViltForQuestionAnswering

from exportguard import to_onnx

TEXT = {0: "batch", 1: "seq"}
SHAPES = {
    **dict.fromkeys(("input_ids", "attention_mask"), TEXT),
    "pixel_values": {0: "batch", 2: "height", 3: "width"},
    "pixel_mask": {0: "batch", 1: "height", 2: "width"},
}
#: What is inside each picture, of those of one batch.
PICTURES = ([(8, 12), (12, 8)], [(12, 16), (4, 16), (8, 4)], [(4, 4)], [(20, 8), (20, 20)])


def _call(inside: list[tuple[int, int]], words: int) -> dict[str, torch.Tensor]:
    count, height, width = len(inside), max(size[0] for size in inside), max(size[1] for size in inside)
    mask = torch.zeros(count, height, width, dtype=torch.int64)
    for picture, (rows, columns) in enumerate(inside):
        mask[picture, :rows, :columns] = 1
    words_mask = torch.ones(count, words, dtype=torch.int64)
    words_mask[0, words // 2 + 1 :] = 0
    pixels = torch.randn(count, 3, height, width)
    texts = torch.randint(1, 90, (count, words))
    return {"input_ids": texts, "attention_mask": words_mask, "pixel_values": pixels, "pixel_mask": mask}


def _model(**changes: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    config = ViltConfig(**small, vocab_size=90, image_size=16, patch_size=4, initializer_range=0.5, **changes)
    return ViltForQuestionAnswering(config).eval()


def drawn() -> None:
    model = _model(max_image_length=-1)
    calls = [_call(inside, 3 + number) for number, inside in enumerate(PICTURES)]
    onnx = to_onnx(model, (), calls[0], dynamic_shapes=SHAPES)
    for call in calls:
        torch.testing.assert_close(onnx.run(call)["logits"], model(**call).logits, rtol=1e-3, atol=1e-4)


PROGRAMS = {"patches that are drawn": drawn}
