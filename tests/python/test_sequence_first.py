"""torch.nn's own attention, which computes with the sequence in front of the batch, as other attention is written."""

from __future__ import annotations

import collections

import onnx
import pytest
import torch
from torch import nn

import exportguard

SIZES = ((2, 5, 3), (1, 1, 1), (3, 4, 6), (1, 7, 2), (4, 1, 5))


class Decoder(nn.Module):
    """A layer with attention to itself behind a triangle, and to what an encoder gave."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(16, 4, 32, batch_first=batch_first, norm_first=True)
        self.sequence = 1 if batch_first else 0

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[self.sequence])
        result: torch.Tensor = self.layer(x, memory, tgt_mask=mask)
        return result


class Encoder(nn.Module):
    """Two layers, of which the padding of each sample is hidden."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x, src_key_padding_mask=hidden)
        return result


def operators(model: exportguard.OnnxModel) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in onnx.load_from_string(model.to_bytes()).graph.node)


def of(batch_first: bool, batch: int, length: int) -> torch.Tensor:
    return torch.randn(batch, length, 16) if batch_first else torch.randn(length, batch, 16)


def assert_right(module: nn.Module, model: exportguard.OnnxModel, args: tuple[torch.Tensor, ...]) -> None:
    got = model.run(dict(zip([value.name for value in model.inputs], args, strict=True)))
    torch.testing.assert_close(next(iter(got.values())), module(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
def test_a_decoder_layer_of_torch(batch_first: bool) -> None:
    torch.manual_seed(0)
    module = Decoder(batch_first).eval()
    names = (lambda length: {0: "batch", 1: length}) if batch_first else (lambda length: {0: length, 1: "batch"})
    example = of(batch_first, 2, 5), of(batch_first, 2, 3)
    model = exportguard.to_onnx(module, example, dynamic_shapes=(names("words"), names("seen")), opset=23)
    found = operators(model)
    assert found["Attention"] == 2
    assert found["Transpose"] == (0 if batch_first else 8), found
    assert found["Reshape"] == 0, found
    assert found["Split"] == 2
    for batch, words, seen in SIZES:
        assert_right(module, model, (of(batch_first, batch, words), of(batch_first, batch, seen)))


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
def test_an_encoder_of_torch_with_padding(batch_first: bool) -> None:
    torch.manual_seed(0)
    module = Encoder(batch_first).eval()
    shape = {0: "batch", 1: "words"} if batch_first else {0: "words", 1: "batch"}
    example = of(batch_first, 2, 5), torch.zeros(2, 5, dtype=torch.bool)
    model = exportguard.to_onnx(module, example, dynamic_shapes=(shape, {0: "batch", 1: "words"}), opset=23)
    found = operators(model)
    assert found["Attention"] == 2
    assert found["Transpose"] == (0 if batch_first else 8), found
    for batch, words, _ in SIZES:
        hidden = torch.rand(batch, words) < 0.4
        hidden[:, 0] = False
        assert_right(module, model, (of(batch_first, batch, words), hidden))
