"""Dynamic shapes of a `forward` that collects keyword arguments: torch counts those twice when it bounds the axes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import Patch, not_needed

_TARGET = "torch.export._trace._get_range_constraints"


def _with_parameters(signature: inspect.Signature, collector: str, names: Mapping[str, Any]) -> Callable[..., None]:
    """A function that names the arguments which `collector` collects."""

    def stand_in(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("it only has a signature")

    named = [parameter for name, parameter in signature.parameters.items() if name != collector]
    collected = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    stand_in.__signature__ = signature.replace(parameters=[*named, *collected])  # type: ignore[attr-defined]
    return stand_in


def with_own_shapes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The bounds of the axes, each collected argument and its shape beside the others, where torch looks for it."""

    @functools.wraps(original)
    def get_range_constraints(mod: Any, artifact: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Any:
        signature = inspect.signature(mod.forward)
        kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
        collector = kinds.get(inspect.Parameter.VAR_KEYWORD, "")
        collected = signature.bind(*args, **kwargs).arguments.get(collector)
        if not collected or not isinstance(dynamic_shapes, dict) or collector not in dynamic_shapes:
            return original(mod, artifact, args, kwargs, dynamic_shapes)
        stand_in = _with_parameters(signature, collector, collected)
        others = {name: spec for name, spec in dynamic_shapes.items() if name != collector}
        flat = others | (dynamic_shapes[collector] or dict.fromkeys(collected))
        return original(stand_in, artifact, args, kwargs, flat)

    return get_range_constraints


PATCHES = (
    Patch(
        name="shapes of collected arguments",
        kind="torch",
        target=_TARGET,
        reason="dynamic shapes of a forward with **kwargs end in an AssertionError after the trace",
        upstream="https://github.com/pytorch/pytorch/issues/150022",
        probe=expecting(
            Expected(path=_TARGET, has=("combined_args_traced_order[key] = kwargs[key]",)),
            otherwise=not_needed("torch tells collected arguments from named ones"),
        ),
        replace=with_own_shapes,
    ),
)
