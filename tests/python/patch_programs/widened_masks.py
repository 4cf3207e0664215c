"""Masks of a text behind the picture in a cache."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import transformers
from torch.export import Dim
from transformers import DynamicCache, GitConfig, GitForCausalLM
from transformers.models.git import modeling_git

from exportguard import torch_export_patches
from exportguard.cache_names import cache_argument
from exportguard.caches.build import make_dynamic_cache

CONFIG = GitConfig(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=20,
    max_position_embeddings=32,
    vision_config={
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
        "patch_size": 4,
    },
)  # fmt: skip


CACHE = cache_argument(GitForCausalLM.forward) or ""


def inputs(model: torch.nn.Module, past: int, tokens: int) -> dict[str, Any]:
    """The first row starts with a padded token."""
    states = [torch.randn(2, 2, past, 8, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    mask = torch.ones(2, past + tokens, dtype=torch.int64)
    mask[0, 0] = 0
    ids = torch.arange(2 * tokens).view(2, tokens) % 19 + 1
    return {"input_ids": ids, "attention_mask": mask, CACHE: make_dynamic_cache([(states[0], states[1])])}


def keeps_the_mask_of_a_first_step() -> None:
    if transformers.__version__.startswith("4."):
        pytest.skip("with transformers 4 the program asks for a past, and says so where it has none")
    if not any(
        asked in inspect.getsource(modeling_git) for asked in ("past_key_values_length > 0", "cache_length > 0")
    ):
        pytest.skip("this transformers (5.17) widens the mask of a single token, whatever the cache has")
    torch.manual_seed(0)
    model = GitForCausalLM(CONFIG).eval()
    layers = len(inputs(model, 4, 3)[CACHE].layers)
    axes = {
        "input_ids": {1: Dim.DYNAMIC},
        "attention_mask": {1: Dim.DYNAMIC},
        CACHE: [{2: Dim.DYNAMIC}] * 2 * layers,
    }
    with torch_export_patches() as prepare, torch.no_grad():
        example = prepare(inputs(model, 4, 3))
        program = torch.export.export(model, (), example, dynamic_shapes=axes, strict=False)
        run = program.module(check_guards=False)
        for past, tokens in [(4, 3), (6, 2), (0, 3)]:
            got = run(**prepare(inputs(model, past, tokens))).logits
            expected = model(**_first(inputs(model, past, tokens))).logits
            torch.testing.assert_close(got, expected)


def _first(call: dict[str, Any]) -> dict[str, Any]:
    """Without a cache where it is empty, as the first step of a loop."""
    cache: DynamicCache = call[CACHE]
    return call if cache.get_seq_length() else {**call, CACHE: None}


PROGRAMS = {"masks widened by a cached picture": keeps_the_mask_of_a_first_step}
