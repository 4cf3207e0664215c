"""What hides a key hides its score in float16 too, in a runtime that computes float16 in float32."""

from __future__ import annotations

import pytest
import torch

import exportguard
from exportguard.optimization import Optimize

LOWEST = torch.finfo(torch.float16).min


class Scores(torch.nn.Module):
    """Weights of keys, some of which a mask hides; the ways in which models write that."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, score: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.way == "widened":
            return torch.softmax(score + mask, -1, dtype=torch.float32).to(score.dtype)
        if self.way == "cast":
            return torch.softmax((score + mask).float(), -1)
        if self.way == "clamped":
            return torch.softmax(torch.max(score + mask, torch.tensor(LOWEST, dtype=score.dtype)), -1)
        if self.way == "joined":
            return torch.softmax((score + mask).view(-1, score.shape[-2], score.shape[-1]), -1)
        return torch.softmax(score + mask, -1)


@pytest.mark.parametrize("optimize", [False, True, "onnxruntime"])
@pytest.mark.parametrize("way", ["plain", "widened", "cast", "clamped", "joined"])
def test_a_query_that_sees_no_key_averages_them(way: str, optimize: Optimize) -> None:
    torch.manual_seed(0)
    score = 4 * torch.randn(2, 2, 3, 4, dtype=torch.float16)
    mask = torch.zeros(2, 1, 3, 4, dtype=torch.float16)
    mask[0, 0, 1] = LOWEST
    mask[1, 0, :, 2:] = LOWEST
    module = Scores(way).eval()
    axes = {0: "batch", 2: "queries", 3: "keys"}
    model = exportguard.to_onnx(module, (score, mask), dynamic_shapes=(axes, axes), optimize=optimize)
    names = [value.name for value in model.inputs]
    (got,) = model.run(dict(zip(names, (score, mask), strict=True))).values()
    torch.testing.assert_close(got, module(score, mask), rtol=1e-2, atol=1e-3)
