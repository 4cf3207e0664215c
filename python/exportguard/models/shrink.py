"""Small configurations: any default configuration of transformers made small, its fields still fitting each other."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..optional import OptionalModule
from .sources import source_of_module
from .tables import exceptions, table

if TYPE_CHECKING:
    import transformers
else:
    transformers = OptionalModule("transformers")


_LAYERS = 2  # of a small model that has every kind of layer in as many


def shrunk(
    config: transformers.PretrainedConfig, changes: Mapping[str, Any] | None = None, *, layers: int = _LAYERS
) -> transformers.PretrainedConfig:
    """A new configuration of the same class with few layers, narrow ones, and a small vocabulary.

    `changes` are fields set on top; those of a nested configuration are a dictionary under its name. There are as many
    `layers` unless it names the kind of each of them.

    >>> from transformers import LlamaConfig
    >>> small = shrunk(LlamaConfig(), {"num_hidden_layers": 3})
    >>> small.hidden_size, small.num_attention_heads, small.num_hidden_layers
    (64, 4, 3)
    """
    fields = small_fields(config, _vocabulary(config), layers)
    return type(config)(**_merged(fields, changes or {}))


def shallow(
    config: transformers.PretrainedConfig, changes: Mapping[str, Any] | None = None
) -> transformers.PretrainedConfig:
    """A new configuration of the same class with few layers, as wide as they are, and a small vocabulary.

    For a model whose widths follow from each other in a way that `shrunk` does not know.
    """
    return type(config)(**_merged(_shallow_fields(config, _vocabulary(config)), changes or {}))


def _shallow_fields(config: transformers.PretrainedConfig, vocabulary: int) -> dict[str, Any]:
    own, rules = _own_fields(config), table("shrink")
    kept = {*rules["names_of_depths"], *rules["names_of_vocabularies"]}
    fields = {name: value for name, value in _bounded(own, _LAYERS) if value != own[name] and name in kept}
    fields.update(_small_pictures(own))
    fields.update(_single_layers(own))
    fields.update(_kinds_of_layers(own, fields))
    fields.update(_layers_given_out(own, fields))
    fields.update(_chosen_layers(own, fields))
    fields.update(_token_numbers(own, min(_vocabulary_of(own) or vocabulary, vocabulary)))
    for name in _nested(config):
        nested = getattr(config, name)
        own_type = {"model_type": nested.model_type, **_set_by_outer(nested)}
        fields[name] = {**own_type, **_shallow_fields(nested, vocabulary)}
    return fields


def _small_pictures(own: Mapping[str, Any]) -> dict[str, Any]:
    """Sides of a few patches."""
    side, patch = own.get("image_size"), own.get("patch_size")
    if not isinstance(side, int) or isinstance(side, bool):
        return {}
    return {"image_size": min(side, 8 * patch if isinstance(patch, int) else 128)}


def small_fields(config: transformers.PretrainedConfig, vocabulary: int, layers: int = _LAYERS) -> dict[str, Any]:
    """The fields of `config` that become smaller, by name; nested configurations as dictionaries.

    `vocabulary` bounds the token numbers of a configuration without a vocabulary of its own.
    """
    own = _own_fields(config)
    fields = {name: value for name, value in _bounded(own, layers) if value != own[name]}
    fields.update(_single_layers(own, layers))
    fields.update(_kinds_of_layers(own, fields, layers))
    fields.update(_layers_given_out(own, fields))
    fields.update(_chosen_layers(own, fields))
    fields.update(_heads(own, fields))
    fields.update(_embeddings(own, fields))
    fields.update(_token_numbers(own, min(_vocabulary_of(own) or vocabulary, vocabulary)))
    fields.update(_rope_sections(config, own, fields))
    fields.update(_windows_of_pixels(own, fields))
    for name in _nested(config):
        fields[name] = _nested_fields(getattr(config, name), vocabulary, layers)
    fields.update(_resolutions(config, fields))
    return fields


def _nested_fields(config: transformers.PretrainedConfig, vocabulary: int, layers: int) -> dict[str, Any]:
    if config.model_type == "timm_backbone" and importlib.util.find_spec("timm") is None:
        return _own_backbone(config)
    fields = {"model_type": config.model_type, **_set_by_outer(config), **small_fields(config, vocabulary, layers)}
    return _merged(fields, exceptions().get(config.model_type, {}))


def _own_backbone(config: transformers.PretrainedConfig) -> dict[str, Any]:
    """A small residual network of transformers, with the same stages used, where that of another package is missing."""
    stages = [f"stage{number}" for number in config.out_indices or [] if 0 < number <= 4] or ["stage4"]
    widths = {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 96], "depths": [1, 1, 1, 1]}
    return {"model_type": "resnet", "out_features": stages, **widths}


def _set_by_outer(config: transformers.PretrainedConfig) -> dict[str, Any]:
    """What the outer configuration chose for a nested one: that it is a decoder, which of its stages are used, …"""
    own, default = _own_fields(config), _own_fields(type(config)())
    return {
        name: value
        for name, value in own.items()
        if value != default.get(name) and value is not None and isinstance(value, (bool, int, float, str, list))
        if name != "stage_names"  # which follow from the depth
    }


def _own_fields(config: transformers.PretrainedConfig) -> dict[str, Any]:
    """What the constructor can be given; a field that is set later would come back as an unknown argument."""
    own = dict(config.to_dict())
    return {name: value for name, value in own.items() if not isinstance(value, dict) or name == "rope_parameters"}


def _nested(config: transformers.PretrainedConfig) -> Iterator[str]:
    # Not getattr: it raises for what differs from layer to layer.
    return (name for name, value in vars(config).items() if isinstance(value, transformers.PretrainedConfig))


def _bounded(own: Mapping[str, Any], layers: int) -> Iterator[tuple[str, Any]]:
    """Widths of a network in stages follow from each other in ways of its own: those stay."""
    rules = table("shrink")
    staged = any(isinstance(own.get(name), (list, tuple)) for name in rules["lists_of_stages"])
    for name, bound in rules["at_most_if_staged" if staged else "at_most"].items():
        value = own.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            yield name, min(value, layers if name in rules["names_of_depths"] else bound)


def _single_layers(own: Mapping[str, Any], layers: int = _LAYERS) -> dict[str, Any]:
    """Stages of several layers each become stages of one, or of one less than there are `layers` elsewhere."""
    names = [name for name in table("shrink")["single_layers"] if isinstance(own.get(name), (list, tuple))]
    return {name: [min(count, layers - 1) for count in own[name]] for name in names}


def _kinds_of_layers(own: Mapping[str, Any], fields: Mapping[str, Any], layers: int = _LAYERS) -> dict[str, Any]:
    """Layers of each kind that the default has, one behind the other, and at least `layers` in all; every list of kinds
    has that length.

    Layers at the end that take keys and values of earlier ones come behind one of each kind that keeps its own.
    """
    rules = table("shrink")
    lists = {name: own[name] for name in rules["names_of_kinds_of_layers"] if isinstance(own.get(name), list)}
    lists = {name: kinds for name, kinds in lists.items() if kinds and all(isinstance(kind, str) for kind in kinds)}
    if not lists:
        return {}
    length = len(next(iter(lists.values())))
    switches = {name: own[name] for name in rules["names_of_switches_of_layers"] if isinstance(own.get(name), list)}
    lists |= {name: switch for name, switch in switches.items() if len(switch) == length}
    rows = list(dict.fromkeys(zip(*lists.values(), strict=False)))
    rows = [row for row in rows for _ in range(math.ceil(layers / len(rows)))]
    sharing = {"num_kv_shared_layers": len(rows)} if own.get("num_kv_shared_layers") else {}
    rows = rows * 2 if sharing else rows
    counts = {name: len(rows) for name in rules["names_of_layer_counts"] if name in fields or name in own}
    return {**{name: [row[i] for row in rows] for i, name in enumerate(lists)}, **counts, **sharing}


def _layers_given_out(own: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """As many layers give out their features as did, each a layer of its own, the last one if it was among them.

    What comes behind has a part for each of them. The small network is as deep as that takes.
    """
    rules = table("shrink")
    depths = [name for name in rules["names_of_depths"] if isinstance(own.get(name), int)]
    lists = {name: own[name] for name in rules["names_of_layers_given_out"] if isinstance(own.get(name), (list, tuple))}
    lists = {name: chosen for name, chosen in lists.items() if len(chosen) > 1 and min(chosen) >= 0}
    if not depths or not lists or len({len(set(chosen)) for chosen in lists.values()}) > 1:
        return {}
    found: dict[str, Any] = {"out_features": None} if own.get("out_features") and "out_indices" in lists else {}
    for name, chosen in lists.items():
        first = rules["names_of_layers_given_out"][name]
        ends_last = max(chosen) == own[depths[0]] - 1 + first
        depth = max(len(set(chosen)) + (not ends_last), fields.get(depths[0], own[depths[0]]))
        places = {layer: place for place, layer in enumerate(sorted(set(chosen)))}
        start = depth - len(places) - (not ends_last) + first
        found |= {name: [start + places[layer] for layer in chosen], **dict.fromkeys(depths, depth)}
    return found


def _chosen_layers(own: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of the numbers of some layers name about the same share of those that are left, but not all of them."""
    rules = table("shrink")
    counts = [(own[name], fields.get(name, own[name])) for name in rules["names_of_depths"] if own.get(name)]
    before, after = next((both for both in counts if all(isinstance(count, int) for count in both)), (0, 0))
    lists = {name: own[name] for name in rules["names_of_chosen_layers"] if isinstance(own.get(name), (list, tuple))}
    return {name: _share(chosen, before, after) for name, chosen in lists.items() if chosen and after < before}


def _share(chosen: Sequence[int], before: int, after: int) -> list[int]:
    found = sorted({number * after // before for number in chosen})
    return found if len(found) < after or len(chosen) == before else found[1:]


def _heads(own: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Heads and their sizes are equal where the default has them so; a head size where the default leaves it out."""
    small = {**own, **fields}
    heads, keys = own.get("num_attention_heads"), own.get("num_key_value_heads")
    result: dict[str, Any] = {}
    if isinstance(keys, int) and keys == heads:
        result["num_key_value_heads"] = small["num_attention_heads"]
    if "head_dim" in own and own["head_dim"] is None and heads and small.get("hidden_size"):
        result["head_dim"] = small["hidden_size"] // small["num_attention_heads"]
    if own.get("head_dim") and own["head_dim"] == own.get("qk_head_dim"):
        result["head_dim"] = small["qk_head_dim"]
    return result


def _embeddings(own: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """An embedding that is projected to the width of the layers has another width."""
    small = {**own, **fields}
    before, after = ((sizes.get("embedding_size"), sizes.get("hidden_size")) for sizes in (own, small))
    width = after[0]
    if not isinstance(width, int) or before[0] == before[1] or after[0] != after[1]:
        return {}
    return {"embedding_size": width // 2}


def _token_numbers(own: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Numbers of special tokens beyond the vocabulary move to its end, each to a place of its own."""
    names = sorted(
        name
        for name, value in own.items()
        if (name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value >= vocabulary)
    )
    places = {value: vocabulary - 1 - i for i, value in enumerate(sorted({own[name] for name in names}))}
    result: dict[str, Any] = {name: places[own[name]] for name in names}
    if isinstance(own.get("eos_token_id"), list):
        result["eos_token_id"] = vocabulary - 1
    return result


def _rope_sections(
    config: transformers.PretrainedConfig, own: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The parts of a rotary embedding over several position axes add up to half of the head."""
    rope = own.get("rope_parameters")
    if not isinstance(rope, dict) or not rope:  # one that is left out may be one for each kind of layer
        return {}
    sections = rope.get("mrope_section") or _sections_in_code(config)
    if not sections:
        return {}
    small = {**own, **fields}
    if not small.get("head_dim") and "num_attention_heads" not in small:
        return {}
    head = small.get("head_dim") or small["hidden_size"] // small["num_attention_heads"]
    half = int(head * rope.get("partial_rotary_factor", 1.0)) // 2
    parts = [half * section // sum(sections) for section in sections]
    parts[0] += half - sum(parts)
    return {"rope_parameters": {**rope, "mrope_section": parts}}


def _sections_in_code(config: transformers.PretrainedConfig) -> list[int]:
    """What the model falls back on where its configuration does not say."""
    source = source_of_module(type(config).__module__.replace("configuration_", "modeling_"))
    found = re.search(r"\.get\(\"mrope_section\", \[([\d, ]+)\]\)", source)
    return [int(size) for size in found[1].split(",")] if found else []


def _windows_of_pixels(own: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A window that is counted in pixels holds two blocks of patches in each direction."""
    small = {**own, **fields}
    block = small.get("patch_size", 0) * small.get("spatial_merge_size", 0) if "spatial_merge_size" in own else 0
    return {"window_size": 2 * block} if block and isinstance(own.get("window_size"), int) else {}


def _resolutions(config: transformers.PretrainedConfig, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Heights and widths that pictures are cut to, as many tiles of the small size as there were of the default one."""
    vision = fields.get("vision_config", {})
    pinpoints = getattr(config, "image_grid_pinpoints", None)
    if not pinpoints or "image_size" not in vision:
        return {}
    before = config.vision_config.image_size
    return {"image_grid_pinpoints": [[side // before * vision["image_size"] for side in pair] for pair in pinpoints]}


def _vocabulary_of(own: Mapping[str, Any]) -> int | None:
    rules = table("shrink")
    sizes = [own[name] for name in rules["names_of_vocabularies"] if isinstance(own.get(name), int)]
    return min([*sizes, rules["at_most"]["vocab_size"]]) if sizes else None


def _vocabulary(config: transformers.PretrainedConfig) -> int:
    """The vocabulary of the configuration or of the text part in it."""
    own = _vocabulary_of(_own_fields(config))
    nested = [_vocabulary_of(_own_fields(getattr(config, name))) for name in _nested(config)]
    sizes = [size for size in [own, *nested] if size is not None and size > 1]
    return sizes[0] if sizes else int(table("shrink")["at_most"]["vocab_size"])


def _merged(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(fields)
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = _merged(result[name], value) if both else value
    return result
