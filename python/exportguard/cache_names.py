"""What models call the cache of a decoder, and its names in files and reports: one scheme for every kind of cache."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

PAST, PRESENT = "past_key_values", "present"

#: What models call the cache of a decoder, and the states that a recurrent one keeps instead; from transformers 5.24 on
#: each is a `cache`.
_CACHES = (PAST, "cache_params", "cache")

#: What a layer keeps, by its number and a name: `cache.0.key`. A `cache` of other things is one of the model's own.
_OF_A_LAYER = re.compile(r"cache\.(self\.|cross\.)?\d+\.[a-z].*")


def cache_argument(function: Callable[..., Any]) -> str | None:
    """What a forward calls the argument that holds keys and values of past tokens, or states; None if it has none.

    >>> cache_argument(lambda input_ids, past_key_values=None: None), cache_argument(lambda input_ids: None)
    ('past_key_values', None)
    """
    parameters = inspect.signature(function).parameters
    return next((name for name in _CACHES if name in parameters), None)


def cache_in(model: Any, outputs: Any) -> Any:
    """The cache among the outputs of a model, which are called as its arguments are; None if there is none."""
    return outputs.get(cache_argument(model.forward) or PAST)


def by_its_names(given: Mapping[str, Any], parameters: Collection[str]) -> dict[str, Any]:
    """What is given by argument: a cache under the name that the function has for one.

    transformers takes the older names too, up to 5.39, but as arguments that the signature does not tell of.

    >>> by_its_names({"input_ids": 1, "past_key_values": 2}, ["input_ids", "cache"])
    {'input_ids': 1, 'cache': 2}
    """
    known = [name for name in _CACHES if name in parameters and name not in given]
    foreign = [name for name in _CACHES if name in given and name not in parameters]
    if len(known) != 1 or len(foreign) != 1:
        return dict(given)
    return {known[0] if name == foreign[0] else name: value for name, value in given.items()}


def input_name(path: str) -> str:
    """What a leaf of the inputs is called in a file and in reports: a cache is `past_key_values`, whatever its kind.

    >>> input_name("cache_params.0.conv_states"), input_name("cache.0.conv_states.0"), input_name("cache.mean")
    ('past_key_values.0.conv_states', 'past_key_values.0.conv_states.0', 'cache.mean')
    """
    return _with_cache_as(PAST, path)


def output_name(path: str) -> str:
    """The same for the outputs, where a cache is `present`.

    >>> output_name("past_key_values.self.0.key"), output_name("cache.0.key"), output_name("logits")
    ('present.self.0.key', 'present.0.key', 'logits')
    """
    return _with_cache_as(PRESENT, path)


def _with_cache_as(name: str, path: str) -> str:
    first, dot, rest = path.partition(".")
    is_cache = first in _CACHES and (first != "cache" or _OF_A_LAYER.fullmatch(path))
    return f"{name}{dot}{rest}" if is_cache else path
