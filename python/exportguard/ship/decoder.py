"""A decoder as generation loops feed it: new tokens, mask and positions, and keys and values that grow."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exportguard.axes.low_rank import LowRankWeights
from exportguard.cache_names import PAST, cache_argument
from exportguard.errors import REFUSALS, InvalidArgumentError
from exportguard.export import to_onnx
from exportguard.onnx_model import OnnxModel
from exportguard.optimization import Optimize
from exportguard.optional import OptionalModule
from exportguard.request import ExportOptions

cache_utils: Any = OptionalModule("transformers.cache_utils")

#: Names of axes; transformers.js makes an empty cache whose axis of this name is as long as the batch.
BATCH = "batch_size"
_NEW, _KEPT = "sequence_length", "past_sequence_length"

_BATCH, _SEQ, _PAST = 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class KeysAndValues:
    """The cache of a decoder: the shapes of keys and values without batch and length, for each layer."""

    heads: Sequence[int]
    key_widths: Sequence[int]
    value_widths: Sequence[int]

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.heads)

    @property
    def are_alike(self) -> bool:
        """Whether every layer has as many heads of one width, for keys and values alike."""
        return len(set(self.heads)) == 1 and len({*self.key_widths, *self.value_widths}) == 1


def plain_cache(model: torch.nn.Module) -> Any:
    """The cache after a few tokens.

    Raises:
        InvalidArgumentError: the model keeps other things than keys and values from token to token.
    """
    cache = _cache_after(model, _PAST)
    require_plain_layers(model, cache)
    return cache


def shapes_of(cache: Any) -> KeysAndValues:
    """The shapes of a plain cache."""
    return KeysAndValues(
        heads=[layer.keys.shape[1] for layer in cache.layers],
        key_widths=[layer.keys.shape[-1] for layer in cache.layers],
        value_widths=[layer.values.shape[-1] for layer in cache.layers],
    )


def decoder_to_onnx(
    model: torch.nn.Module,
    cache: Any,
    *,
    opset: int | None,
    width: int | None = None,
    options: ExportOptions = ExportOptions(),
    optimize: Optimize = True,
) -> OnnxModel:
    """The model with a cache that grows, also where it looks back through a sliding window alone: the mask keeps to the
    window, and the lengths of all layers stay equal, as runtimes want them. `cache` is a plain one. With `width` the
    new tokens are given as embedded ones, `inputs_embeds` of that width.
    """
    inputs: dict[str, Any] = {
        **_new_tokens(width, cache.layers[0].keys.dtype),
        "attention_mask": torch.ones(_BATCH, cache.layers[0].keys.shape[2] + _SEQ, dtype=torch.int64),
        PAST: cache,
    }
    shapes: dict[str, Any] = {
        next(iter(inputs)): {0: BATCH, 1: _NEW},
        "attention_mask": {0: BATCH, 1: f"{_KEPT}+{_NEW}"},
        PAST: {0: BATCH, 2: _KEPT},
    }
    if width is not None:  # a model of pictures need not keep anything unless it is told to
        inputs["use_cache"], shapes["use_cache"] = True, None
    if takes_positions(model):
        past = cache.layers[0].keys.shape[2]
        inputs["position_ids"] = torch.arange(past, past + _SEQ).expand(_BATCH, _SEQ).contiguous()
        shapes["position_ids"] = {0: BATCH, 1: _NEW}
    return to_onnx(
        model,
        kwargs=inputs,
        dynamic_shapes=shapes,
        opset=opset,
        rewrite="auto",
        options=options,
        optimize=optimize,
    )


def _new_tokens(width: int | None, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    if width is None:
        return {"input_ids": torch.ones(_BATCH, _SEQ, dtype=torch.int64)}
    return {"inputs_embeds": torch.ones(_BATCH, _SEQ, width, dtype=dtype)}


def takes_positions(model: torch.nn.Module) -> bool:
    """Whether the caller may say where tokens stand, which a batch of texts of several lengths needs."""
    return "position_ids" in inspect.signature(model.forward).parameters


def positions(attention_mask: torch.Tensor, new: int) -> torch.Tensor:
    """Where the last `new` tokens stand: padding in front does not count, as in transformers' generation."""
    counted = attention_mask.long().cumsum(-1) - 1
    return counted.masked_fill(attention_mask == 0, 0)[:, -new:]


def feeds(
    names: Sequence[str], input_ids: torch.Tensor, attention_mask: torch.Tensor, past: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The inputs of one step under the names of the file; `past` has those of keys and values."""
    given = {"input_ids": input_ids, "attention_mask": attention_mask, **past}
    if "position_ids" in names:
        given["position_ids"] = positions(attention_mask, input_ids.shape[1])
    return {name: given[name] for name in names}


def empty_past(
    onnx_inputs: Sequence[str], cache: KeysAndValues, batch: int, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Keys and values of length 0 for the first step."""
    past = [name for name in onnx_inputs if name.startswith(f"{PAST}.")]
    widths = [width for pair in zip(cache.key_widths, cache.value_widths, strict=True) for width in pair]
    heads = [count for count in cache.heads for _ in range(2)]
    return {
        name: torch.zeros(batch, count, 0, width, dtype=dtype)
        for name, count, width in zip(past, heads, widths, strict=True)
    }


def _cache_after(model: torch.nn.Module, length: int) -> Any:
    name = cache_argument(model.forward)
    if name not in (PAST, "cache"):
        raise _refused(model, "no past_key_values among the arguments of forward")
    ids = torch.ones(_BATCH, length, dtype=torch.int64)
    try:
        with torch.no_grad(), LowRankWeights(model.parameters()):  # which keys and values it holds says nothing
            return model(**{"input_ids": ids, name: cache_utils.DynamicCache(), "use_cache": True})[name]
    except REFUSALS as error:  # it asks the cache for more than that one has
        raise _refused(model, f"with a plain DynamicCache it raises {type(error).__name__}: {error}") from error


def require_plain_layers(model: torch.nn.Module, cache: object) -> None:
    layers: Sequence[Any] = getattr(cache, "layers", ())
    others = sorted({type(layer).__name__ for layer in layers if type(layer) is not cache_utils.DynamicLayer})
    if not layers or others:
        raise _refused(model, ", ".join(others) or f"a {type(cache).__name__}")


def _refused(model: torch.nn.Module, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{type(model).__name__} does not go on from keys and values alone ({what}), which is what generation loops of "
        "runtimes keep from token to token; convert it with exportguard.to_onnx and write the loop yourself"
    )
