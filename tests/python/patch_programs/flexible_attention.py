"""`flex_attention` over any number of tokens, with what it makes of scores and which it hides."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from exportguard import to_onnx

Mixed = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], object]
BIASES = torch.linspace(-1, 1, 2 * 80).reshape(2, 80)


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, n: torch.Tensor) -> object:
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


def window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, n: torch.Tensor) -> object:
    shape = (q.shape[0], None, q.shape[2], k.shape[2])
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 3), *shape, device="cpu")
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * 1.5, block_mask=mask, return_lse=True)


def lengths(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, n: torch.Tensor) -> object:
    mask = create_block_mask(lambda b, h, i, j: j < n[b], q.shape[0], None, q.shape[2], k.shape[2], device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


FUNCTIONS: list[Mixed] = [
    lambda q, k, v, n: flex_attention(q, k, v),
    lambda q, k, v, n: flex_attention(q, k[:, :1], v[:, :1], enable_gqa=True, scale=0.3),
    lambda q, k, v, n: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (j - i) * torch.exp2(-(h + 1.0))),
    lambda q, k, v, n: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + BIASES[h, i - j + 40]),
    lambda q, k, v, n: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: 20 * torch.tanh(s / 20)),
    causal,
    window,
    lengths,
]


class Attends(torch.nn.Module):
    def __init__(self, function: Mixed) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, n: torch.Tensor) -> object:
        return self.function(q, k, v, n)


def any_number_of_tokens() -> None:
    axes = {0: "batch", 2: "tokens"}
    for function in FUNCTIONS:
        feeds = [
            (*(torch.randn(batch, 2, tokens, 8) for _ in range(3)), torch.arange(batch) % (tokens + 1))
            for batch, tokens in [(3, 5), (2, 1), (1, 40)]
        ]
        model = to_onnx(Attends(function).eval(), feeds[0], dynamic_shapes=(axes, axes, axes, {0: "batch"}))
        names = [value.name for value in model.inputs]
        for feed in feeds:
            given = {name: x for name, x in zip("qkvn", feed, strict=True) if name in names}
            with torch.compiler.set_stance("force_eager"):  # not compiled for each feed
                expected = torch.utils._pytree.tree_leaves(function(*feed))
            for want, got in zip(expected, model.run(given).values(), strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


PROGRAMS = {"flexible attention": any_number_of_tokens}
