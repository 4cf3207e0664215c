"""Caches that models define for themselves: every class, its round trip, its export, and a run with other sizes."""

from __future__ import annotations

import copy
import importlib
import inspect
import io
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim

from exportguard import torch_export_patches
from exportguard.cache_names import cache_argument
from exportguard.caches.encoding import holds_states

WIDTH = 8


def mimi(cls: type[Any]) -> Any:
    cache = cls(2, [1, 2], ["constant", "replicate"], [4, 4])
    for i in range(2):
        cache.update(torch.randn(2, 4, 5), i) if hasattr(cache, "update") else None
    cache.padding_cache = [torch.randn(2, 4, 1), torch.randn(2, 4, 2)]
    return cache


def xlstm(cls: type[Any]) -> Any:
    config = transformers.xLSTMConfig(hidden_size=WIDTH, num_heads=2, num_hidden_layers=2, vocab_size=20)
    cache = cls(config, 2, dtype=torch.float32)
    cache.seqlen_offset += 3
    return cache


def reformer(cls: type[Any]) -> Any:
    return cls([(torch.zeros(2, 2, 3, dtype=torch.int64), torch.randn(2, 3, WIDTH))] * 2)


def padding_of_layers(cls: type[Any]) -> Any:
    cache = cls()
    layer = next(
        value
        for name, value in vars(sys.modules[cls.__module__]).items()
        if name.endswith("Conv1dCacheLayer") and isinstance(value, type)
    )
    cache.layers["first"] = conv_layer(layer)
    return cache


def conv_layer(cls: type[Any]) -> Any:
    layer = cls()
    layer.cache, layer.is_initialized = torch.randn(2, 4, 3), True
    return layer


def of_config(cls: type[Any]) -> Any:
    cache = cls(transformers.LlamaConfig())
    cache.hidden_state, cache.is_initialized = torch.randn(2, 2, WIDTH), True
    return cache


def of_states(cls: type[Any]) -> Any:
    """Whatever its constructor wants: the states of transformers 4, lists and dictionaries of tensors."""
    cache = cls.__new__(cls)
    states = {"conv_states": [torch.randn(2, 4, 3)], "ssm_states": {0: torch.randn(2, 4, 4)}}
    vars(cache).update(states, dtype=torch.float32, has_previous_state=True, max_batch_size=2)
    return cache


def of_vision(cls: type[Any]) -> Any:
    cache = cls()
    cache._vision_features = {0: {"vision_feats": [torch.randn(2, 4)], "positions": torch.randn(2, 4)}}
    return cache


def text_features(cls: type[Any]) -> Any:
    cache = cls(4)
    cache.cache["prompt"] = torch.randn(2, 4)
    return cache


def speakers(cls: type[Any]) -> Any:
    cache = cls.__new__(cls)
    vars(cache).update(embeds=torch.randn(2, 4, WIDTH), probs=None, num_cache_frames=3, is_compressed=False)
    return cache


#: How the classes are made, by a part of their names.
MAKERS: dict[str, Callable[[type[Any]], Any]] = {
    "xLSTMCache": xlstm,
    "ReformerDynamicCache": reformer,
    "MimiConv1dPaddingCache": mimi,
    "KyutaiSpeechToTextConv1dPaddingCache": mimi,
    "PocketTTSAudioTokenizerConv1dPaddingCache": mimi,
    "PaddingCache": padding_of_layers,
    "CacheLayer": conv_layer,
    "DecoderCache": of_config,
    "InferenceCache": of_vision,
    "LRUCache": text_features,
    "SpeakerCache": speakers,
    "MambaCache": of_states,
    "Mamba2Cache": of_states,
    "DynamicCache": of_states,
    "ConvCache": of_states,
}


def modules_with_caches() -> list[str]:
    """The modules of models whose source defines a class that is called a cache, found without importing any."""
    models = importlib.import_module("transformers.models")
    found = []
    for package in pkgutil.iter_modules(models.__path__):
        for prefix in ("modeling", "generation"):
            name = f"transformers.models.{package.name}.{prefix}_{package.name}"
            path = f"{models.__path__[0]}/{package.name}/{prefix}_{package.name}.py"
            if defines_cache(path):
                found.append(name)
    return found


def defines_cache(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("class ")]
    except FileNotFoundError:
        return False
    return any(line.split("(")[0].rstrip(":\n ").endswith(("Cache", "CacheLayer")) for line in lines)


def state_classes() -> dict[str, type[Any]]:
    classes = {}
    for name in modules_with_caches():
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and value.__module__ == name and holds_states(value):
                classes[f"{name.split('.')[2]}.{value.__name__}"] = value
    return classes


CLASSES = state_classes()


def maker_of(cls: type[Any]) -> Callable[[type[Any]], Any]:
    return next(make for name, make in MAKERS.items() if cls.__name__.endswith(name))


@pytest.fixture(params=CLASSES)
def cache(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    cls = CLASSES[request.param]
    return maker_of(cls)(cls)


def with_batch(cache: Any, batch: int) -> Any:
    """A cache like this one with another batch, its tensors filled with other numbers."""
    leaves, spec = pytree.tree_flatten(cache)

    def other(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
            return leaf
        return torch.ones([batch if size == 2 else size for size in leaf.shape], dtype=leaf.dtype)

    return pytree.tree_unflatten([other(leaf) for leaf in leaves], spec)


def test_there_are_such_classes() -> None:
    assert {"xlstm.xLSTMCache", "reformer.ReformerDynamicCache", "mimi.MimiConv1dPaddingCache"} <= set(CLASSES)


def test_a_round_trip_keeps_every_attribute(cache: Any) -> None:
    with torch_export_patches():
        leaves, spec = pytree.tree_flatten(cache)
        assert all(isinstance(leaf, (torch.Tensor, int)) for leaf in leaves)
        again = pytree.tree_unflatten(leaves, spec)
        assert type(again) is type(cache)
        assert set(vars(again)) == set(vars(cache))
        assert [id(leaf) for leaf in pytree.tree_leaves(again)] == [id(leaf) for leaf in leaves]
        assert pytree.tree_structure(again) == spec
        assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec
        assert pytree.tree_structure(copy.deepcopy(cache)) == spec


def test_every_leaf_has_a_readable_key(cache: Any) -> None:
    with torch_export_patches():
        keys = [path[0].key for path, _ in pytree.tree_flatten_with_path(cache)[0]]
    assert keys
    assert len(set(keys)) == len(keys)
    assert all(not key.startswith("_") for key in keys)


def test_fake_tensors_go_through(cache: Any) -> None:
    with torch_export_patches():
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fake = pytree.tree_map_only(torch.Tensor, mode.from_tensor, cache)
        assert pytree.tree_structure(fake) == pytree.tree_structure(cache)


class AddsOne(torch.nn.Module):
    def forward(self, x: torch.Tensor, cache: Any) -> Any:
        return x + 1, pytree.tree_map(lambda leaf: leaf + 1, cache)


def test_a_program_runs_with_another_batch_and_after_a_save(cache: Any) -> None:
    with torch_export_patches():
        axes = [
            {i: Dim.DYNAMIC for i, size in enumerate(leaf.shape) if size == 2}
            if isinstance(leaf, torch.Tensor)
            else Dim.DYNAMIC
            for leaf in pytree.tree_leaves(cache)
        ]
        inputs = (torch.zeros(2, 3), cache)
        program = torch.export.export(AddsOne(), inputs, dynamic_shapes=({0: Dim.DYNAMIC}, axes), strict=False)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        buffer.seek(0)
        loaded = torch.export.load(buffer).module(check_guards=False)
        other = with_batch(cache, 5)
        for run in (program.module(), loaded):
            _, got = run(torch.zeros(5, 3), other)
            assert type(got) is type(cache)
            for one, before in zip(pytree.tree_leaves(got), pytree.tree_leaves(other), strict=True):
                assert torch.equal(torch.as_tensor(one), torch.as_tensor(before + 1))


def test_a_model_runs_with_its_own_cache_of_another_batch() -> None:
    torch.manual_seed(0)
    config = transformers.xLSTMConfig(
        hidden_size=64, num_heads=2, num_hidden_layers=2, vocab_size=20, chunk_size=8, qk_dim_factor=1.0,
    )  # fmt: skip
    model = transformers.xLSTMForCausalLM(config).eval()
    name = cache_argument(model.forward)  # cache_params up to transformers 5.23

    def inputs(batch: int) -> dict[str, Any]:
        tokens = torch.randint(0, 20, (batch, 4), generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            past = model(tokens, use_cache=True)[name]
        return {"input_ids": tokens[:, :1], name: past, "use_cache": True}

    with torch_export_patches() as prepare, torch.no_grad():
        example = prepare(inputs(2))
        axes = [{0: Dim.DYNAMIC} if isinstance(leaf, torch.Tensor) and leaf.dim() else None
                for leaf in pytree.tree_leaves(example[name])]  # fmt: skip
        shapes = {"input_ids": {0: Dim.DYNAMIC}, name: axes, "use_cache": None}
        program = torch.export.export(model, (), example, dynamic_shapes=shapes, strict=False)
        for batch in (2, 5):
            expected = model(**copy.deepcopy(inputs(batch))).logits
            torch.testing.assert_close(program.module()(**inputs(batch)).logits, expected, rtol=1e-4, atol=1e-5)


def test_the_configuration_of_a_cache_is_the_same_object_and_survives_json() -> None:
    cache = xlstm(CLASSES["xlstm.xLSTMCache"])
    if not hasattr(cache, "config"):
        pytest.skip("the installed transformers keeps no configuration in the cache")
    with torch_export_patches():
        leaves, spec = pytree.tree_flatten(cache)
        assert pytree.tree_unflatten(leaves, spec).config is cache.config
        text, hidden_size = pytree.treespec_dumps(spec), cache.config.hidden_size
        del cache, spec
        assert pytree.tree_unflatten(leaves, pytree.treespec_loads(text)).config.hidden_size == hidden_size


def test_a_class_that_is_imported_inside_the_guard_is_known_too() -> None:
    name = "transformers.models.minimax.modeling_minimax"
    before = sys.modules.pop(name, None)
    try:
        with torch_export_patches():
            module = importlib.import_module(name)
            assert module.MiniMaxCache in pytree.SUPPORTED_NODES
        assert module.MiniMaxCache not in pytree.SUPPORTED_NODES
        assert inspect.getsource(module.MiniMaxCache).startswith("class MiniMaxCache")
    finally:
        if before is not None:
            sys.modules[name] = before
