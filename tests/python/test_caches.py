"""Serializers of caches: what comes back is what went in, and programs run with caches of any length."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim
from transformers import DynamicCache, EncoderDecoderCache, QuantizedCache, StaticCache, cache_utils
from transformers import LlamaConfig as Config

from exportguard import GuardError, InvalidArgumentError, torch_export_patches
from exportguard.caches.build import (
    make_dynamic_cache,
    make_encoder_decoder_cache,
    make_hybrid_cache,
    make_sliding_window_cache,
    make_static_cache,
)
from exportguard.guard import register_class_serialization, unregister_class_serialization

WINDOW = 6
DYNAMIC = Dim.DYNAMIC


def pairs(length: int = 3, layers: int = 2, batch: int = 2) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(length)

    def one() -> torch.Tensor:
        return torch.randn(batch, 2, length, 4, generator=generator)

    return [(one(), one()) for _ in range(layers)]


class Subclass(DynamicCache):
    """A cache of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.note = "mine"


def subclass() -> Subclass:
    cache = Subclass()
    for i, (key, value) in enumerate(pairs()):
        cache.update(key, value, i)
    return cache


def filled(layer: Any, length: int = 3) -> Any:
    """A layer with all that it can hold: keys and values, states, indexer keys."""
    key, value = pairs(length, layers=1)[0]
    if isinstance(layer, cache_utils.CacheLayerMixin):
        layer.update(key, value)
    if hasattr(layer, "update_conv_state"):
        layer.update_conv_state(torch.randn(2, 8, 4))
        layer.update_recurrent_state(torch.randn(2, 4, 4))
    if hasattr(layer, "update_indexer"):
        layer.update_indexer(torch.randn(2, length, 4))
    return layer


def cache_of(*layers: Any) -> DynamicCache:
    cache = DynamicCache()
    cache.layers = list(layers)
    return cache


#: How to make each class of layer that the installed transformers has.
LAYER_ARGUMENTS: dict[str, dict[str, Any]] = {
    "DummyLayer": {},
    "DynamicIndexedLayer": {},
    "DynamicLayer": {},
    "DynamicSlidingWindowLayer": {"sliding_window": WINDOW},
    "Fp8QuantizedLayer": {},
    "HQQQuantizedLayer": {"q_group_size": 8},
    "LinearAttentionAndFullAttentionLayer": {},
    "LinearAttentionAndSlidingWindowAttentionLayer": {"sliding_window": WINDOW},
    "LinearAttentionAndStaticFullAttentionLayer": {"max_cache_len": 8},
    "LinearAttentionAndStaticSlidingWindowAttentionLayer": {"max_cache_len": 8, "sliding_window": WINDOW},
    "LinearAttentionLayer": {},
    "ChunkedSlidingLayer": {"max_cache_len": 8, "sliding_window": WINDOW},
    "SlidingWindowLayer": {"max_cache_len": 8, "sliding_window": WINDOW},
    "QuantoQuantizedLayer": {"q_group_size": 8},
    "StaticIndexedLayer": {"max_cache_len": 8},
    "StaticLayer": {"max_cache_len": 8},
    "StaticSlidingWindowLayer": {"max_cache_len": 8, "sliding_window": WINDOW},
}
#: Classes that others derive from, and those that need another package.
ABSTRACT_LAYERS = {"BaseQuantizedLayer", "CacheLayerMixin", "LinearAttentionCacheLayerMixin", "QuantizedLayer"}
OTHER_PACKAGES = {"HQQQuantizedLayer": "hqq", "QuantoQuantizedLayer": "optimum.quanto"}


def is_layer(value: Any) -> bool:
    return isinstance(value, type) and value.__module__ == cache_utils.__name__ and hasattr(value, "reorder_cache")


def missing_layers() -> list[str]:
    return [name for name, package in OTHER_PACKAGES.items() if find_spec(package.partition(".")[0]) is None]


LAYERS = {
    name: value
    for name, value in vars(cache_utils).items()
    if is_layer(value)
    and not issubclass(value, cache_utils.Cache)
    and name not in {*ABSTRACT_LAYERS, *missing_layers()}
}


def layer_of(name: str, length: int = 3) -> Any:
    return filled(getattr(cache_utils, name)(**LAYER_ARGUMENTS[name]), length)


def partly_empty() -> DynamicCache:
    empty = [cache_utils.DynamicLayer(), cache_utils.DynamicSlidingWindowLayer(WINDOW)]
    return cache_of(layer_of("DynamicSlidingWindowLayer"), *empty)


def quantized() -> QuantizedCache:
    config = Config(num_hidden_layers=2, hidden_size=8, num_attention_heads=2)
    cache = QuantizedCache("fp8", config)
    for i, (key, value) in enumerate(pairs()):
        cache.update(key, value, i)
    return cache


CACHES = {
    "dynamic": lambda: make_dynamic_cache(pairs()),
    "without layers": DynamicCache,
    "sliding within the window": lambda: make_sliding_window_cache(pairs(), window=WINDOW),
    "sliding beyond the window": lambda: make_sliding_window_cache(pairs(9), window=WINDOW),
    "sliding and full": lambda: make_hybrid_cache(
        pairs(9), layer_types=["sliding_attention", "full_attention"], window=WINDOW
    ),
    "partly empty": partly_empty,
    "static": lambda: make_static_cache(pairs(), max_cache_len=8),
    "static and sliding": lambda: make_static_cache(
        pairs(7), max_cache_len=8, window=WINDOW, layer_types=["sliding_attention", "full_attention"]
    ),
    "quantized": quantized,
    "subclass": subclass,
    "encoder and decoder": lambda: make_encoder_decoder_cache(
        make_dynamic_cache(pairs()), make_dynamic_cache(pairs(5))
    ),
    **{f"only {name}": functools.partial(lambda name: cache_of(layer_of(name)), name) for name in LAYERS},
}
if "Fp8QuantizedLayer" not in LAYERS:  # transformers 4 can quantize with other packages alone
    del CACHES["quantized"]


def test_every_layer_of_transformers_is_among_the_caches() -> None:
    assert set(LAYERS) <= set(LAYER_ARGUMENTS)


@pytest.fixture(autouse=True)
def guard() -> Iterator[Any]:
    with torch_export_patches() as opened:
        yield opened


@pytest.fixture(params=list(CACHES), ids=lambda name: name.replace(" ", "_"))
def cache(request: pytest.FixtureRequest) -> Any:
    return CACHES[request.param]()


def assert_same(first: Any, second: Any) -> None:
    """The same objects in the same places, tensors compared by identity."""
    assert type(first) is type(second)
    if isinstance(first, cache_utils.Cache) or is_layer(type(first)) or type(first).__module__.startswith("optimum."):
        first, second = vars(first), vars(second)
    if isinstance(first, dict):
        assert set(first) == set(second)
        for name in first:
            if name == "_sliding_window_tensor":
                assert torch.equal(first[name], second[name])
            else:
                assert_same(first[name], second[name])
    elif isinstance(first, (list, tuple)):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif isinstance(first, torch.Tensor):
        assert first is second
    else:
        assert first == second


def test_a_round_trip_gives_an_equal_cache_of_the_same_tensors(cache: Any) -> None:
    leaves, spec = pytree.tree_flatten(cache)
    assert_same(pytree.tree_unflatten(leaves, spec), cache)


def test_the_kind_survives_json(cache: Any) -> None:
    spec = pytree.tree_structure(cache)
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_every_leaf_has_a_key(cache: Any) -> None:
    leaves = pytree.tree_leaves(cache)
    with_keys, _ = pytree.tree_flatten_with_path(cache)
    assert [id(leaf) for _, leaf in with_keys] == [id(leaf) for leaf in leaves]
    assert len({pytree.keystr(path) for path, _ in with_keys}) == len(leaves)


# The tensors of quanto cannot be copied.
@pytest.mark.parametrize("name", [name for name in CACHES if "Quanto" not in name])
def test_a_deep_copy_has_the_same_structure(name: str) -> None:
    cache = CACHES[name]()
    assert pytree.tree_structure(copy.deepcopy(cache)) == pytree.tree_structure(cache)


def test_fake_tensors_go_through(cache: Any) -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = pytree.tree_map_only(torch.Tensor, mode.from_tensor, cache)
    assert pytree.tree_structure(fake) == pytree.tree_structure(cache)


def test_leaves_may_be_anything(cache: Any) -> None:
    spec = pytree.tree_structure(cache)
    for leaf in (None, "x", object(), (1, 2)):
        pytree.tree_unflatten([leaf] * spec.num_leaves, spec)


def names(tree: Any) -> list[str]:
    return [".".join(str(entry.key) for entry in path) for path, _ in pytree.tree_flatten_with_path(tree)[0]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dynamic", "0.key 0.value 1.key 1.value"),
        ("sliding within the window", "0.key 0.value 1.key 1.value length"),
        ("sliding and full", "0.key 0.value 1.key 1.value"),
        ("only LinearAttentionLayer", "0.conv_states.0 0.recurrent_states.0"),
        ("only DynamicIndexedLayer", "0.key 0.value 0.indexer_keys"),
        ("encoder and decoder", "self.0.key self.0.value self.1.key self.1.value cross.0.key cross.0.value cross.1.key"
         " cross.1.value"),
        ("quantized", "0.key 0.value 0.quantized_key.0 0.quantized_key.1 0.quantized_value.0 0.quantized_value.1 1.key"
         " 1.value 1.quantized_key.0 1.quantized_key.1 1.quantized_value.0 1.quantized_value.1 length"),
    ],
)  # fmt: skip
def test_leaves_are_named_after_layer_and_part(name: str, expected: str) -> None:
    if name not in CACHES:
        pytest.skip(f"the installed transformers has no cache that is {name}")
    assert names(CACHES[name]()) == expected.split()


def test_the_structure_does_not_depend_on_batch_or_length() -> None:
    for make in (make_dynamic_cache, lambda p: make_sliding_window_cache(p, window=WINDOW)):
        assert pytree.tree_structure(make(pairs(3))) == pytree.tree_structure(make(pairs(9, batch=1)))


def test_the_structure_tells_layer_kinds_apart() -> None:
    first = make_sliding_window_cache(pairs(), window=WINDOW)
    assert pytree.tree_structure(first) != pytree.tree_structure(make_sliding_window_cache(pairs(), window=WINDOW + 1))
    assert pytree.tree_structure(first) != pytree.tree_structure(make_dynamic_cache(pairs()))


def test_counters_that_differ_have_a_leaf_each() -> None:
    cache = make_sliding_window_cache(pairs(), window=WINDOW)
    cache.layers[1].update(*pairs(1)[0])
    assert names(cache)[-2:] == ["0.length", "1.length"]
    leaves, spec = pytree.tree_flatten(cache)
    assert [layer.cumulative_length for layer in pytree.tree_unflatten(leaves, spec).layers] == [3, 4]


def test_what_cannot_be_serialized_is_named() -> None:
    cache = make_dynamic_cache(pairs())
    cache.layers[1].lock = object()
    with pytest.raises(GuardError, match=r"1\.lock is a object, which cannot be serialized; register the class"):
        pytree.tree_flatten(cache)


def no_tokens(key: torch.Tensor) -> Any:
    """What the installed transformers takes for the new tokens: their number, or their positions."""
    takes_number = "query_length" in inspect.signature(cache_utils.DynamicLayer.get_mask_sizes).parameters
    return key.shape[2] * 0 if takes_number else torch.arange(0)


class Step(torch.nn.Module):
    """Appends to each layer, and returns what an attention and its mask would see."""

    def forward(self, key: torch.Tensor, cache: Any) -> Any:
        states = [cache.update(key, key * 2, i) for i in range(len(cache.layers))]
        length, offset = cache.get_mask_sizes(no_tokens(key), 0)
        positions = torch.arange(length) + offset
        return states, positions, cache.get_seq_length() + torch.zeros(1, dtype=torch.int64), cache


def step_inputs(name: str, length: int, batch: int, new: int) -> tuple[torch.Tensor, Any]:
    make = {
        "dynamic": make_dynamic_cache,
        "sliding": lambda p: make_sliding_window_cache(p, window=WINDOW),
        "mixed": lambda p: make_hybrid_cache(p, layer_types=["sliding_attention", "full_attention"], window=WINDOW),
    }[name]
    return torch.randn(batch, 2, new, 4), make(pairs(length, batch=batch))


def export_step(name: str) -> torch.export.ExportedProgram:
    inputs = step_inputs(name, 3, 2, 2)
    shapes = [
        {0: DYNAMIC, 2: DYNAMIC} if isinstance(leaf, torch.Tensor) else DYNAMIC for leaf in pytree.tree_leaves(inputs)
    ]
    return torch.export.export(Step(), inputs, dynamic_shapes=(shapes[0], shapes[1:]), strict=False)


@pytest.mark.parametrize("name", ["dynamic", "sliding", "mixed"])
def test_a_program_exported_at_one_length_runs_at_any_other(name: str) -> None:
    run = export_step(name).module()
    for length, batch, new in [(3, 2, 2), (2, 3, 4), (4, 2, 3), (5, 2, 2), (9, 2, 2), (20, 5, 7)]:
        inputs = step_inputs(name, length, batch, new)
        expected = pytree.tree_leaves(Step()(*copy.deepcopy(inputs)))
        for got, wanted in zip(pytree.tree_leaves(run(*inputs)), expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted))


def hqq_inputs(length: int, new: int) -> tuple[torch.Tensor, Any]:
    layer = layer_of("HQQQuantizedLayer", length)
    layer.update(*pairs(2, layers=1)[0])  # those beside the quantized ones
    return torch.randn(2, 2, new, 4), cache_of(layer)


@pytest.mark.parametrize("name", [name for name in LAYERS if name == "HQQQuantizedLayer"])
def test_a_cache_quantized_by_another_package_runs_at_any_length(name: str) -> None:
    inputs = hqq_inputs(6, 3)
    assert "0.quantized_key.1.shape.2" in names(inputs[1])
    sizes = [
        dict.fromkeys(range(leaf.dim()), Dim.AUTO) if isinstance(leaf, torch.Tensor) else DYNAMIC
        for leaf in pytree.tree_leaves(inputs)
    ]
    program = torch.export.export(Step(), inputs, dynamic_shapes=(sizes[0], sizes[1:]), strict=False)
    for length, new in [(6, 3), (10, 2), (24, 5)]:
        inputs = hqq_inputs(length, new)
        expected = pytree.tree_leaves(Step()(*copy.deepcopy(inputs)))
        for got, wanted in zip(pytree.tree_leaves(program.module()(*inputs)), expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted))


def test_nothing_is_computed_to_rebuild_a_cache() -> None:
    program = export_step("dynamic")
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert sum(target == "aten.cat.default" for target in targets) == 4  # one for each key and value: the update


def test_the_inputs_of_a_program_are_named_after_the_leaves() -> None:
    names_of_inputs = export_step("sliding").graph_signature.user_inputs
    assert names_of_inputs[1:] == ("cache_0_key", "cache_0_value", "cache_1_key", "cache_1_value", "cache_length")


@pytest.mark.parametrize("name", ["dynamic", "sliding", "mixed"])
def test_a_program_survives_save_and_load(name: str) -> None:
    buffer = io.BytesIO()
    torch.export.save(export_step(name), buffer)
    buffer.seek(0)
    inputs = step_inputs(name, 4, 3, 1)
    got = torch.export.load(buffer).module(check_guards=False)(*inputs)
    expected = Step()(*copy.deepcopy(inputs))
    torch.testing.assert_close(got[0][1][0], expected[0][1][0])
    assert type(got[3]) is DynamicCache


def test_a_static_cache_is_exported() -> None:
    class Static(torch.nn.Module):
        def forward(self, key: torch.Tensor, cache: Any) -> Any:
            return cache.update(key, key, 0), cache

    cache = make_static_cache(pairs(layers=1), max_cache_len=8)
    key = torch.randn(2, 2, 3, 4)
    shapes = ({2: DYNAMIC}, [None] * len(pytree.tree_leaves(cache)))
    program = torch.export.export(Static(), (key, cache), dynamic_shapes=shapes, strict=False)
    other = make_static_cache(pairs(5, layers=1), max_cache_len=8)
    more = torch.randn(2, 2, 2, 4)
    got, _ = program.module()(more, copy.deepcopy(other))
    torch.testing.assert_close(got[0], other.update(more, more, 0)[0])


class Box:
    def __init__(self, left: torch.Tensor, right: torch.Tensor, name: str) -> None:
        self.left, self.right, self.name = left, right, name


def test_a_class_of_the_users_is_registered_and_unregistered() -> None:
    register_class_serialization(
        Box,
        lambda box: ([box.left, box.right], box.name),
        lambda leaves, name: Box(*leaves, name),
        keys=lambda box: ["left", "right"],
    )
    box = Box(torch.zeros(1), torch.ones(1), "b")
    assert [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(box)[0]] == ["['left']", "['right']"]
    assert pytree.tree_map(lambda leaf: leaf + 1, box).right.item() == 2
    with pytest.raises(GuardError, match="is registered already; call unregister_class_serialization first"):
        register_class_serialization(Box, lambda box: ([], None), lambda leaves, name: None)
    unregister_class_serialization(Box)
    assert Box not in pytree.SUPPORTED_NODES
    with pytest.raises(GuardError, match="was not registered with register_class_serialization"):
        unregister_class_serialization(Box)


def test_the_users_registration_of_a_cache_class_is_kept() -> None:
    class Mine(DynamicCache):
        pass

    register_class_serialization(Mine, lambda cache: ([], None), lambda leaves, context: Mine())
    node = pytree.SUPPORTED_NODES[Mine]
    try:
        # Outside of the fixture's guard a subclass is registered by the next guard that opens.
        with torch_export_patches():
            assert pytree.SUPPORTED_NODES[Mine] is node
    finally:
        unregister_class_serialization(Mine)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_dynamic_cache([(torch.zeros(1, 2, 3, 4),)]), "layer 0 of key_values must be a pair"),
        (lambda: make_dynamic_cache([(torch.zeros(2, 3), torch.zeros(2, 3))]), "must have shape .batch, heads, length"),
        (lambda: make_sliding_window_cache(pairs(), window=1), "window must be an integer of at least 2, got 1"),
        (lambda: make_static_cache(pairs(9), max_cache_len=8), "at least the length of the keys, 9, got 8"),
        (lambda: make_hybrid_cache(pairs(), layer_types=["x", "y"], window=4), "got x, y"),
    ],
)
def test_wrong_arguments_are_told(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make()


def test_contexts_are_plain_json() -> None:
    for make in CACHES.values():
        _, context = pytree.SUPPORTED_NODES[type(make())].flatten_fn(make())
        assert json.loads(json.dumps(context)) == context


def test_the_builders_make_the_classes_of_transformers() -> None:
    assert type(make_static_cache(pairs(), max_cache_len=8)) is StaticCache
    assert type(make_encoder_decoder_cache(DynamicCache(), DynamicCache())) is EncoderDecoderCache
