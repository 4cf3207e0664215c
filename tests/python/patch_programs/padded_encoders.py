"""Encoders of `torch.nn` with a mask of padding, behind the tokens or in front of them."""

from __future__ import annotations

import torch

from exportguard import to_onnx

_WIDTH = 8
_MASKS: tuple[list[list[int]], ...] = (
    [[0, 0, 1], [0, 1, 1]],
    [[1, 0, 0], [0, 0, 1]],
    [[0, 0, 0, 0], [0, 0, 0, 0]],
    [[1, 1], [0, 1]],
    [[0, 1, 0, 1, 1]],
    [[0]],
)


class _Encoder(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module | None) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(_WIDTH, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, norm)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.encoder(x, src_key_padding_mask=padding)
        return output


class _Transformer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = torch.nn.Transformer(_WIDTH, 2, 2, 2, 16, batch_first=True)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.whole(x, x, src_key_padding_mask=padding)
        return output


def returns_what_eager_mode_does_for_padding() -> None:
    norm = torch.nn.LayerNorm(_WIDTH)
    torch.nn.init.normal_(norm.bias)
    for module in (_Encoder(None), _Encoder(norm), _Transformer()):
        example = torch.randn(3, 5, _WIDTH), torch.tensor([[0, 0, 0, 0, 1]] * 3).bool()
        shapes = {"x": {0: "batch", 1: "seq"}, "padding": {0: "batch", 1: "seq"}}
        model = to_onnx(module.eval(), example, dynamic_shapes=shapes)
        for mask in _MASKS:
            padding = torch.tensor(mask).bool()
            x = torch.randn(*padding.shape, _WIDTH)
            (got,) = model.run({"x": x, "padding": padding}).values()
            with torch.no_grad():
                torch.testing.assert_close(got, module(x, padding), rtol=1e-4, atol=1e-5)


PROGRAMS = {"padding behind an encoder": returns_what_eager_mode_does_for_padding}
