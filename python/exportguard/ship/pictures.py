"""Models of pictures and texts in the three files that onnxruntime-genai runs: what sees, what embeds, what writes.

`vision.onnx` makes features of pictures, `embedding.onnx` puts them at the places that the text has for them, and
`model.onnx` goes on from embedded tokens, with keys and values that grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from exportguard.cache_names import PAST, cache_argument, cache_in
from exportguard.errors import REFUSALS, InvalidArgumentError
from exportguard.export import to_onnx
from exportguard.models import ModelCase
from exportguard.onnx_model import OnnxModel
from exportguard.optional import OptionalModule
from exportguard.request import ExportOptions
from exportguard.validation.discrepancies import Discrepancy

from .decoder import BATCH, decoder_to_onnx, empty_past, positions, require_plain_layers, shapes_of
from .generation import NEW_TOKENS, compare_logits
from .layout import MODEL_FILE
from .sessions import fitting, session_of
from .targets import chosen_of, ends_of

cache_utils: Any = OptionalModule("transformers.cache_utils")

VISION_FILE, EMBEDDING_FILE = "vision.onnx", "embedding.onnx"

_TOKENS = "sequence_length"
_PICTURES, _PLACES = "pictures", "picture_tokens"
_TAKEN = {"input_ids", "attention_mask", "pixel_values", "token_type_ids", "mm_token_type_ids"}
_NEAR = 1e-3  # of the logits' size; what is told apart here is another mask or another scale

Calls = dict[str, list[Mapping[str, torch.Tensor]]]


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """An example of texts with pictures: `ids` and `mask` (batch, tokens), `pixels` with one picture after the other,
    the token that stands for a part of a picture, and the cache after the texts."""

    ids: torch.Tensor
    mask: torch.Tensor
    pixels: torch.Tensor
    token: int
    cache: Any


def pictures_of(case: ModelCase) -> Pictures:
    """The parts of a model.

    Raises:
        InvalidArgumentError: its pictures do more than to take the places of tokens, or its decoder keeps other things
            than keys and values.
    """
    model: Any = case.model
    inputs = case.inputs(case.task.sizes)
    pixels = inputs.get("pixel_values")
    others = sorted(
        set(inputs) - {"input_ids", "attention_mask", "pixel_values", "token_type_ids", "mm_token_type_ids"}
    )
    token = getattr(model.config, "image_token_id", None)
    if pixels is None or others or not isinstance(token, int) or not hasattr(model, "get_image_features"):
        raise _refused(case, f"it takes {', '.join(inputs)}, and has no features for one tensor of pixels")
    try:
        with torch.no_grad():
            features = _Seeing(model)(pixels)
            embedded = _Embedding(model, token)(inputs["input_ids"], features)
            given = {"inputs_embeds": embedded, "attention_mask": inputs["attention_mask"], "use_cache": True}
            out = model(**given, **{cache_argument(model.forward) or PAST: cache_utils.DynamicCache()})
            expected = model(**inputs).logits
    except REFUSALS as error:
        raise _refused(case, f"its parts called one after the other raise {type(error).__name__}: {error}") from error
    if (out.logits - expected).abs().max() > _NEAR * expected.abs().max():
        raise _refused(case, "its pictures change more than the embedded tokens in their places, such as the mask")
    cache = cache_in(model, out)
    require_plain_layers(model, cache)
    return Pictures(ids=inputs["input_ids"], mask=inputs["attention_mask"], pixels=pixels, token=token, cache=cache)


def vision_to_onnx(model: Any, parts: Pictures, *, opset: int | None) -> OnnxModel:
    """`pixel_values` to `image_features`, (parts of all pictures, width)."""
    named = ExportOptions(output_names=["image_features"])
    return to_onnx(
        _Seeing(model).eval(), (parts.pixels,), dynamic_shapes=({0: _PICTURES},), opset=opset, rewrite="auto",
        options=named,
    )  # fmt: skip


def embedding_to_onnx(model: Any, parts: Pictures, *, opset: int | None) -> OnnxModel:
    """`input_ids` and `image_features` to `inputs_embeds`."""
    with torch.no_grad():
        features = _Seeing(model)(parts.pixels)
    shapes = ({0: BATCH, 1: _TOKENS}, {0: _PLACES})
    named = ExportOptions(output_names=["inputs_embeds"])
    module = _Embedding(model, parts.token).eval()
    return to_onnx(module, (parts.ids, features), dynamic_shapes=shapes, opset=opset, options=named)


def writing_to_onnx(model: Any, parts: Pictures, *, opset: int | None) -> OnnxModel:
    """The decoder, from embedded tokens on."""
    width = model.get_input_embeddings()(parts.ids).shape[-1]
    return decoder_to_onnx(model, parts.cache, opset=opset, width=width, optimize="onnxruntime")


@dataclass(frozen=True, kw_only=True)
class Written:
    """What the model itself goes on with: `tokens` are texts and new ones, `logits` one (batch, vocabulary) a step."""

    tokens: torch.Tensor
    logits: Sequence[torch.Tensor]


def written_by_model(model: Any, parts: Pictures) -> Written:
    """Greedy, every step from the beginning, without a cache and with the pictures themselves."""
    tokens, logits = parts.ids, []
    banned = [parts.token, *ends_of(model)]
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            now = model(
                input_ids=tokens, attention_mask=torch.ones_like(tokens), pixel_values=parts.pixels,
                use_cache=False,
            ).logits[:, -1]  # fmt: skip
            logits.append(now)
            tokens = torch.cat([tokens, chosen_of(now, banned)], dim=1)
    return Written(tokens=tokens, logits=logits)


def one_text(parts: Pictures) -> tuple[torch.Tensor, torch.Tensor]:
    """The first text, (1, tokens), and its pictures, which come first; each picture has as many places."""
    places = int((parts.ids == parts.token).sum())
    first = int((parts.ids[0] == parts.token).sum())
    return parts.ids[:1], parts.pixels[: first * len(parts.pixels) // places]


def compare_writing(parts: Pictures, written: Written, got: Sequence[torch.Tensor]) -> list[Discrepancy]:
    """The logits of each step."""
    dtype = parts.cache.layers[0].keys.dtype
    pairs = zip(written.logits, got, strict=True)
    return [compare_logits(step, *pair, dtype) for step, pair in enumerate(pairs)]


def steps(folder: Path, parts: Pictures, written: Written, calls: Calls | None = None) -> Iterator[torch.Tensor]:
    """The logits of each step's last token, (batch, vocabulary), the three files run as the runtime does."""
    vision, embedding, decoder = (session_of(folder / name) for name in (VISION_FILE, EMBEDDING_FILE, MODEL_FILE))
    seen = fitting(vision, {"pixel_values": parts.pixels})
    called: Calls = {VISION_FILE: [seen], EMBEDDING_FILE: [], MODEL_FILE: []}
    (features,) = vision.run(seen)
    length = parts.ids.shape[1]
    past = empty_past(decoder.input_names, shapes_of(parts.cache), len(parts.ids), parts.cache.layers[0].keys.dtype)
    ids = parts.ids
    for step in range(len(written.logits)):
        given = {"input_ids": ids, "image_features": features if step == 0 else features[:0]}
        (embedded,) = embedding.run(given)
        mask = torch.ones(len(ids), length + step, dtype=torch.int64)
        feeds = {"inputs_embeds": embedded, "attention_mask": mask, **past}
        if "position_ids" in decoder.input_names:
            feeds["position_ids"] = positions(mask, ids.shape[1])
        fed = fitting(decoder, feeds)
        called[EMBEDDING_FILE].append(given)
        called[MODEL_FILE].append(fed)
        outputs = dict(zip(decoder.output_names, decoder.run(fed), strict=True))
        yield outputs["logits"][:, -1]
        past = {name: outputs[name.replace("past_key_values.", "present.")] for name in past}
        ids = written.tokens[:, length + step : length + step + 1]
    if calls is not None:
        calls.update({name: one[:2] for name, one in called.items()})


def genai_parts() -> dict[str, Any]:
    """What `genai_config.json` says of the parts in front of the decoder."""
    return {
        "vision": {
            "filename": VISION_FILE,
            "inputs": {"pixel_values": "pixel_values"},
            "outputs": {"image_features": "image_features"},
        },
        "embedding": {
            "filename": EMBEDDING_FILE,
            "inputs": {"input_ids": "input_ids", "image_features": "image_features"},
            "outputs": {"inputs_embeds": "inputs_embeds"},
        },
    }


class _Seeing(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        features = self.model.get_image_features(pixel_values=pixel_values)
        # transformers 5 has them in `pooler_output`; older ones return them.
        features = getattr(features, "pooler_output", features)
        if isinstance(features, list | tuple):
            features = torch.cat([one.flatten(0, -2) for one in features])
        return features.reshape(-1, features.shape[-1])  # type: ignore[no-any-return]


class _Embedding(torch.nn.Module):
    """Every place of a picture takes the next row of the features."""

    def __init__(self, model: Any, token: int) -> None:
        super().__init__()
        self.embedding = model.get_input_embeddings()
        self.token = token

    def forward(self, input_ids: torch.Tensor, image_features: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(input_ids)
        is_place = input_ids == self.token
        row = is_place.flatten().long().cumsum(0).reshape(input_ids.shape) - 1
        # One more row than there are: without a picture there is none to look up.
        rows = torch.nn.functional.pad(image_features.to(embedded.dtype), (0, 0, 0, 1))
        return torch.where(is_place.unsqueeze(-1), rows[row.clamp(min=0)], embedded)


def _refused(case: ModelCase, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{type(case.model).__name__} cannot be written as what sees, what embeds and what writes ({reason}); export "
        "it for onnxruntime, in one file, or, for texts alone, with the task text-generation"
    )
