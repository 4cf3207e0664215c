"""Places in transformers whose `if` or `for` depends on tensor data: `rewrite="auto"` exports them as they are.

Each is exported once and is equal to eager mode on both sides of its test, as a module and in onnxruntime.
"""

from __future__ import annotations

import copy
import importlib
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from exportguard import ExportOptions, to_onnx

Cases = Sequence[tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Place:
    """A module around a place, inputs for both sides of its test, and how close float16 has to be."""

    module: Callable[[], torch.nn.Module]
    cases: Cases
    tolerance: float = 1e-5


PLACES: dict[str, Place] = {}


def place(name: str, cases: Cases, tolerance: float = 1e-5) -> Callable[[Callable[[], torch.nn.Module]], None]:
    def register(module: Callable[[], torch.nn.Module]) -> None:
        PLACES[name] = Place(module, cases, tolerance)

    return register


def modeling(name: str) -> types.ModuleType:
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def config(name: str, **values: Any) -> Any:
    module = importlib.import_module(f"transformers.models.{name.partition(':')[0]}")
    made = getattr(module, name.partition(":")[2])(**values)
    made._attn_implementation = "eager"
    return made


class Calls(torch.nn.Module):
    """A function, or a method, as a module; `part` is what holds its parameters."""

    def __init__(self, function: Callable[..., Any], part: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.function = function
        self.part = part

    def forward(
        self,
        a: torch.Tensor,
        b: torch.Tensor | None = None,
        c: torch.Tensor | None = None,
        d: torch.Tensor | None = None,
    ) -> Any:
        given = [tensor for tensor in (a, b, c, d) if tensor is not None]
        return self.function(*given) if self.part is None else self.function(self.part, *given)


def _randomized(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def ramp(*shape: int, scale: float = 1.0) -> torch.Tensor:
    count = int(torch.tensor(shape).prod())
    return (torch.linspace(-1.0, 1.0, count).cos() * scale).reshape(shape)


# ------------------------------------------------------------------------------ layers that clamp what overflowed

_SEQ2SEQ = {
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "vocab_size": 32,
    "dropout": 0.0,
    "activation_dropout": 0.0,
    "attention_dropout": 0.0,
}

# A row with one large element is beyond float16 once it is normalized and multiplied by the weight of the layer below.
_OVERFLOWING = 28000.0
_HALF_CASES: Cases = (
    (torch.tensor([1.0, -1.0] * 4).repeat(2, 3, 1).half(),),
    (torch.tensor([40.0] + [0.0] * 7).repeat(3, 4, 1).half(),),
)


def _layer(path: str, class_name: str, of_config: Any, *arguments: Any, **keywords: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    return getattr(modeling(path), class_name)(of_config, *arguments, **keywords)


class Encoder(torch.nn.Module):
    """A layer with an attention mask of zeros."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> Any:
        mask = x.new_zeros(x.shape[0], 1, x.shape[1], x.shape[1])
        output = self.layer(x, mask)
        return output[0] if isinstance(output, tuple) else output


def _half_layer(path: str, prefix: str, config_name: str, **more: Any) -> None:
    @place(f"{prefix}EncoderLayer", _HALF_CASES, 2e-3)
    def build() -> torch.nn.Module:
        layer = _layer(path, f"{prefix}EncoderLayer", config(f"{path}:{config_name}", **_SEQ2SEQ, **more))
        torch.nn.init.constant_(layer.final_layer_norm.weight, _OVERFLOWING)
        return Encoder(layer.half().eval())


_half_layer("marian", "Marian", "MarianConfig", pad_token_id=0)
_half_layer("plbart", "PLBart", "PLBartConfig")
_half_layer("bart", "Bart", "BartConfig")
_half_layer("informer", "Informer", "InformerConfig", prediction_length=4, attention_type="full")
_half_layer("blenderbot_small", "BlenderbotSmall", "BlenderbotSmallConfig")


_half_layer("time_series_transformer", "TimeSeriesTransformer", "TimeSeriesTransformerConfig", prediction_length=4)


@place("LongT5Block", _HALF_CASES, 2e-3)
def _longt5() -> torch.nn.Module:
    of = config("longt5:LongT5Config", d_model=8, d_kv=4, d_ff=16, num_heads=2, num_layers=1, dropout_rate=0.0)
    block = _layer("longt5", "LongT5Block", of, has_relative_attention_bias=True, layer_idx=0)
    return Calls(lambda part, x: part(x)[0], block.half().eval())


_TRAINING_CASES: Cases = ((ramp(2, 3, 8),), (torch.full((3, 4, 8), float("inf")),))


def _detr(path: str, class_name: str, config_name: str, **more: Any) -> None:
    @place(class_name, _TRAINING_CASES)
    def build() -> torch.nn.Module:
        layer = _layer(path, class_name, config(f"{path}:{config_name}", **more)).train()
        return Calls(_first_of, layer)


def _first_of(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    output = layer(x, None, x)
    return output[0] if isinstance(output, tuple) else output


_detr("detr", "DetrEncoderLayer", "DetrConfig", **_SEQ2SEQ)
_detr("conditional_detr", "ConditionalDetrEncoderLayer", "ConditionalDetrConfig", **_SEQ2SEQ)
_detr("table_transformer", "TableTransformerEncoderLayer", "TableTransformerConfig", **_SEQ2SEQ)


# ------------------------------------------------------------------------------ layers left out at random


def _layerdrop(probability: float) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        of = config("bart:BartConfig", **_SEQ2SEQ, encoder_layerdrop=probability, max_position_embeddings=16)
        torch.manual_seed(0)
        encoder = modeling("bart").BartEncoder(of).train()
        return Calls(lambda part, ids: part(ids).last_hidden_state, encoder)

    return build


_IDS: Cases = ((torch.tensor([[3, 4, 5], [6, 7, 8]]),), (torch.tensor([[9, 8, 7, 6]]),))
place("BartEncoder with every layer dropped", _IDS)(_layerdrop(1.1))
place("BartEncoder with no layer dropped", _IDS)(_layerdrop(1e-12))

# ------------------------------------------------------------------------------ rotary embeddings that follow lengths

_POSITIONS: Cases = tuple((ramp(1, n, 8), torch.arange(n)[None]) for n in (3, 5, 40, 90))


def _rope(path: str, prefix: str, config_name: str, parameters: dict[str, Any], **more: Any) -> torch.nn.Module:
    of = config(
        f"{path}:{config_name}",
        hidden_size=16,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=32,
        rope_parameters={"rope_theta": 10000.0, **parameters},
        **more,
    )
    return getattr(modeling(path), f"{prefix}RotaryEmbedding")(of)


_DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 32}
_LONG = {
    "rope_type": "longrope",
    "factor": 2.0,
    "original_max_position_embeddings": 32,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 2.1, 2.2, 2.3],
    "short_mscale": 1.1,
    "long_mscale": 1.3,
}


@place("dynamic rope of Llama", _POSITIONS)
def _dynamic_llama() -> torch.nn.Module:
    return _rope("llama", "Llama", "LlamaConfig", _DYNAMIC)


@place("dynamic rope of Qwen2", _POSITIONS)
def _dynamic_qwen2() -> torch.nn.Module:
    return _rope("qwen2", "Qwen2", "Qwen2Config", _DYNAMIC)


@place("longrope of Phimoe", _POSITIONS)
def _long_phimoe() -> torch.nn.Module:
    return _rope("phimoe", "Phimoe", "PhimoeConfig", _LONG)


# ------------------------------------------------------------------------------ assertions and raises


_BOXES: Cases = (
    (torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.2, 0.1, 0.9, 0.5]]), torch.tensor([[0.0, 0.2, 1.0, 1.0]] * 3)),
    (torch.tensor([[0.3, 0.3, 0.4, 0.9]] * 4), torch.tensor([[0.1, 0.1, 0.5, 0.5]])),
)


@place("generalized_box_iou of OwlViT", _BOXES)
def _owlvit() -> torch.nn.Module:
    return Calls(modeling("owlvit").generalized_box_iou)


@place("generalized_box_iou of the losses", _BOXES)
def _loss_boxes() -> torch.nn.Module:
    return Calls(importlib.import_module("transformers.loss.loss_for_object_detection").generalized_box_iou)


_LABELS: Cases = ((torch.tensor([[9, -100, 4], [8, 7, 2]]),), (torch.tensor([[3, 4, 5, 6, 7]] * 3),))


@place("ProphetNetPreTrainedModel._shift_right", _LABELS)
def _prophetnet() -> torch.nn.Module:
    shift = modeling("prophetnet").ProphetNetPreTrainedModel._shift_right
    owner = types.SimpleNamespace(config=types.SimpleNamespace(decoder_start_token_id=1, pad_token_id=0))
    return Calls(lambda ids: shift(owner, ids))


@place("EncodecModel._linear_overlap_add", ((ramp(2, 1, 6), ramp(2, 1, 6)), (ramp(3, 1, 6), ramp(3, 1, 6))))
def _encodec() -> torch.nn.Module:
    add = modeling("encodec").EncodecModel._linear_overlap_add
    return Calls(lambda a, b: add([a, b], 4))


# ------------------------------------------------------------------------------ experts that some tokens go to

_ROUTED: Cases = (
    (ramp(4, 8), torch.tensor([[0, 1], [1, 2], [0, 1], [2, 1]]), ramp(4, 2)),
    (ramp(2, 8, scale=2), torch.tensor([[3, 0], [3, 0]]), ramp(2, 2)),
    (ramp(6, 8, scale=3), torch.tensor([[0, 1], [2, 3], [0, 2], [1, 3], [3, 2], [1, 0]]), ramp(6, 2)),
)


def _experts(path: str, class_name: str, config_name: str, **sizes: Any) -> None:
    @place(class_name, _ROUTED)
    def build() -> torch.nn.Module:
        of = config(f"{path}:{config_name}", hidden_size=8, **sizes)
        of._experts_implementation = "eager"
        return _randomized(getattr(modeling(path), class_name)(of))


_experts("afmoe", "AfmoeExperts", "AfmoeConfig", num_experts=4, moe_intermediate_size=8)
_experts("mixtral", "MixtralExperts", "MixtralConfig", num_local_experts=4, intermediate_size=8)
_experts("qwen2_moe", "Qwen2MoeExperts", "Qwen2MoeConfig", num_experts=4, moe_intermediate_size=8)
_experts("deepseek_v3", "DeepseekV3Experts", "DeepseekV3Config", n_routed_experts=4, moe_intermediate_size=8)
_experts("olmoe", "OlmoeExperts", "OlmoeConfig", num_experts=4, intermediate_size=8)
_experts("dots1", "Dots1Experts", "Dots1Config", n_routed_experts=4, moe_intermediate_size=8)
_experts("ernie4_5_moe", "Ernie4_5_MoeExperts", "Ernie4_5_MoeConfig", moe_num_experts=4, moe_intermediate_size=8)
_experts("flex_olmo", "FlexOlmoExperts", "FlexOlmoConfig", num_experts=4, intermediate_size=8)
_experts("gpt_oss", "GptOssExperts", "GptOssConfig", num_local_experts=4, intermediate_size=8)

# ------------------------------------------------------------------------------ other tests


@place(
    "VisualBertEmbeddings",
    (
        (torch.tensor([[1, 2, 3]]), ramp(1, 2, 8), torch.tensor([[[0, 1], [2, -1]]])),
        (torch.tensor([[4, 5, 6, 7]]), ramp(1, 2, 8), torch.tensor([[[0, 1], [-1, -1]]])),
    ),
)
def _visual_bert() -> torch.nn.Module:
    of = config("visual_bert:VisualBertConfig", hidden_size=8, visual_embedding_dim=8, vocab_size=16)
    embeddings = modeling("visual_bert").VisualBertEmbeddings(of).eval()
    return Calls(
        lambda part, ids, visual, alignment: part(ids, visual_embeds=visual, image_text_alignment=alignment), embeddings
    )


# ------------------------------------------------------------------------------ the check of a place


@place("UdopPreTrainedModel._shift_right", _LABELS)
def _udop() -> torch.nn.Module:
    shift = modeling("udop").UdopPreTrainedModel._shift_right
    owner = types.SimpleNamespace(config=types.SimpleNamespace(decoder_start_token_id=1, pad_token_id=0))
    return Calls(lambda ids: shift(owner, ids))


_PADDED = torch.tensor([[2, 3, 0, 0, 0]] * 2)
_FULL = torch.tensor([[2, 3, 4, 5, 6], [7, 8, 9, 3, 2]])
_NLL_IDS: Cases = tuple((ramp(4, 5, 16), ramp(2, 2), ids) for ids in (_FULL, _PADDED))


@place("RagSequenceForGeneration.get_nll", _NLL_IDS)
def _rag() -> torch.nn.Module:
    get_nll = modeling("rag").RagSequenceForGeneration.get_nll
    generator = types.SimpleNamespace(pad_token_id=0, bos_token_id=None)
    owner = types.SimpleNamespace(config=types.SimpleNamespace(n_docs=2, bos_token_id=None, generator=generator))
    return Calls(lambda logits, scores, target: get_nll(owner, logits, scores, target))


@place(
    "EvollaSequenceAlignerCrossAttention",
    (
        (ramp(2, 3, 8), ramp(2, 4, 8), torch.ones(2, 4), torch.ones(2)),
        (ramp(2, 3, 8), ramp(2, 4, 8), torch.zeros(2, 4), torch.zeros(2)),
    ),
)
def _evolla() -> torch.nn.Module:
    of = config("evolla:EvollaConfig", hidden_size=8, num_attention_heads=2, num_key_value_heads=2, aligner_ffn_mult=2)
    layer = modeling("evolla").EvollaSequenceAlignerCrossAttention(of, protein_encoder_dim=8).eval()
    _randomized(layer)

    def call(part: torch.nn.Module, x: Any, protein: Any, mask: Any, batch_mask: Any) -> Any:
        return part(
            x,
            protein_kv_states=protein,
            structure_kv_states=None,
            msa_kv_states=None,
            query_attn_mask=x.new_ones(x.shape[:2]),
            protein_kv_attn_mask=mask,
            protein_batch_mask=batch_mask,
        )

    return Calls(call, layer)


def _leaves(outputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _copies(case: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone() for tensor in case)


def _axes(cases: Cases) -> tuple[dict[int, str] | None, ...]:
    """A name for every axis that differs between the cases, one name for axes that are equal in all of them."""
    names: dict[tuple[int, ...], str] = {}
    found: list[dict[int, str] | None] = []
    for position, first in enumerate(cases[0]):
        sizes = {axis: tuple(case[position].shape[axis] for case in cases) for axis in range(first.dim())}
        dynamic = {axis: size for axis, size in sizes.items() if len(set(size)) > 1}
        found.append({axis: names.setdefault(size, f"n{len(names)}") for axis, size in dynamic.items()} or None)
    return tuple(found)


def _check(tried: Place) -> None:
    model = tried.module()
    expected = [_leaves(copy.deepcopy(model)(*_copies(case))) for case in tried.cases]
    onnx = to_onnx(
        model,
        _copies(tried.cases[0]),
        dynamic_shapes=_axes(tried.cases),
        rewrite="auto",
        options=ExportOptions(guard={"patch_transformers": False}),
    )
    assert onnx.rewriting_steps
    names = [value.name for value in onnx.inputs]
    for case, outputs in zip(tried.cases, expected, strict=True):
        found = list(onnx.run(dict(zip(names, _copies(case), strict=True))).values())[: len(outputs)]
        torch.testing.assert_close(found, outputs, rtol=tried.tolerance, atol=tried.tolerance, equal_nan=True)


@pytest.mark.parametrize("name", list(PLACES))
def test_a_place_in_transformers_is_exported_and_equal_to_eager_on_both_sides(name: str) -> None:
    _check(PLACES[name])
