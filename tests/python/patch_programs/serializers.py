"""Programs whose inputs are caches and outputs of models: they run at another length than they were exported with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
import transformers
from torch.export import Dim
from transformers import QuantizedCache, cache_utils
from transformers.modeling_outputs import BaseModelOutput

from exportguard import torch_export_patches
from exportguard.caches.build import make_dynamic_cache, make_encoder_decoder_cache, make_static_cache

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def pairs(length: int) -> Pairs:
    generator = torch.Generator().manual_seed(length)
    return [(torch.randn(2, 2, length, 4, generator=generator), torch.randn(2, 2, length, 4, generator=generator))]


class Appends(torch.nn.Module):
    def forward(self, key: torch.Tensor, cache: Any) -> Any:
        written = getattr(cache, "self_attention_cache", cache)
        return written.update(key, key * 2, 0), cache


def runs_at_another_length(make: Callable[[Pairs], Any], axes_of_cache: dict[int, Any]) -> None:
    """`make(pairs)` gives the cache; its tensors of rank 4 change along `axes_of_cache`."""
    with torch_export_patches():
        key, cache = torch.randn(2, 2, 3, 4), make(pairs(4))
        axes = [axes_of(leaf, axes_of_cache) for leaf in pytree.tree_leaves(cache)]
        shapes = ({2: Dim.DYNAMIC}, pytree.tree_unflatten(axes, list_spec(cache)))
        inputs = (key, copy.deepcopy(cache))
        program = torch.export.export(Appends(), inputs, dynamic_shapes=shapes, strict=False).module()
        more, other = torch.randn(2, 2, 2, 4), make(pairs(7))
        expected = Appends()(more, copy.deepcopy(other))
        for got, wanted in zip(pytree.tree_leaves(program(more, other)), pytree.tree_leaves(expected), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted))


def axes_of(leaf: Any, axes: dict[int, Any]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return Dim.DYNAMIC
    return axes if leaf.dim() == 4 else None


def list_spec(cache: Any) -> Any:
    """The structure of the cache with lists in place of registered classes, as torch.export takes dynamic shapes."""

    def lists(tree: Any) -> Any:
        if not pytree.tree_leaves(tree) or pytree.tree_structure(tree).is_leaf():
            return 0
        return [lists(child) for child in pytree.SUPPORTED_NODES[pytree._get_node_type(tree)].flatten_fn(tree)[0]]

    return pytree.tree_structure(lists(cache))


def quantized(filled: Pairs) -> Any:
    config = transformers.LlamaConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=2)
    cache = QuantizedCache("fp8", config)
    cache.update(*filled[0], 0)
    return cache


def goes_through_a_quantized_cache() -> None:
    if not hasattr(cache_utils, "Fp8QuantizedLayer"):
        pytest.skip("transformers 4 quantizes with packages that are not installed")
    with torch_export_patches():
        cache = quantized(pairs(4))
        leaves, spec = pytree.tree_flatten(cache)
        assert len(leaves) > 4
        again = pytree.tree_unflatten(leaves, spec)
        torch.testing.assert_close(again.update(*pairs(2)[0], 0)[0], copy.deepcopy(cache).update(*pairs(2)[0], 0)[0])
        program = torch.export.export(Appends(), (torch.randn(2, 2, 3, 4), quantized(pairs(4))), strict=False).module()
        other = quantized([(pairs(4)[0][0] * 2, pairs(4)[0][1])])
        key = torch.randn(2, 2, 3, 4)
        expected = Appends()(key, copy.deepcopy(other))[0]
        torch.testing.assert_close(program(key, other)[0], expected)


class TakesStates(torch.nn.Module):
    def forward(self, states: Any) -> Any:
        states.seqlen_offset = states.seqlen_offset + 1
        return states.rnn_state[0][0] * 2, states


def goes_through_states_of_a_model() -> None:
    from transformers.models.xlstm.modeling_xlstm import xLSTMCache

    config = transformers.xLSTMConfig(hidden_size=8, num_heads=2, num_hidden_layers=1, vocab_size=20)
    with torch_export_patches():
        states = xLSTMCache(config, 2, dtype=torch.float32)
        axes = [
            Dim.DYNAMIC if not isinstance(leaf, torch.Tensor) else {0: Dim.DYNAMIC} if leaf.dim() > 1 else None
            for leaf in pytree.tree_leaves(states)
        ]
        states.seqlen_offset += 5
        program = torch.export.export(TakesStates(), (states,), dynamic_shapes=(axes,), strict=False).module()
        other = xLSTMCache(config, 5, dtype=torch.float32)
        other.seqlen_offset += 7
        got, after = program(other)
        assert got.shape[0] == 5
        assert int(after.seqlen_offset) == 8


class Encodes(torch.nn.Module):
    def forward(self, encoded: Any) -> Any:
        return type(encoded)(encoded[0] * 2)


def takes_an_output(make: Callable[[torch.Tensor], Any], **guard: Any) -> None:
    with torch_export_patches(**guard):
        inputs, shapes = (make(torch.randn(2, 3)),), ([{0: Dim.DYNAMIC}],)
        program = torch.export.export(Encodes(), inputs, dynamic_shapes=shapes, strict=False).module()
        other = torch.randn(5, 3)
        torch.testing.assert_close(program(make(other))[0], other * 2)


def takes_an_output_of_diffusers() -> None:
    outputs = pytest.importorskip("diffusers.models.unets.unet_2d_condition", reason="diffusers is not installed")
    takes_an_output(lambda x: outputs.UNet2DConditionOutput(sample=x), patch_diffusers=True)


PROGRAMS = {
    "serializer of DynamicCache": lambda: runs_at_another_length(make_dynamic_cache, {2: Dim.DYNAMIC}),
    "serializer of StaticCache": lambda: runs_at_another_length(lambda p: make_static_cache(p, max_cache_len=16), {}),
    "serializer of EncoderDecoderCache": lambda: runs_at_another_length(
        lambda p: make_encoder_decoder_cache(make_dynamic_cache(p), make_dynamic_cache(p)), {2: Dim.DYNAMIC}
    ),
    "serializer of QuantizedCache": goes_through_a_quantized_cache,
    "serializer of the caches of models": goes_through_states_of_a_model,
    "outputs of transformers": lambda: takes_an_output(lambda x: BaseModelOutput(last_hidden_state=x)),
    "outputs of diffusers": takes_an_output_of_diffusers,
}
