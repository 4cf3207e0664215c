"""Attention to some blocks of the past tokens that each token may see."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.export import Dim

from .pictures import is_right_on_all


class Indexer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        qwen = importlib.import_module("transformers.models.qwen4_exp.modeling_qwen4_exp")
        heads = {"indexer_n_heads": 32, "indexer_kv_heads": 1, "indexer_head_dim": 8}
        config = SimpleNamespace(hidden_size=8, rms_norm_eps=1e-6, indexer_budget=6, indexer_compress_ratio=2, **heads)
        self.indexer = qwen.Qwen4ExpTextQSAIndexer(config, 0).eval()

    def forward(self, states: torch.Tensor, visible: torch.Tensor, angles: torch.Tensor, past: torch.Tensor) -> Any:
        cache = SimpleNamespace(update_indexer=lambda new, layer: torch.cat([past, new], dim=1))
        return self.indexer(states, (angles.cos(), angles.sin()), visible, cache)


def _call(batch: int, tokens: int, past: int) -> tuple[torch.Tensor, ...]:
    """The mask is causal; the first row has a padded token, and now and then a token is hidden from all."""
    length = past + tokens
    visible = torch.ones(tokens, length).tril(past).bool().expand(batch, 1, -1, -1).clone()
    visible[0, :, :, 0] = False
    visible[-1, :, :, 1:2] = False
    angles = torch.randn(batch, length, 4).repeat(1, 1, 2)
    return torch.randn(batch, tokens, 8), visible, angles, torch.randn(batch, past, 8)


def blocks() -> None:
    if importlib.util.find_spec("transformers.models.qwen4_exp") is None:
        pytest.skip("this transformers has no model that attends to blocks")
    torch.manual_seed(0)
    calls = [_call(2, 3, 9), _call(3, 11, 2), _call(1, 1, 17), _call(2, 4, 0)]
    row, length = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, Dim.DYNAMIC
    is_right_on_all(Indexer(), calls, (row, {0: length, 2: length, 3: length}, row, row))


PROGRAMS = {"blocks of visible tokens": blocks}
