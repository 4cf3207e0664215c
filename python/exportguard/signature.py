"""Names that a user can read for the inputs, outputs and dimensions of an exported program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from .dynamic_shapes import LeafShape, graph_name
from .errors import REFUSALS, InvalidArgumentError
from .inputs import input_name, output_name

_NUMBERS = (bool, int, float)


@dataclass(frozen=True, kw_only=True)
class ProgramNames:
    """Names of the user's inputs and outputs in flat order, constants and None included, and of torch's symbols."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dims: Mapping[str, str]


def program_names(
    program: ExportedProgram,
    shapes: Sequence[LeafShape] = (),
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> ProgramNames:
    """The names under which a program is converted.

    Inputs and outputs are named by their path: `input_ids`, `past_key_values.0.key`. What a tuple returns is
    `output_0`, `output_1`, …. A cache, of whatever kind and whether or not there is one among the inputs, is
    `past_key_values.…` there and `present.…` among the outputs; another output with the name of an input gets the
    suffix `_out`. `inputs` and `outputs` are the user's own names for those that the model has. Symbols are called as
    `shapes` say; the others after the first input axis that they stand for.

    Raises:
        InvalidArgumentError: there are more or fewer names of the user's own than values.
    """
    traced = traced_inputs(program)
    known = _input_names(program)
    return ProgramNames(
        inputs=_renamed("input_names", known, inputs, taken_leaves(program)),
        outputs=_renamed(
            "output_names", _output_names(program.call_spec.out_spec, known), outputs, returned_leaves(program)
        ),
        dims=dimension_names(known, traced.leaves, symbol_names(traced, shapes) if shapes else {}),
    )


def _renamed(what: str, names: Sequence[str], given: Sequence[str] | None, used: Sequence[bool]) -> tuple[str, ...]:
    """The user's own names for the leaves that the model has; constants and None keep theirs."""
    if given is None:
        return tuple(names)
    if len(given) != sum(used):
        known = ", ".join(name for name, is_used in zip(names, used, strict=True) if is_used)
        raise InvalidArgumentError(f"{what} has {len(given)} names for {sum(used)} values ({known}); pass one for each")
    own = iter(given)
    return tuple(next(own) if is_used else name for name, is_used in zip(names, used, strict=True))


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


def _sizes(example: object) -> Iterable[tuple[int | None, Any]]:
    return enumerate(example.shape) if isinstance(example, torch.Tensor) else [(None, example)]


@dataclass(frozen=True)
class TracedInputs:
    """What a program traced for each leaf of its inputs: a fake tensor, a symbolic number, or a constant.

    `sizes` has for each leaf the expressions of its axes, those of a number being itself. `shape_env` is torch's record
    of them; None if no leaf is a tensor that tells.
    """

    leaves: Sequence[Any]
    sizes: Sequence[Sequence[sympy.Expr]]
    shape_env: Any


def traced_inputs(program: ExportedProgram) -> TracedInputs:
    """The inputs of a program as they were traced."""
    values: Mapping[str, Any] = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    leaves = [values.get(spec.arg.name) for spec in specs]

    modes = (leaf.fake_mode for leaf in leaves if isinstance(leaf, torch.Tensor) and hasattr(leaf, "fake_mode"))
    mode = next(modes, None)
    return TracedInputs(leaves, [_raw_sizes(leaf) for leaf in leaves], mode.shape_env if mode is not None else None)


def _raw_sizes(leaf: object) -> list[sympy.Expr]:
    if isinstance(leaf, torch.Tensor):
        return [raw_size(size) for size in leaf.shape]
    return [raw_size(leaf)] if isinstance(leaf, int | torch.SymInt) else []


def raw_size(size: object) -> sympy.Expr:
    """The size as torch first called it, before it was found equal to something else."""
    # torch 2.11 to 2.13: `expr` of a node is its `_expr` with what was found out since.
    if isinstance(size, torch.SymInt | torch.SymFloat):
        return size.node._expr
    return sympy.sympify(size)


def taken_leaves(program: ExportedProgram) -> list[bool]:
    """For each leaf of the original's inputs whether the program takes it; None and constants it does not."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    return [not isinstance(spec.arg, ConstantArgument) for spec in specs]


def returned_leaves(program: ExportedProgram) -> list[bool]:
    """For each leaf of the original's outputs whether the model has it, as it has tensors and numbers."""
    specs = [spec for spec in program.graph_signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]
    return [not isinstance(spec.arg, ConstantArgument) or isinstance(spec.arg.value, _NUMBERS) for spec in specs]


def symbol_names(traced: TracedInputs, shapes: Sequence[LeafShape]) -> dict[str, str]:
    """The user's name for each symbol that stands alone for an axis of the leaves; the first name wins.

    A graph only knows names of ASCII letters, digits and `_`: `past+seq` becomes `past_seq`.
    """
    names: dict[str, str] = {}
    known: dict[str, str] = {}  # by label
    leaves = list(zip(shapes, traced.leaves, strict=True))
    # Tensors first: a number of the same name is another quantity (the tokens a window has seen, not those it holds).
    for shape, value in sorted(leaves, key=lambda leaf: not isinstance(leaf[1], torch.Tensor)):
        for axis in shape.axes:
            is_tensor = isinstance(value, torch.Tensor)
            label, symbol = _named_symbol(shape, axis, value.shape[axis] if is_tensor else value)
            if label is None or symbol in names or (label in known and not is_tensor):
                continue
            names[symbol] = known.setdefault(label, graph_name(label, names.values()))
    return names


def _named_symbol(shape: LeafShape, axis: int, size: object) -> tuple[str | None, str]:
    """What the user calls a symbol, and torch's name of it; the root of a derived `Dim` is what has a name."""
    expression = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(0)
    root = getattr(shape.axes[axis], "root", None)
    if root is not None and len(expression.free_symbols) == 1:
        return str(root.__name__), str(*expression.free_symbols)
    return (shape.label(axis) if expression.is_symbol else None), str(expression)
