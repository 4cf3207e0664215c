"""What the leaves of a container are called, from its spec alone: a class of it need not be registered any more."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from .errors import REFUSALS


def input_steps(program: ExportedProgram) -> Iterator[tuple[str, ...]]:
    """For each leaf of the inputs the parameter of `forward` and the steps from there; without a record of the
    parameters `arg_0`, `arg_1`, …."""
    arguments, keywords = program.call_spec.in_spec.children()
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    known = list(getattr(signature, "forward_arg_names", None) or ())[: arguments.num_children]
    names = known + [f"arg_{place}" for place in range(len(known), arguments.num_children)]
    for name, spec in (
        *zip(names, arguments.children(), strict=True),
        *zip(keywords.context, keywords.children(), strict=True),
    ):
        yield from ((str(name), *map(str, steps)) for steps in leaf_steps(spec))


def leaf_paths(spec: pytree.TreeSpec) -> Iterator[str]:
    """The path of each leaf, its steps joined by dots."""
    return (".".join(map(str, steps)) for steps in leaf_steps(spec))


def leaf_steps(spec: pytree.TreeSpec) -> Iterator[tuple[Any, ...]]:
    """The steps to each leaf: keys, fields, names or positions."""
    if spec.is_leaf():
        yield ()
        return
    for step, child in zip(_steps(spec), spec.children(), strict=True):
        yield from ((step, *rest) for rest in leaf_steps(child))


def _steps(spec: pytree.TreeSpec) -> Sequence[Any]:
    """What a container calls its items: keys, fields, what the context of a registered class says, or positions."""
    fields = getattr(spec.type, "_fields", None)
    keys = spec.context[1] if spec.type is defaultdict else fields or spec.context
    if isinstance(keys, Mapping):  # the serializers of this package
        keys = keys.get("leaves")
    elif dataclasses.is_dataclass(spec.type) and keys and isinstance(keys[0], list):  # torch.export.register_dataclass
        keys = keys[0]  # the fields with a value; those with None are behind
    is_complete = isinstance(keys, (list, tuple)) and len(keys) == spec.num_children
    if is_complete and all(isinstance(key, (str, int)) for key in keys):
        return list(keys)
    return _registered_keys(spec) or range(spec.num_children)


def _registered_keys(spec: pytree.TreeSpec) -> Sequence[str]:
    """The names that a class was registered with, if they do not depend on what it holds; else none."""
    node = pytree.SUPPORTED_NODES.get(spec.type)
    if node is None or node.flatten_with_keys_fn is None or spec.type in pytree.BUILTIN_TYPES:
        return ()
    try:
        pairs, _ = node.flatten_with_keys_fn(node.unflatten_fn([None] * spec.num_children, spec.context))
    except REFUSALS:  # the class does not take what it does not know
        return ()
    return [str(getattr(key, "key", getattr(key, "idx", key))) for key, _ in pairs]
