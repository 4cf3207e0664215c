"""The sets of sizes on which a converted model is compared with the original."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .catalogue import ModelCase

_BEYOND = 4  # tokens of the past that a sliding window no longer sees
_LONG = 21  # tokens beyond the chunks, blocks and windows of small models that have no window by that name
_PADDED = 2  # tokens at the beginning of the first row


@dataclass(frozen=True, kw_only=True)
class InputSet:
    """A name and the sizes of the inputs; and the set to take `instead` where the original itself refuses this one.

    One that `may_be_refused` is left out then.
    """

    name: str
    sizes: Mapping[str, int]
    instead: InputSet | None = None
    may_be_refused: bool = False


def input_sets(case: ModelCase) -> list[InputSet]:
    """The traced sizes, larger ones, batch 1 with one token; for a cache an empty past, and one beyond the window."""
    traced = case.task.sizes
    larger = {name: size + 1 + place for place, (name, size) in enumerate(traced.items())}
    single = {name: 1 if name in ("batch", "seq", "images", "texts") else size for name, size in traced.items()}
    sets = [
        InputSet(name="traced", sizes=traced),
        InputSet(name="other sizes", sizes=larger),
        _single(single, traced),
    ]
    if "past" in traced:
        sets.append(InputSet(name="empty past", sizes={**traced, "past": 0}))
        window = sliding_window(case)
        if window:
            sets.append(InputSet(name="past beyond the window", sizes={**traced, "past": window + _BEYOND}))
    return sets


def all_input_sets(case: ModelCase) -> list[InputSet]:
    """The usual sets, and every combination of small, usual and long sizes; behind a past with and without padding."""
    return [*input_sets(case), *(_combined(sizes) for sizes in _combinations(case))]


def _combined(sizes: Mapping[str, int]) -> InputSet:
    return InputSet(name="combined", sizes=sizes, may_be_refused=True)


def _combinations(case: ModelCase) -> Iterator[dict[str, int]]:
    traced = case.task.sizes
    long = (sliding_window(case) or _LONG - _BEYOND) + _BEYOND
    choices = [_sizes_of(name, size, long) for name, size in traced.items()]
    for values in itertools.product(*choices):
        sizes = dict(zip(traced, values, strict=True))
        yield sizes
        if "past" in sizes and sizes["batch"] > 1 and sizes["past"] + sizes["seq"] > _PADDED:
            yield {**sizes, "padded": _PADDED}


def _sizes_of(name: str, traced: int, long: int) -> tuple[int, ...]:
    if name == "past":
        return (0, 1, traced, long)
    return (1, 2, traced, long) if name in ("seq", "source") else (1, traced)


def _single(sizes: Mapping[str, int], traced: Mapping[str, int]) -> InputSet:
    """Some models have no result for a single token, or squeeze its axis away."""
    if "seq" not in traced:
        return InputSet(name="batch 1", sizes=sizes)
    longer = InputSet(name="batch 1", sizes={**sizes, "seq": traced["seq"]})
    return InputSet(name="batch 1, one token", sizes=sizes, instead=longer)


def sliding_window(case: ModelCase) -> int | None:
    """The number of tokens that some layers of the model look back, if there is such a bound."""
    config = case.model.config.get_text_config()  # type: ignore[operator, union-attr]
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    bounded = kinds is None or any("sliding" in kind for kind in kinds)
    return window if isinstance(window, int) and bounded else _window_of_cache(case)


def _window_of_cache(case: ModelCase) -> int | None:
    """How many tokens a layer of the cache keeps, whatever the configuration calls it, as the chunks of llama4."""
    if case.task.inputs != "decoder":
        return None
    caches = case.inputs(case.task.sizes).values()
    layers = [layer for cache in caches for layer in getattr(cache, "layers", ())]
    windows = [window for layer in layers if isinstance(window := getattr(layer, "sliding_window", None), int)]
    return min(windows, default=None)
