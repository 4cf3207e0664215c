"""Names that a user can read for the inputs, outputs and dimensions of an exported program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from .axis_report import exported_inputs
from .dynamic_shapes import graph_name
from .errors import REFUSALS
from .inputs import input_name, output_name


@dataclass(frozen=True, kw_only=True)
class ProgramNames:
    """Names of the user's inputs and outputs in flat order, constants and None included, and of torch's symbols."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dims: Mapping[str, str]


def program_names(program: ExportedProgram, user_dims: Mapping[str, str] | None = None) -> ProgramNames:
    """The names under which a program is converted.

    Inputs and outputs are named by their path: `input_ids`, `past_key_values.0.key`. What a tuple returns is
    `output_0`, `output_1`, …. A cache, of whatever kind and whether or not there is one among the inputs, is
    `past_key_values.…` there and `present.…` among the outputs; another output with the name of an input gets the
    suffix `_out`. `user_dims` names some of the program's symbols; the others are called after the first input axis
    that they stand for.
    """
    inputs = _input_names(program)
    return ProgramNames(
        inputs=inputs,
        outputs=_output_names(program.call_spec.out_spec, inputs),
        dims=dimension_names(inputs, exported_inputs(program), user_dims or {}),
    )


def _input_names(program: ExportedProgram) -> tuple[str, ...]:
    arguments, keywords = program.call_spec.in_spec.children()
    positional = _positional_names(program, arguments.num_children)
    named = zip(positional, arguments.children(), strict=True)
    named_keywords = zip(map(str, keywords.context), keywords.children(), strict=True)
    return tuple(input_name(path) for first, spec in [*named, *named_keywords] for path in _paths(spec, first))


def _positional_names(program: ExportedProgram, count: int) -> list[str]:
    """Parameter names of `forward`; without a record of them, their position."""
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    names = list(getattr(signature, "forward_arg_names", None) or ())[:count]
    return names + [f"arg_{i}" for i in range(len(names), count)]


def _output_names(spec: pytree.TreeSpec, inputs: Sequence[str]) -> tuple[str, ...]:
    of_inputs = frozenset(inputs)
    taken = set(inputs)
    names = []
    for path in _paths(spec, ""):
        name = _free_name(_beside_inputs(_output_name(path), of_inputs), taken)
        taken.add(name)
        names.append(name)
    return tuple(names)


def _output_name(path: str) -> str:
    if not path:
        return "output_0"
    return f"output_{path}" if path[0].isdigit() else path


def _beside_inputs(path: str, inputs: Set[str]) -> str:
    name = output_name(path)
    return f"{name}_out" if name in inputs else name


def _free_name(name: str, taken: set[str]) -> str:
    candidates = (name if i == 0 else f"{name}_{i}" for i in range(len(taken) + 1))
    return next(candidate for candidate in candidates if candidate not in taken)


def _paths(spec: pytree.TreeSpec, path: str) -> Iterator[str]:
    """The path of each leaf, its steps joined by dots."""
    if spec.is_leaf():
        yield path
        return
    for step, child in zip(_steps(spec), spec.children(), strict=True):
        yield from _paths(child, f"{path}.{step}" if path else str(step))


def _steps(spec: pytree.TreeSpec) -> Sequence[Any]:
    """What a container calls its items: keys, fields, what the context of a registered class says, or positions."""
    fields = getattr(spec.type, "_fields", None)
    keys = spec.context[1] if spec.type is defaultdict else fields or spec.context
    if isinstance(keys, Mapping):  # the serializers of this package
        keys = keys.get("leaves")
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


def dimension_names(inputs: Sequence[str], examples: Sequence[Any], named: Mapping[str, str]) -> dict[str, str]:
    """A name for each symbol that is a size or value of an input by itself; those in `named` stay.

    >>> dimension_names(["x"], [3], {"s0": "batch"})
    {'s0': 'batch'}
    """
    names = dict(named)
    for name, example in zip(inputs, examples, strict=True):
        for axis, size in _sizes(example):
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol and str(size.node.expr) not in names:
                readable = name if axis is None else f"{name}_dim{axis}"
                names[str(size.node.expr)] = graph_name(readable, set(names.values()))
    return names


def _sizes(example: Any) -> Iterable[tuple[int | None, Any]]:
    return enumerate(example.shape) if isinstance(example, torch.Tensor) else [(None, example)]
