"""Recordings to texts in the two files that onnxruntime-genai runs, as its model type `whisper`.

The encoder returns the keys and values that the decoder's layers make of its states; the decoder takes them at every
step, and never the states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from exportguard.errors import InvalidArgumentError
from exportguard.graph_builder import GraphBuilder, Value
from exportguard.models import ModelCase
from exportguard.onnx_model import OnnxModel

from .decoder import KeysAndValues
from .encoder_decoder import (
    ENCODER_FILE,
    Source,
    encoder_to_onnx,
    first_step,
    later_step,
    layer_and_part,
    name_in_folder,
)
from .genai import search_of, special_tokens

FILE = "decoder_model.onnx"

_RECORDING = "audio_features"
#: Of a recording, and of what the encoder makes of it; the runtime (0.18) has room for no others.
_FRAMES, _STATES = 3000, 1500


def speech_source(case: ModelCase, source: Source) -> Source:
    """The source as the runtime calls it.

    Raises:
        InvalidArgumentError: the encoder takes or makes something else than the runtime has room for.
    """
    name, recording = next(iter(source.inputs.items()))
    if (
        len(source.inputs) > 1
        or recording.dim() != 3
        or recording.shape[2] != _FRAMES
        or source.states.shape[1] != _STATES
    ):
        takes = ", ".join(f"{name} {list(value.shape)}" for name, value in source.inputs.items())
        raise InvalidArgumentError(
            f"onnxruntime-genai runs encoders of recordings with {_FRAMES} frames and {_STATES} states, and that of "
            f"{case.name} takes {takes} and makes {source.states.shape[1]}; export it for onnxruntime or optimum"
        )
    shapes = _shapes_of(source)
    if not shapes.are_alike:
        raise InvalidArgumentError(
            f"the layers of {case.name} keep keys and values of several shapes, and onnxruntime-genai has one for all; "
            "export it for onnxruntime or optimum"
        )
    return replace(source, shapes={name: {0: source.shapes[name][0]}}, decoder_file=FILE)


def speech_encoder_to_onnx(model: Any, source: Source, *, opset: int | None) -> OnnxModel:
    """The encoder, and the keys and values that the decoder keeps of its states."""
    encoder, first = encoder_to_onnx(model, source, opset=opset), first_step(model, source, opset)
    g = GraphBuilder(encoder.opset)
    recording = encoder.inputs[0]
    states = g._scope.inline(encoder._core, [g.input(_RECORDING, recording.dtype, list(recording.shape or ()))])[0]
    kept = g._scope.inline(first._core, [states])
    g.output(states, "last_hidden_state")
    for number, value in enumerate(kept):
        g.output(value, f"present.{number // 2}.encoder.{('key', 'value')[number % 2]}")
    return g.to_model()


def speech_decoder_to_onnx(model: Any, source: Source, *, opset: int | None) -> OnnxModel:
    """One step of the decoder; what it asks of the encoder's states is their size alone, which is a known one."""
    later = later_step(model, source, opset)
    g = GraphBuilder(later.opset)
    known = {name_in_folder(value.name): value for value in later.inputs}
    states = known.pop("encoder_hidden_states", None)
    kept = sorted((name for name in known if name.startswith("past_key_values.")), key=layer_and_part)
    values = {name: g.input(name, known[name].dtype, list(known[name].shape or ())) for name in ("input_ids", *kept)}
    if states is not None:
        values["encoder_hidden_states"] = _zeros_like(g, values["input_ids"], source.states)

    results = g._scope.inline(later._core, [values[name_in_folder(value.name)] for value in later.inputs])
    for value, result in zip(later.outputs, results, strict=True):
        name = name_in_folder(value.name)
        if name == "logits" or ".decoder." in name:
            g.output(result, name)
    built = g.to_model()
    built.optimize()  # what nobody asks for goes
    return built


def speech_config(model: Any, source: Source) -> dict[str, Any]:
    """The content of `genai_config.json`."""
    shapes, config = _shapes_of(source), model.config
    length = config.max_target_positions
    sizes = {
        "head_size": shapes.key_widths[0],
        "hidden_size": source.states.shape[2],
        "num_attention_heads": shapes.heads[0],
        "num_hidden_layers": shapes.layers // 2,
        "num_key_value_heads": shapes.heads[0],
    }
    return {
        "model": {
            "type": "whisper",
            "vocab_size": config.vocab_size,
            "context_length": length,
            **special_tokens(config, model.generation_config),
            "encoder": {
                "filename": ENCODER_FILE,
                **sizes,
                "inputs": {"audio_features": _RECORDING},
                "outputs": {
                    "encoder_hidden_states": "last_hidden_state",
                    "cross_present_key_names": "present.%d.encoder.key",
                    "cross_present_value_names": "present.%d.encoder.value",
                },
            },
            "decoder": {
                "filename": FILE,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                **sizes,
                "inputs": {
                    "input_ids": "input_ids",
                    "past_key_names": "past_key_values.%d.decoder.key",
                    "past_value_names": "past_key_values.%d.decoder.value",
                    "cross_past_key_names": "past_key_values.%d.encoder.key",
                    "cross_past_value_names": "past_key_values.%d.encoder.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.decoder.key",
                    "present_value_names": "present.%d.decoder.value",
                },
            },
        },
        "search": search_of(model.generation_config, length),
    }


def _shapes_of(source: Source) -> KeysAndValues:
    """Of the decoder's own layers and of those that look at the encoder's states, one behind the other."""
    layers: Sequence[Any] = [*source.cache.self_attention_cache.layers, *source.cache.cross_attention_cache.layers]
    return KeysAndValues(
        heads=[layer.keys.shape[1] for layer in layers],
        key_widths=[layer.keys.shape[-1] for layer in layers],
        value_widths=[layer.values.shape[-1] for layer in layers],
    )


def _zeros_like(g: GraphBuilder, ids: Value, states: torch.Tensor) -> Value:
    sizes = g.op.Concat(g.op.Shape(ids, start=0, end=1), g.constant([1, 1]), axis=0)
    expanded: Value = g.op.Expand(g.constant(torch.zeros(1, *states.shape[1:])), sizes)
    return expanded
