"""Pictures packed into one sequence: their number and their sizes are data."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.export import Dim
from transformers import LlavaConfig, LlavaModel, PixtralVisionConfig, PixtralVisionModel
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen

from exportguard import to_onnx, torch_export_patches
from exportguard.runners.onnxruntime import OrtSession
from unchecked import WITHOUT_CHECKS

GRIDS = [
    torch.tensor([[1, 4, 6], [2, 2, 4]]),
    torch.tensor([[1, 6, 2], [1, 2, 2], [3, 4, 4]]),
    torch.tensor([[1, 2, 4]]),
]


ONE_FRAME = torch.tensor([1, 0, 0])


def is_right_on_all(model: torch.nn.Module, calls: Sequence[tuple[torch.Tensor, ...]], shapes: Any) -> None:
    with torch_export_patches(), torch.no_grad():
        exported = torch.export.export(model, calls[0], dynamic_shapes=shapes, strict=False)
    session = OrtSession(to_onnx(exported, options=WITHOUT_CHECKS).to_bytes())
    for call in calls:
        with torch.no_grad():
            expected = torch.utils._pytree.tree_leaves(model(*call))
        got = session.run(dict(zip(session.input_names, call, strict=True)))
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def require(name: str) -> None:
    if not hasattr(qwen, name):
        pytest.skip(f"transformers 4 has no {name}")


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = SimpleNamespace(embed_dim=8, num_heads=2, attention_dropout=0.0, _attn_implementation="sdpa")
        self.attention = qwen.VisionAttention(config)

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> Any:
        return self.attention(x, cu_seqlens=ends, position_embeddings=(torch.ones(4), torch.zeros(4)))


def attention() -> None:
    require("get_vision_position_ids")
    torch.manual_seed(0)
    calls = [(torch.randn(ends[-1], 8), torch.tensor(ends)) for ends in ([0, 3, 7], [0, 2, 5, 6], [0, 4])]
    is_right_on_all(Attention().eval(), calls, ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))


class Positions(torch.nn.Module):
    def forward(self, grid: torch.Tensor) -> Any:
        modules = [importlib.import_module(f"transformers.models.{name}") for name in _OWNERS]
        rows, windows, nearest, smooth, frames, blocks = modules
        positions = rows.get_vision_position_ids(grid_thw=grid, spatial_merge_size=2)
        order, ends = windows.get_vision_window_index(grid, spatial_merge_size=2, window_size=16, patch_size=2)
        indices, weights = smooth.get_vision_interpolation_indices_and_weights(grid, 7, spatial_merge_size=2)
        place = nearest.get_vision_nearest_position_ids(target_sizes=grid[:, 1:], num_patches_per_side=7)
        others = [frames.get_vision_frame_index(grid), blocks.get_vision_pixel_shuffle_index(grid, 2)]
        if not hasattr(frames.Kimi_K25VisionModel, "temporal_merge"):  # transformers 5.24 merges in another way
            clips = grid[:, [0, 2, 1]] * torch.tensor([0, 1, 1]) + ONE_FRAME
            others.append(frames.get_vision_temporal_merge_index(clips, 2, 2))
        return positions, order, ends, place, indices, weights, others


_OWNERS = [
    "qwen2_vl.modeling_qwen2_vl",
    "qwen2_5_vl.modeling_qwen2_5_vl",
    "minicpmv4_6.modeling_minicpmv4_6",
    "qwen3_vl.modeling_qwen3_vl",
    "kimi_k25.modeling_kimi_k25",
    "muse_glimmer.modeling_muse_glimmer",
]


def positions() -> None:
    require("get_vision_position_ids")
    is_right_on_all(Positions(), [(grid,) for grid in GRIDS], ({0: Dim.DYNAMIC},))


class Tables(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(5, 5, 3))

    def forward(self, grid: torch.Tensor, places: torch.Tensor) -> Any:
        siglip, cosmos = (importlib.import_module(f"transformers.models.{name}") for name in _TABLES)
        padded = siglip.Siglip2VisionEmbeddings.resize_positional_embeddings
        packed = cosmos.Cosmos3EdgeVisionEmbeddings.resize_positional_embeddings
        return packed(self.table, grid, 2), padded(self.table, grid[:, 1:], places.shape[0])


_TABLES = ["siglip2.modeling_siglip2", "cosmos3_edge.modeling_cosmos3_edge"]


def tables() -> None:
    require("get_vision_position_ids")
    torch.manual_seed(0)
    calls = [(grid, torch.zeros(int(grid.prod(1).max()) + 1)) for grid in GRIDS]
    is_right_on_all(Tables(), calls, ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))


class TextPositions(torch.nn.Module):
    """The positions alone: what the model computes them from is on no weight."""

    def __init__(self, model: Any = qwen.Qwen2VLModel) -> None:
        super().__init__()
        self.model = model
        self.config = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2))

    def forward(self, kinds: torch.Tensor, mask: torch.Tensor, grid: torch.Tensor) -> Any:
        return self.model.get_rope_index(self, kinds, kinds, grid, attention_mask=mask)

    def get_vision_position_ids(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.get_vision_position_ids(self, *args, **kwargs)


def text_of(grid: torch.Tensor, padded: int, ends: int = 0) -> tuple[torch.Tensor, ...]:
    """A text for each picture, which stands behind a token of text; padded in front to the length of the longest.

    Each row of blocks has `ends` further tokens.
    """
    rows = [[0] + [1] * (t * (h // 2) * (w // 2 + ends)) + [0, 0] for t, h, w in grid.tolist()]
    length = max(map(len, rows)) + padded
    kinds = torch.tensor([[0] * (length - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (length - len(row)) + [1] * len(row) for row in rows])
    return kinds, mask, grid


class RankedPositions(torch.nn.Module):
    """Positions that a picture does not change, but for the axes of its rows, its columns and its number."""

    def __init__(self) -> None:
        super().__init__()
        text = SimpleNamespace(rope_parameters={"mrope_section": [1, 1, 1, 1]})
        self.config = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2), text_config=text)

    def forward(self, kinds: torch.Tensor, mask: torch.Tensor, grid: torch.Tensor) -> Any:
        hunyuan = importlib.import_module("transformers.models.hunyuan_vl.modeling_hunyuan_vl").HunYuanVLModel
        self.get_vision_position_ids = functools.partial(hunyuan.get_vision_position_ids, self)
        return hunyuan.get_rope_index(self, kinds, kinds, grid, mask), hunyuan.get_rope_index(self, kinds, kinds, grid)


def ranked_text_of(grid: torch.Tensor, padded: int) -> tuple[torch.Tensor, ...]:
    """As `text_of`, each row of a picture with an end of its own; those of odd number have both ends themselves."""
    _, height, width = (grid // torch.tensor([1, 2, 2])).unbind(-1)
    counts = height * (width + 1) + torch.arange(len(grid)) % 2 * 2
    return text_of(torch.stack([counts, torch.full_like(counts, 2), torch.full_like(counts, 2)], -1), padded)[:2]


def text_positions() -> None:
    require("get_vision_position_ids")
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    calls = [text_of(grid, padded) for padded, grid in enumerate(GRIDS)]
    is_right_on_all(TextPositions(), calls, (axes, axes, {0: Dim.DYNAMIC}))
    if importlib.util.find_spec("transformers.models.hy_v4_vl"):
        hunyuan = importlib.import_module("transformers.models.hy_v4_vl.modeling_hy_v4_vl").HYV4VLModel
        calls = [(*text_of(grid, padded, ends=1)[:2], grid) for padded, grid in enumerate(GRIDS)]
        is_right_on_all(TextPositions(hunyuan), calls, (axes, axes, {0: Dim.DYNAMIC}))
    calls = [(*ranked_text_of(grid, padded), grid) for padded, grid in enumerate(GRIDS)]
    is_right_on_all(RankedPositions(), calls, (axes, axes, {0: Dim.DYNAMIC}))


class Features(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        small = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2}
        vision = {"model_type": "clip_vision_model", "image_size": 4, "patch_size": 2, **small}
        text = {"model_type": "llama", "vocab_size": 8, **small}
        self.model = LlavaModel(LlavaConfig(vision_config=vision, text_config=text)).eval()

    def forward(self, pixels: torch.Tensor) -> Any:
        features = self.model.get_image_features(pixels)
        return torch.cat(list(getattr(features, "pooler_output", features)), dim=0)


class SizedFeatures(torch.nn.Module):
    """Features that are split by the heights and widths of the pictures."""

    def __init__(self) -> None:
        super().__init__()
        vision = SimpleNamespace(patch_size=2)
        self.config = SimpleNamespace(return_dict=True, vision_config=vision, spatial_merge_size=2)

    def forward(self, states: torch.Tensor, sizes: torch.Tensor) -> Any:
        lighton = importlib.import_module("transformers.models.lighton_ocr.modeling_lighton_ocr")
        self.vision_encoder = lambda *_, **__: BaseModelOutputWithPooling(last_hidden_state=states[None])
        self.vision_projection = lambda x, _: x * 2
        return torch.cat(list(lighton.LightOnOcrModel.get_image_features(self, states, sizes).pooler_output))


def sized_features() -> None:
    require("get_vision_position_ids")
    calls = [(torch.randn(int((grid[:, 1:] // 2).prod(1).sum()), 3), grid[:, 1:] * 2) for grid in GRIDS]
    is_right_on_all(SizedFeatures(), calls, ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))


def features() -> None:
    sized_features()
    torch.manual_seed(0)
    calls = [(torch.randn(count, 3, 4, 4),) for count in (2, 3, 1)]
    is_right_on_all(Features(), calls, ({0: Dim.DYNAMIC},))


class Pixtral(torch.nn.Module):
    """Pictures of several sizes, and the merging of their patches."""

    def __init__(self) -> None:
        super().__init__()
        small = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
        vision = PixtralVisionConfig(image_size=8, patch_size=2, head_dim=4, **small)
        self.model = PixtralVisionModel(vision).eval()
        config = SimpleNamespace(vision_config=vision, spatial_merge_size=2)
        self.merger = importlib.import_module("transformers.models.mistral3.modeling_mistral3").Mistral3PatchMerger(
            config
        )

    def forward(self, pixels: torch.Tensor, sizes: torch.Tensor) -> Any:
        features = self.model(pixels, image_sizes=sizes).last_hidden_state
        return self.merger(features.squeeze(0), sizes)


class Mergers(torch.nn.Module):
    """Pairs of frames, and the blocks of patches that are padded."""

    spatial_merge_size = 2
    factor = 2

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(return_dict=True, downsample_factor=self.factor)

    def forward(self, frames: torch.Tensor, grid: torch.Tensor, states: torch.Tensor, shapes: torch.Tensor) -> Any:
        ernie, lfm, llama = (importlib.import_module(f"transformers.models.{name}") for name in _MERGERS)
        self.vision_tower = lambda **_: BaseModelOutputWithPooling(last_hidden_state=states)
        self.multi_modal_projector = functools.partial(lfm.Lfm2VlMultiModalProjector.pixel_unshuffle, self)
        self.multi_modal_projector.factor = self.factor
        padding = torch.arange(states.shape[1])[None] < shapes.prod(1)[:, None]
        projected = lfm.Lfm2VlModel.get_image_features(self, states, shapes, padding).pooler_output
        slices = ernie.Ernie4_5_VLMoeVariableResolutionResamplerModel._temporal_slicing(self, frames, grid)
        sides = torch.full_like(grid[:, 0], 2) - (grid[:, 1] == 6).long()  # pictures of six rows are not merged
        patches = torch.cat([frames] * 4)
        centers = llama.VideoLlama3VisionModel.pixel_unshuffle(self, patches, grid, sides)
        return slices, torch.cat(list(projected)), centers


_LLAMA = "video_llama_3.modeling_video_llama_3"
_MERGERS = ["ernie4_5_vl_moe.modeling_ernie4_5_vl_moe", "lfm2_vl.modeling_lfm2_vl", _LLAMA]


def mergers() -> None:
    require("get_vision_position_ids")
    torch.manual_seed(0)
    calls = []
    for grid in GRIDS:
        counts, shapes = grid.prod(1), grid[:, 1:]
        states = torch.randn(len(grid), int(shapes.prod(1).max()) + 1, 3)
        calls.append((torch.randn(int(counts.sum()) // 4, 3), grid, states, shapes))
    axes = {0: Dim.DYNAMIC}
    is_right_on_all(Mergers(), calls, (axes, axes, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, axes))


class WholePixtral(Pixtral):
    """Pictures of one size."""

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.model(pixels).last_hidden_state


def pixtral() -> None:
    require("get_vision_position_ids")
    torch.manual_seed(0)
    axes = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    sizes = torch.tensor([[8, 4], [4, 8], [8, 8]])
    calls = [(torch.randn(count, 3, 8, 8), sizes[-count:]) for count in (2, 3, 1)]
    is_right_on_all(Pixtral(), calls, (axes, {0: Dim.DYNAMIC}))
    is_right_on_all(WholePixtral(), [call[:1] for call in calls], (axes,))


class Masked(torch.nn.Module):
    """Attention to as many entries as the data tells."""

    def forward(self, x: torch.Tensor) -> Any:
        kept = x[x[:, 0] > 0][None, None]
        torch._check(kept.shape[2] > 0)
        mask = torch.zeros(1, 1, kept.shape[2], kept.shape[2])
        attention = ALL_ATTENTION_FUNCTIONS["sdpa"]
        return attention(torch.nn.Module(), kept, kept, kept, attention_mask=mask)[0]


def masked() -> None:
    calls = [(torch.randn(5, 4).abs(),), (torch.randn(9, 4),)]
    is_right_on_all(Masked(), calls, ({0: Dim.DYNAMIC},))


class Places(torch.nn.Module):
    """A text whose places for pictures are counted before they are filled."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(image_token_id=1)

    def forward(self, ids: torch.Tensor, embeddings: torch.Tensor, features: torch.Tensor) -> Any:
        hunyuan = importlib.import_module("transformers.models.hunyuan_vl.modeling_hunyuan_vl")
        mask = hunyuan.HunYuanVLModel.get_placeholder_mask(self, ids, embeddings, features)
        return mask[0] if isinstance(mask, tuple) else mask


def places() -> None:
    require("get_vision_position_ids")
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    calls = [
        (ids, torch.randn(*ids.shape, 4), torch.randn(int(ids.sum()), 4))
        for ids in (torch.tensor([[1, 1, 0], [0, 1, 0]]), torch.tensor([[1, 1, 0, 1]]))
    ]
    is_right_on_all(Places(), calls, (axes, axes, {0: Dim.DYNAMIC}))


PROGRAMS = {
    "packed pictures of pixtral": pixtral,
    "merging of patches": mergers,
    "causal attention of a symbolic length": masked,
    "checks of the places of pictures": places,
    "attention over packed pictures": attention,
    "positions in packed pictures": positions,
    "tables of positions for pictures of any size": tables,
    "positions of texts with pictures": text_positions,
    "features of several pictures": features,
}
