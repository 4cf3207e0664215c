"""A model with an encoder and a decoder in two files, as generation loops call them.

`encoder_model.onnx` runs once. `decoder_model_merged.onnx` runs for each token: it takes the keys and values of its own
past, and those of the encoder's states, which it computes itself where `use_cache_branch` is false, in the first step.
The names are those of optimum and transformers.js, so that both load the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exportguard.cache_names import PAST, cache_in
from exportguard.errors import REFUSALS, InvalidArgumentError
from exportguard.export import to_onnx
from exportguard.graph_builder import GraphBuilder, Value
from exportguard.models import ModelCase
from exportguard.onnx_model import OnnxModel
from exportguard.optional import OptionalModule

from .decoder import BATCH

cache_utils: Any = OptionalModule("transformers.cache_utils")

ENCODER_FILE = "encoder_model.onnx"
DECODER_FILE = "decoder_model_merged.onnx"

_SOURCE, _NEW, _KEPT = "encoder_sequence_length", "decoder_sequence_length", "past_decoder_sequence_length"
#: Of the keys and values that the caller passes for the encoder's states: 0 in the first step.
_KEPT_SOURCE = "past_encoder_sequence_length"
_SEQ, _PAST = 2, 3

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the encoder is given in an example, which of its axes change, and what it gives back.

    `attention_mask` is among the inputs where the decoder masks the encoder's states by it. The `kind` is the class
    that the encoder returns its states in: some decoders ask for more of it, as Moonshine's does for a mask.
    `decoder_file` is the file that is run for each token.
    """

    inputs: Mapping[str, torch.Tensor]
    shapes: Mapping[str, Mapping[int, str]]
    states: torch.Tensor
    kind: Any
    cache: Any
    decoder_file: str = DECODER_FILE

    @property
    def is_masked(self) -> bool:
        """Whether the decoder wants to know which of the encoder's states are padding."""
        return "attention_mask" in self.inputs


def source_of(case: ModelCase) -> Source:
    """An example for both parts.

    Raises:
        InvalidArgumentError: the decoder keeps other things than keys and values from token to token.
    """
    inputs = {
        name: value for name, value in case.inputs(case.task.sizes).items()
        if isinstance(value, torch.Tensor) and not name.startswith("decoder_")
    }  # fmt: skip
    model: Any = case.model
    try:
        with torch.no_grad():
            encoded = model.get_encoder()(**inputs)
            ids = torch.ones(len(encoded[0]), _PAST, dtype=torch.int64)
            states = type(encoded)(last_hidden_state=encoded[0])
            cache = cache_in(model, model(**_decoder_call(inputs, ids, states), use_cache=True))
    except REFUSALS as error:
        raise _refused(case, f"its parts called one after the other raise {type(error).__name__}: {error}") from error
    _require_plain(case, cache)
    axes = _source_axes(model, inputs)
    return Source(inputs=inputs, shapes=axes, states=encoded[0], kind=type(encoded), cache=cache)


def encoder_to_onnx(model: Any, source: Source, *, opset: int | None) -> OnnxModel:
    """The encoder by itself; its first output is `last_hidden_state`."""
    return to_onnx(
        model.get_encoder(), kwargs=dict(source.inputs), dynamic_shapes=source.shapes, opset=opset, rewrite="auto"
    )


def decoder_to_onnx(model: Any, source: Source, *, opset: int | None) -> OnnxModel:
    """The decoder for the first and for every later step, in one graph that has each weight once."""
    return _merged(later_step(model, source, opset), first_step(model, source, opset))


def first_step(model: Any, source: Source, opset: int | None) -> OnnxModel:
    """The keys and values of the encoder's states, layer by layer."""
    kept = _KeysAndValuesOfSource(model, source.kind).eval()
    return to_onnx(kept, (source.states,), dynamic_shapes=({0: BATCH, 1: _SOURCE},), opset=opset, rewrite="auto")


def feeds(
    names: Sequence[str], ids: torch.Tensor, states: torch.Tensor, mask: torch.Tensor | None, past: Tensors
) -> Tensors:
    """The inputs of the decoder in one step; `past` is empty in the first one's, see `empty_past`."""
    is_later = bool(past) and next(iter(past.values())).shape[2] > 0
    given = {"input_ids": ids, "encoder_hidden_states": states, "use_cache_branch": torch.tensor([is_later]), **past}
    if mask is not None:
        given["encoder_attention_mask"] = mask
    return {name: given[name] for name in names}


def empty_past(source: Source, batch: int) -> Tensors:
    """Keys and values of length 0 for the first step, under the names of the file."""
    return {
        f"past_key_values.{name}": torch.zeros(batch, value.shape[1], 0, value.shape[3], dtype=value.dtype)
        for name, value in _cached(source.cache).items()
    }


def next_past(outputs: Tensors, past: Tensors) -> Tensors:
    """What the next step is given: its own keys and values grow, those of the encoder stay those of the first step."""
    return {
        name: value if ".encoder." in name and value.shape[2] else outputs[name.replace("past_key_values", "present")]
        for name, value in past.items()
    }


# -------------------------------------------------------------------------------------------------- the parts


class _KeysAndValuesOfSource(torch.nn.Module):
    """What the layers of the decoder keep of the encoder's states; that depends on nothing else."""

    def __init__(self, model: Any, kind: Any) -> None:
        super().__init__()
        self.model = model
        self.kind = kind

    def forward(self, encoder_hidden_states: torch.Tensor) -> list[torch.Tensor]:
        ids = torch.zeros(encoder_hidden_states.shape[0], 1, dtype=torch.int64)
        states = self.kind(last_hidden_state=encoder_hidden_states)
        outputs = self.model(decoder_input_ids=ids, encoder_outputs=states, use_cache=True)
        layers = cache_in(self.model, outputs).cross_attention_cache.layers
        return [tensor for layer in layers for tensor in (layer.keys, layer.values)]


def later_step(model: Any, source: Source, opset: int | None) -> OnnxModel:
    """The decoder behind a past; the encoder's states themselves are looked at by nobody any more."""
    ids = torch.ones(len(source.states), _SEQ, dtype=torch.int64)
    states = source.kind(last_hidden_state=source.states)
    inputs = {**_decoder_call(source.inputs, ids, states), PAST: source.cache}
    shapes: dict[str, Any] = {
        "decoder_input_ids": {0: BATCH, 1: _NEW},
        "encoder_outputs": [{0: BATCH, 1: _SOURCE}],
        PAST: [{0: BATCH, 2: _KEPT}, {0: BATCH, 2: _SOURCE}],
    }
    if source.is_masked:
        shapes["attention_mask"] = {0: BATCH, 1: _SOURCE}
    return to_onnx(model, kwargs=inputs, dynamic_shapes=shapes, opset=opset, rewrite="auto")


def _merged(later: OnnxModel, first: OnnxModel) -> OnnxModel:
    """One If for the keys and values of the encoder's states, in front of the graph of a later step."""
    g = GraphBuilder(later.opset)
    values = _inputs_of_merged(g, later, first)

    crossing = [name for name in values if ".encoder." in name]
    with g.subgraph("first_step") as computed:
        for value in computed._scope.inline(first._core, [values["encoder_hidden_states"]]):
            computed.output(value)
    with g.subgraph("later_step") as kept:
        for name in crossing:
            kept.output(kept.op.Identity(values[name]))
    is_later = g.op.Squeeze(values["use_cache_branch"])
    chosen = g.op.If(is_later, then_branch=kept, else_branch=computed, outputs=len(crossing))
    given = {**values, **dict(zip(crossing, chosen, strict=True))}

    results = g._scope.inline(later._core, [given[name_in_folder(value.name)] for value in later.inputs])
    named = {name_in_folder(value.name): result for value, result in zip(later.outputs, results, strict=True)}
    g.output(named["logits"], "logits")
    for name in values:
        if name.startswith("past_key_values."):
            present = name.replace("past_key_values", "present")
            g.output(g.op.Identity(given[name]) if name in crossing else named[present], present)
    return g.to_model()


def _inputs_of_merged(g: GraphBuilder, later: OnnxModel, first: OnnxModel) -> dict[str, Value]:
    """Those of a later step, layer by layer, the encoder's states, and which step it is."""
    values: dict[str, Value] = {}
    states = first.inputs[0]
    known = {name_in_folder(value.name): value for value in later.inputs}
    known["encoder_hidden_states"] = states
    plain = [name for name in ("encoder_attention_mask", "input_ids", "encoder_hidden_states") if name in known]
    caches = sorted((name for name in known if name.startswith("past_key_values.")), key=layer_and_part)

    for name in (*plain, *caches):
        shape = list(known[name].shape or ())
        if ".encoder." in name:
            shape[2] = _KEPT_SOURCE
        values[name] = g.input(name, known[name].dtype, shape)
    values["use_cache_branch"] = g.input("use_cache_branch", torch.bool, [1])
    return values


def layer_and_part(name: str) -> tuple[int, int, int]:
    """Keys before values and the decoder's before the encoder's, layer by layer: loops count on that order."""
    _, layer, part, kind = name.split(".")
    return int(layer), ("decoder", "encoder").index(part), ("key", "value").index(kind)


def name_in_folder(name: str) -> str:
    """The name in the folder of what an input or output is called after the arguments of `forward`.

    >>> name_in_folder("past_key_values.self.0.key"), name_in_folder("attention_mask")
    ('past_key_values.0.decoder.key', 'encoder_attention_mask')
    """
    parts = name.split(".")
    if parts[0] in ("past_key_values", "present") and len(parts) == 4:
        part = {"self": "decoder", "cross": "encoder"}[parts[1]]
        return f"{parts[0]}.{parts[2]}.{part}.{parts[3]}"
    if parts[0] == "encoder_outputs":
        return "encoder_hidden_states"
    return {"decoder_input_ids": "input_ids", "attention_mask": "encoder_attention_mask"}.get(name, name)


# -------------------------------------------------------------------------------------------------- the example


def _decoder_call(inputs: Mapping[str, torch.Tensor], ids: torch.Tensor, states: Any) -> dict[str, Any]:
    mask = {"attention_mask": inputs["attention_mask"]} if "attention_mask" in inputs else {}
    return {**mask, "decoder_input_ids": ids, "encoder_outputs": states}


def _source_axes(model: Any, inputs: Mapping[str, torch.Tensor]) -> dict[str, dict[int, str]]:
    """The batch, the length of a text, and of a recording each axis at whose double length the encoder runs, too."""
    shapes = {name: {0: BATCH} for name in inputs}
    if "input_ids" in inputs:
        return {name: {0: BATCH, 1: _SOURCE} for name in inputs}
    for name, value in inputs.items():
        for axis in range(1, value.dim()):
            if len(inputs) == 1 and _runs(model.get_encoder(), {name: value.repeat_interleave(2, axis)}):
                shapes[name][axis] = "frames"
    return shapes


def _runs(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> bool:
    try:
        with torch.no_grad():
            module(**inputs)
    except REFUSALS:
        return False
    return True


def _cached(cache: Any) -> Tensors:
    """Every tensor of the cache by its name in the file, without what is in front of the layer."""
    parts = {"decoder": cache.self_attention_cache, "encoder": cache.cross_attention_cache}
    return {
        f"{layer}.{part}.{kind}": getattr(one.layers[layer], f"{kind}s")
        for layer in range(len(cache.self_attention_cache.layers))
        for part, one in parts.items()
        for kind in ("key", "value")
    }


def _require_plain(case: ModelCase, cache: Any) -> None:
    if not isinstance(cache, cache_utils.EncoderDecoderCache):
        raise _refused(case, f"it keeps a {type(cache).__name__}")
    layers = [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    others = sorted({type(layer).__name__ for layer in layers if type(layer) is not cache_utils.DynamicLayer})
    if others:
        raise _refused(case, f"it keeps {', '.join(others)}")


def _refused(case: ModelCase, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{type(case.model).__name__} cannot be written as an encoder and a decoder that goes on from keys and values "
        f"({reason}); convert it with exportguard.to_onnx and write the loop yourself"
    )
