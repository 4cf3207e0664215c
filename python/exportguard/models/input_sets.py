"""The sets of sizes on which a converted model is compared with the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .catalogue import ModelCase

_BEYOND = 4  # tokens of the past that a sliding window no longer sees


@dataclass(frozen=True, kw_only=True)
class InputSet:
    """A name and the sizes of the inputs; and the set to take `instead` where the original itself refuses this one."""

    name: str
    sizes: Mapping[str, int]
    instead: InputSet | None = None


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
    return window if isinstance(window, int) and bounded else None
