"""Random changes of a configuration of transformers: what a user may have chosen otherwise, field by field."""

from __future__ import annotations

import inspect
import random
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

#: Fields that say how a model is trained, stored, or what it returns, or that its inputs have to follow.
_LEFT_ALONE = re.compile(
    "(^(architectures|transformers_version|return_dict|id2label|label2id|problem_type|dtype|torch_dtype|model_type"
    "|is_encoder_decoder|is_decoder|is_composition|chunk_size_feed_forward|vocab_size|use_cache|layers_to_transform"
    "|num_labels|cross_attention_hidden_size|add_cross_attention|is_encoder|use_bidirectional_attention|causal)$)"
    "|^_|^output_|_name|_ids?$|_index$|_std|_init|^init|_eps|^eps|epsilon|dropout|pdrop|layerdrop|_coef|jitter|_drop$"
    "|use_mamba|use_mambapy|kernels|loss|training|use_lang_emb|disable_|_path|checkpoint|quant"
)
_ACTIVATIONS = (
    "gelu",
    "relu",
    "silu",
    "gelu_new",
    "quick_gelu",
    "gelu_pytorch_tanh",
    "relu2",
    "mish",
    "tanh",
    "sigmoid",
)
_WORDS: Mapping[str, Sequence[str]] = {
    "position_embedding_type": ("absolute", "relative_key", "relative_key_query"),
    "classifier_pooling": ("cls", "mean"),
    "summary_type": ("last", "first", "mean"),
    "feed_forward_proj": ("relu", "gated-gelu", "gated-silu"),
    "scoring_func": ("sigmoid", "softmax"),
    "topk_method": ("greedy", "group_limited_greedy", "noaux_tc"),
    "norm_type": ("layer_norm", "rms_norm"),
}
_NUMBERS: Sequence[tuple[str, Sequence[int]]] = (
    ("heads|kv_channels", (1, 2, 4)),
    ("experts_per_tok|top_?k|moe_k", (1, 2, 3)),
    ("experts|_group", (1, 2, 4)),
    ("layers|depth", (1, 2, 3)),
    ("period|offset|interval|step|pattern|every", (1, 2, 3)),
    ("position|max_seq|n_ctx", (40, 64, 100, 256)),
    ("window|chunk|block|stride|kernel|bucket|distance|cache|ngram|local|length|conv", (1, 2, 3, 4, 5, 7, 8, 16)),
)


def drawn_changes(config: PreTrainedConfig, source: random.Random, most: int = 4) -> dict[str, Any]:
    """One to `most` fields of the configuration, or of one nested in it, with other values."""
    fields = list(_choices(config))
    chosen = source.sample(fields, min(len(fields), source.randint(1, most)))
    changes: dict[str, Any] = {}
    for path, draw in chosen:
        owner = changes
        for name in path[:-1]:
            owner = owner.setdefault(name, {})
        owner[path[-1]] = draw(source)
    return changes


Draw = Callable[[random.Random], Any]


def _choices(config: PreTrainedConfig, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Draw]]:
    """Where a field stands, and what gives it another value."""
    hints = {name: hint for base in type(config).__mro__[::-1] for name, hint in inspect.get_annotations(base).items()}
    for name, value in vars(config).items():
        if _LEFT_ALONE.search(name):
            continue
        if isinstance(value, PreTrainedConfig):
            yield from _choices(value, (*path, name))
            continue
        draw = _draw(name, value, hints.get(name), config)
        if draw is not None:
            yield (*path, name), draw


def _draw(name: str, value: Any, hint: Any, config: PreTrainedConfig) -> Draw | None:
    words = _words(name, value, hint)
    if words:
        return lambda source: source.choice(words)
    if name == "rope_parameters" and isinstance(value, dict):
        return lambda source: _rope(value, config, source)
    if isinstance(value, bool) or (value is None and bool in typing.get_args(hint)):
        return lambda source: not value
    if isinstance(value, list) and value and all(isinstance(one, (str, bool)) for one in value):
        return lambda source: [source.choice(value) for _ in value]
    if isinstance(value, int) or (value is None and int in typing.get_args(hint)):
        return lambda source: _number(name, value, source)
    if isinstance(value, float) or (value is None and float in typing.get_args(hint)):
        return lambda source: source.choice((0.5, 1.7)) * (30.0 if value is None else value)
    return None


def _words(name: str, value: Any, hint: Any) -> Sequence[str]:
    if isinstance(value, str) and value in ACT2FN:
        return _ACTIVATIONS
    literal = next((one for one in (hint, *typing.get_args(hint)) if typing.get_origin(one) is typing.Literal), None)
    return tuple(typing.get_args(literal)) if literal is not None else _WORDS.get(name, ()) if value else ()


def _number(name: str, value: int | None, source: random.Random) -> int:
    usual = next((numbers for pattern, numbers in _NUMBERS if re.search(pattern, name)), None)
    if usual is not None:
        return source.choice(usual)
    if value is None:
        return source.choice((8, 16, 32))
    return source.choice((value + 1, value * 2, max(value // 2, 1), value + 8))


def _rope(value: Mapping[str, Any], config: PreTrainedConfig, source: random.Random) -> dict[str, Any]:
    """Another kind of rotary positions; for a model with several, of each."""
    if value and all(isinstance(one, dict) for one in value.values()):
        return {kind: _rope(one, config, source) for kind, one in value.items()}
    shared = {name: one for name, one in value.items() if name in ("rope_theta", "partial_rotary_factor")}
    if "mrope_section" in value:
        return {**value, "rope_theta": 500.0}
    kind = source.choice(("default", "linear", "dynamic", "yarn", "longrope", "llama3"))
    if source.random() < 0.3:
        shared["partial_rotary_factor"] = 0.5
    return {"rope_type": kind, **shared, **_ROPE[kind](config, shared)}


def _factors(config: PreTrainedConfig, shared: Mapping[str, Any]) -> dict[str, Any]:
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    count = int(width * float(shared.get("partial_rotary_factor", 1.0))) // 2
    return {
        "short_factor": [1.0 + 0.1 * i for i in range(count)],
        "long_factor": [2.0 + 0.3 * i for i in range(count)],
        "original_max_position_embeddings": 12,
        "factor": 4.0,
    }


_ROPE: Mapping[str, Callable[[PreTrainedConfig, Mapping[str, Any]], dict[str, Any]]] = {
    "default": lambda config, shared: {},
    "linear": lambda config, shared: {"factor": 2.5},
    "dynamic": lambda config, shared: {"factor": 2.0, "original_max_position_embeddings": 12},
    "yarn": lambda config, shared: {"factor": 4.0, "original_max_position_embeddings": 12},
    "longrope": _factors,
    "llama3": lambda config, shared: {
        "factor": 4.0, "original_max_position_embeddings": 12, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
}  # fmt: skip
