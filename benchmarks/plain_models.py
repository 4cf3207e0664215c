"""Untrained models of full depth and few channels, each with the inputs that it is traced with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

import exportguard
from exportguard.cache_names import cache_argument

HIDDEN, HEADS = 64, 4
Shapes = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A module in evaluation mode, and what its axes are called."""

    module: nn.Module
    inputs: dict[str, Any]
    shapes: Shapes


def with_cache(module: nn.Module, heads: int, layers: int, *, past: int = 5, new: int = 3) -> Case:
    """A causal model with tokens behind a cache."""
    size = HIDDEN // HEADS
    keys = [(torch.randn(2, heads, past, size), torch.randn(2, heads, past, size)) for _ in range(layers)]
    name_of_cache = cache_argument(module.forward) or ""
    inputs = {
        "input_ids": torch.ones(2, new, dtype=torch.int64),
        "attention_mask": torch.ones(2, past + new, dtype=torch.int64),
        name_of_cache: exportguard.make_dynamic_cache(keys),
    }
    shapes = {
        "input_ids": {0: "batch", 1: "seq"},
        "attention_mask": {0: "batch", 1: "past+seq"},
        name_of_cache: {0: "batch", 2: "past"},
    }
    return Case(module.eval(), inputs, shapes)


def decoder(name: str, config: str, layers: int = 4, **fields: Any) -> Callable[[], Case]:
    """A model of transformers of the usual form, heads shared by two."""

    def build() -> Case:
        settings = {
            "hidden_size": HIDDEN,
            "intermediate_size": 2 * HIDDEN,
            "num_hidden_layers": layers,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS // 2,
            "head_dim": HIDDEN // HEADS,
            "vocab_size": 256,
            "max_position_embeddings": 4096,
            "pad_token_id": 0,
            "bos_token_id": 0,
            "eos_token_id": 0,
            **fields,
        }
        return with_cache(getattr(transformers, name)(getattr(transformers, config)(**settings)), HEADS // 2, layers)

    return build


def gpt2() -> Case:
    """A GPT-2 of 12 layers."""
    config = transformers.GPT2Config(n_embd=HIDDEN, n_head=HEADS, vocab_size=256, bos_token_id=0, eos_token_id=0)
    return with_cache(transformers.GPT2LMHeadModel(config), HEADS, config.n_layer)


def tokens(*names: str, length: int = 7) -> tuple[dict[str, Any], Shapes]:
    """Ones of [2, length] under those names."""
    inputs = {name: torch.ones(2, length, dtype=torch.int64) for name in names}
    return inputs, {name: {0: "batch", 1: "seq"} for name in names}


def bert() -> Case:
    """BERT with the 12 layers of its base."""
    config = transformers.BertConfig(
        hidden_size=HIDDEN, intermediate_size=4 * HIDDEN, num_attention_heads=HEADS, vocab_size=256
    )
    return Case(transformers.BertModel(config).eval(), *tokens("input_ids", "attention_mask", "token_type_ids"))


def vit() -> Case:
    """ViT with the 12 layers of its base."""
    config = transformers.ViTConfig(
        hidden_size=HIDDEN, intermediate_size=4 * HIDDEN, num_attention_heads=HEADS, image_size=64
    )
    module = transformers.ViTForImageClassification(config).eval()
    return Case(module, {"pixel_values": torch.randn(2, 3, 64, 64)}, {"pixel_values": {0: "batch"}})


def clip() -> Case:
    """CLIP with two towers of 12 layers."""
    tower = {
        "hidden_size": HIDDEN,
        "intermediate_size": 4 * HIDDEN,
        "num_hidden_layers": 12,
        "num_attention_heads": HEADS,
    }
    words = {**tower, "vocab_size": 256, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
    config = transformers.CLIPConfig(
        text_config=words, vision_config={**tower, "image_size": 64, "patch_size": 16}, projection_dim=HIDDEN
    )
    inputs, shapes = tokens("input_ids", "attention_mask")
    inputs["pixel_values"] = torch.randn(3, 3, 64, 64)
    return Case(transformers.CLIPModel(config).eval(), inputs, {**shapes, "pixel_values": {0: "images"}})


def t5() -> Case:
    """T5 with the layers of its small form, without a cache."""
    config = transformers.T5Config(
        d_model=HIDDEN, d_kv=16, d_ff=4 * HIDDEN, num_layers=6, num_heads=HEADS, vocab_size=256,
        decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    inputs, shapes = tokens("input_ids", "attention_mask")
    inputs["decoder_input_ids"] = torch.ones(2, 3, dtype=torch.int64)
    module = transformers.T5ForConditionalGeneration(config).eval()
    return Case(module, inputs, {**shapes, "decoder_input_ids": {0: "batch", 1: "words"}})


def whisper() -> Case:
    """Whisper with the layers of its tiny form, without a cache."""
    config = transformers.WhisperConfig(
        d_model=HIDDEN, encoder_layers=4, decoder_layers=4, encoder_attention_heads=HEADS, use_cache=False,
        decoder_attention_heads=HEADS, encoder_ffn_dim=4 * HIDDEN, decoder_ffn_dim=4 * HIDDEN, vocab_size=256,
        max_source_positions=150, pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(2, 80, 300), "decoder_input_ids": torch.ones(2, 3, dtype=torch.int64)}
    shapes = {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "words"}}
    return Case(transformers.WhisperForConditionalGeneration(config).eval(), inputs, shapes)


def moved_norms(module: nn.Module) -> nn.Module:
    """Batch norms with moments that are not those of a fresh one."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None and layer.running_var is not None:
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    return module.eval()


def resnet() -> Case:
    """ResNet-50's depths."""
    config = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[32, 64, 128, 256], depths=[3, 4, 6, 3])
    module = moved_norms(transformers.ResNetForImageClassification(config))
    return Case(module, {"pixel_values": torch.randn(2, 3, 64, 64)}, {"pixel_values": {0: "batch"}})


class Double(nn.Sequential):
    """Two convolutions, each normalized and rectified."""

    def __init__(self, before: int, after: int) -> None:
        layers: list[nn.Module] = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """The plain form: four pools down, four transposed convolutions up, joined with what came down."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        channels = [width << i for i in range(5)]
        pairs = list(itertools.pairwise(channels))
        self.first = Double(3, width)
        self.down = nn.ModuleList(Double(a, b) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.joined = nn.ModuleList(Double(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.first(x)]
        for layer in self.down:
            kept.append(layer(nn.functional.max_pool2d(kept[-1], 2)))
        y = kept.pop()
        for up, joined in zip(self.up, self.joined, strict=True):
            y = joined(torch.cat([kept.pop(), up(y)], 1))
        result: torch.Tensor = self.last(y)
        return result


def unet() -> Case:
    """A UNet on pictures of 64 by 64."""
    return Case(moved_norms(UNet()), {"x": torch.randn(2, 3, 64, 64)}, {"x": {0: "batch"}})


ALTERNATING = ["sliding_attention", "full_attention"] * 2
EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2}
MODELS: dict[str, Callable[[], Case]] = {
    "llama-16": decoder("LlamaForCausalLM", "LlamaConfig", 16),
    "qwen3": decoder("Qwen3ForCausalLM", "Qwen3Config"),
    "phi3": decoder("Phi3ForCausalLM", "Phi3Config"),
    "gemma2": decoder("Gemma2ForCausalLM", "Gemma2Config", sliding_window=8, layer_types=ALTERNATING),
    "gemma3": decoder("Gemma3ForCausalLM", "Gemma3TextConfig", sliding_window=8, layer_types=ALTERNATING),
    "mistral": decoder("MistralForCausalLM", "MistralConfig", sliding_window=8),
    "granite": decoder("GraniteForCausalLM", "GraniteConfig"),
    "cohere": decoder("CohereForCausalLM", "CohereConfig"),
    "glm": decoder("GlmForCausalLM", "GlmConfig"),
    "mixtral": decoder("MixtralForCausalLM", "MixtralConfig", **EXPERTS),
    "gpt2": gpt2,
    "bert": bert,
    "vit": vit,
    "clip": clip,
    "t5": t5,
    "whisper": whisper,
    "resnet": resnet,
    "unet": unet,
}
