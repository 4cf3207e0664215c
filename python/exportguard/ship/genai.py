"""The configuration that onnxruntime-genai reads beside a model.

Its fields are those of onnxruntime-genai 0.8 to 0.18 (`genai_config.json`); a decoder of a type that the runtime has no
rule of its own for goes by the type `decoder`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exportguard.errors import InvalidArgumentError

from .decoder import KeysAndValues

FILE = "genai_config.json"


def genai_config(
    model: Any, cache: KeysAndValues, file_name: str, inputs: Sequence[str], parts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The content of `genai_config.json` for a decoder with growing keys and values; `parts` are those in front of it,
    which see and embed.

    Raises:
        InvalidArgumentError: the layers' caches are not alike, which the runtime takes for granted.
    """
    if not cache.are_alike:
        raise InvalidArgumentError(
            f"the layers of {type(model).__name__} keep keys and values of several shapes "
            f"(heads {sorted(set(cache.heads))}, widths {sorted({*cache.key_widths, *cache.value_widths})}), and "
            "onnxruntime-genai has one for all; export it for onnxruntime instead"
        )
    config = model.config.get_text_config()
    generation = model.generation_config
    named = [name for name in ("input_ids", "inputs_embeds", "attention_mask", "position_ids") if name in inputs]
    return {
        "model": {
            # phi3v is the type that sees, embeds and writes, and asks no more of the parts than their names.
            "type": "phi3v" if parts else "decoder",
            **(parts or {}),
            "vocab_size": config.vocab_size,
            "context_length": context_length(model),
            **special_tokens(config, generation),
            "decoder": {
                "filename": file_name,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "hidden_size": config.hidden_size,
                "head_size": cache.key_widths[0],
                "num_attention_heads": config.num_attention_heads,
                "num_key_value_heads": cache.heads[0],
                "num_hidden_layers": cache.layers,
                "inputs": {
                    **{name: name for name in named},
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": search_of(generation, context_length(model)),
    }


def write(folder: Path, config: dict[str, Any]) -> None:
    """Writes the configuration into the folder."""
    (folder / FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def context_length(model: Any) -> int:
    """How many tokens a text of a decoder has at most."""
    config = model.config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        length = getattr(config, name, None)
        if isinstance(length, int) and length > 0:
            return length
    return 2048  # of models whose positions have no end (alibi)


#: Settings that are written, that a file has no use for, or that transformers notes of itself.
_WRITTEN_OR_NONE = frozenset(
    (
        *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"),
        *("do_sample", "top_k", "top_p", "temperature", "repetition_penalty", "no_repeat_ngram_size", "min_length"),
        *("transformers_version", "_from_model_config", "use_cache", "cache_implementation", "early_stopping"),
        *("return_dict_in_generate", "output_scores", "output_logits", "output_attentions", "output_hidden_states"),
    )
)


def special_tokens(config: Any, generation: Any) -> dict[str, Any]:
    """The first, the last and the padding token, which the runtime wants all."""
    found = {name: getattr(generation, name, None) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    tokens = {name: getattr(config, name, None) if value is None else value for name, value in found.items()}
    # The runtime insists on one: without any, the last token of the vocabulary ends a text.
    end = tokens["eos_token_id"] if tokens["eos_token_id"] is not None else config.vocab_size - 1
    padding = tokens["pad_token_id"] if tokens["pad_token_id"] is not None else end
    beginning = tokens["bos_token_id"] if tokens["bos_token_id"] is not None else end
    return {"bos_token_id": _first(beginning), "eos_token_id": end, "pad_token_id": _first(padding)}


def _first(token: Any) -> Any:
    """The runtime has several tokens for the end alone."""
    return token[0] if isinstance(token, list) and token else token


def search_of(generation: Any, length: int) -> dict[str, Any]:
    """How the model wants to be searched for texts of at most that length in all."""
    return {
        "do_sample": bool(generation.do_sample),
        "early_stopping": True,
        "max_length": length,
        "min_length": _or(generation.min_length, 0),
        "num_beams": 1,
        "num_return_sequences": 1,
        "past_present_share_buffer": False,
        # 0 is a value of its own: no limit for top_k, the most likely token for a temperature.
        "repetition_penalty": _or(generation.repetition_penalty, 1.0),
        "temperature": _or(generation.temperature, 1.0),
        "top_k": _or(generation.top_k, 50),
        "top_p": _or(generation.top_p, 1.0),
        **_further_search(generation),
    }


def _further_search(generation: object) -> dict[str, Any]:
    """What the runtime has under the same name, where the model asks for it."""
    size = getattr(generation, "no_repeat_ngram_size", None)
    return {"no_repeat_ngram_size": size} if size else {}


def unwritten(generation: Any) -> list[str]:
    """What a generation configuration says and the folder's does not: whoever generates has to ask for it."""
    told = generation.to_diff_dict()
    return [name for name, value in told.items() if name not in _WRITTEN_OR_NONE and value not in (None, False)]


def length_of_other_frequencies(config: Any) -> int | None:
    """From which length on all positions of a text have other frequencies, as those of "longrope" do.

    transformers makes its cache anew where a text grows beyond it (`Phi3ForCausalLM.prepare_inputs_for_generation`);
    onnxruntime-genai goes on with the keys of the others.
    """
    rotation = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rotation.get("rope_type", rotation.get("type"))
    length = rotation.get("original_max_position_embeddings") or getattr(
        config, "original_max_position_embeddings", None
    )
    is_beyond = isinstance(length, int) and length < config.max_position_embeddings
    return length if kind == "longrope" and is_beyond else None


def _or(value: object, default: object) -> Any:
    return default if value is None else value
