"""Which axes of a model's inputs change from call to call, as the user writes it and as torch.export wants it."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import Dim
from torch.export.dynamic_shapes import _DimHint
from torch.utils import _pytree as pytree

from .arguments import require_callable, require_kind, wrong
from .cache_names import by_its_names
from .errors import InvalidArgumentError
from .inputs import CallInputs, Leaf, flatten_named
from .sliding_lengths import SlidingLength, kept_tokens, own_lengths, windows

# What a user may write for one axis.
Axis = str | Dim | _DimHint | int | None
# What a user may write for a whole call: nested like the inputs, with one {axis: name} for each tensor.
DynamicShapes = Mapping[str, Any] | Sequence[Any] | None

_DERIVED = ("_DerivedDim", "_StaticDim")


@dataclass(frozen=True)
class LeafShape:
    """The axes of one input that were asked to change: `axes[1] == "seq"`. `leaf` is the example it was asked for.

    `sliding` are the axes that were called as something that they follow only up to a window, `kept` the most tokens
    that such a layer of a cache has.
    """

    leaf: Leaf
    axes: Mapping[int, Axis]  # an integer that changes has axis 0
    sliding: Mapping[int, SlidingLength] = field(default_factory=dict)
    kept: Mapping[int, int] = field(default_factory=dict)

    def label(self, axis: int) -> str | None:
        """The name that the user gave to the axis, or None."""
        return name_of(self.axes.get(axis))


def name_of(axis: Axis) -> str | None:
    """The name in what a user wrote for one axis; hints and sizes have none.

    >>> name_of("batch"), name_of(None), name_of(8)
    ('batch', None, None)
    """
    if isinstance(axis, str):
        return axis
    if isinstance(axis, Dim) and not is_derived(axis):
        return axis.__name__
    return None


def is_derived(axis: object) -> bool:
    """Whether what stands for an axis is a `Dim` that follows from another one, or a size."""
    return type(axis).__name__ in _DERIVED


def graph_name(label: str, taken: Collection[str]) -> str:
    """The name of an axis as graphs can have it: of ASCII letters, digits and `_`, no number, and none of those taken.

    >>> graph_name("past+seq", ()), graph_name("5", ()), graph_name("größe", ["gr__e"])
    ('past_seq', 'd5', 'gr__e_1')
    """
    name = re.sub(r"[^0-9A-Za-z_]", "_", label)
    name = name if not name[:1].isdigit() else f"d{name}"
    candidates = (name if number == 0 else f"{name}_{number}" for number in itertools.count())
    return next(candidate for candidate in candidates if candidate not in taken)


def ends_of(axis: Axis) -> tuple[int | None, int | None]:
    """The smallest and the largest size that a `Dim` allows; None for no such end, and for what is no `Dim`.

    >>> ends_of(Dim("seq", min=2, max=9)), ends_of(Dim("batch")), ends_of("batch")
    ((2, 9), (0, None), (None, None))
    """
    low, high = getattr(axis, "min", None), getattr(axis, "max", None)
    # Torch has an infinity of its own for a `Dim` without a largest size.
    return (int(low) if isinstance(low, int) else None), (int(high) if isinstance(high, int) else None)


def all_dynamic_shapes_from_inputs(inputs: object, dim_prefix: str | _DimHint = "d") -> Any:
    """Dynamic shapes that ask for every axis of every tensor, nested like `inputs`.

    `inputs` is a tuple of arguments, a dictionary of them, or any nesting of containers and registered classes.
    With a string each axis has its own name, `<prefix>_<number of the tensor>_<axis>`; with a hint such as
    `Dim.AUTO` all have that one.

    >>> all_dynamic_shapes_from_inputs({"x": torch.zeros(2, 3), "n": 4})
    {'x': {0: 'd_0_0', 1: 'd_0_1'}, 'n': None}
    """
    if not isinstance(dim_prefix, str | _DimHint):
        raise wrong("dim_prefix", dim_prefix, "a text or a hint such as Dim.AUTO")
    tensors = iter(range(len(pytree.tree_leaves(inputs))))

    def every_axis(value: object) -> dict[int, Axis] | None:
        if not isinstance(value, torch.Tensor):
            return None
        number = next(tensors)
        return {
            axis: f"{dim_prefix}_{number}_{axis}" if isinstance(dim_prefix, str) else dim_prefix
            for axis in range(value.dim())
        }

    return mirror(inputs, every_axis)


def mirror(tree: object, leaf: Callable[[Any], Any]) -> Any:
    """The containers of `tree` with `leaf(value)` in each place; a registered class becomes the list of its children.

    That is the form in which torch.export takes dynamic shapes.
    """
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(tree))
    if node is None:
        return leaf(tree)
    children, context = node.flatten_fn(tree)
    mirrored = [mirror(child, leaf) for child in children]
    return node.unflatten_fn(mirrored, context) if _is_container(tree) else mirrored


def normalise(call: CallInputs, dynamic_shapes: DynamicShapes) -> list[LeafShape]:
    """One entry for each leaf of the call, in the order in which torch.export flattens it.

    Raises:
        InvalidArgumentError: the structure differs from the inputs', an axis does not exist, one name stands on axes of
            different sizes, or what stands for an axis is of no known kind.
    """
    shapes = _as_asked(call, dynamic_shapes)
    for shape in shapes:
        _require_fixed_sizes(shape)
        _require_bounds(shape, " in the example", at_least=_ENLARGED)
    _require_equal_sizes(shapes)
    return shapes


def _as_asked(call: CallInputs, dynamic_shapes: DynamicShapes) -> list[LeafShape]:
    named = call.named
    if isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = by_its_names(dynamic_shapes, named)
    spec = _by_name(named, _with_further_arguments(named, call.further, dynamic_shapes))
    return _apart_from_windows(list(_pair("", named, spec)), windows(named))


def _apart_from_windows(shapes: list[LeafShape], kept: Mapping[str, int]) -> list[LeafShape]:
    """Layers of a cache that keep at most so many tokens have names of their own for them, if they are called as what
    is longer; the number of all tokens, where a cache of such layers alone counts it, is what they were called.
    """
    places = [(shape.leaf.name, axis) for shape in shapes for axis in shape.axes]
    most = kept_tokens(places, kept)
    shapes = [replace(shape, kept=_of_leaf(shape, most)) for shape in shapes] if most else shapes
    labels = {(shape.leaf.name, axis): label for shape in shapes for axis in shape.axes if (label := shape.label(axis))}
    found = own_lengths(labels, kept)
    if not found:
        return shapes
    called = {sliding.name for sliding in found.values()}
    longer = {label for place, label in labels.items() if place not in found}
    counted = next(iter(called - longer), None) if len(called) == 1 else None
    return [_with_own_lengths(shape, found, counted) for shape in shapes]


def _of_leaf(shape: LeafShape, most: Mapping[tuple[str, int], int]) -> dict[int, int]:
    return {axis: most[shape.leaf.name, axis] for axis in shape.axes if (shape.leaf.name, axis) in most}


def _with_own_lengths(
    shape: LeafShape, found: Mapping[tuple[str, int], SlidingLength], counted: str | None
) -> LeafShape:
    name = shape.leaf.name
    sliding = {axis: found[name, axis] for axis in shape.axes if (name, axis) in found}
    if counted is not None and name.endswith(".length") and shape.axes.get(0) == Dim.DYNAMIC:
        return replace(shape, axes={0: counted})
    own = {axis: _bounded(shape.axes[axis], length) for axis, length in sliding.items()}
    return replace(shape, axes={**shape.axes, **own}, sliding=sliding)


def _bounded(asked: Axis, length: SlidingLength) -> Axis:
    """The axis that a user asked for, up to a window."""
    if not isinstance(asked, Dim):
        return length.own
    low, high = ends_of(asked)
    most = length.most if high is None else min(high, length.most)
    return Dim(length.own, min=min(low or 0, most), max=most)


def check_inputs(model: object, calls: Sequence[Any], dynamic_shapes: DynamicShapes) -> None:
    """Raises if the calls do not fit the dynamic shapes: each is a tuple or a dictionary of arguments.

    An axis that was not asked for has one size in all of them, axes of one name have one size in each, and a `Dim`
    stays within its bounds.

    >>> model = torch.nn.Linear(4, 2)
    >>> check_inputs(model, [(torch.zeros(2, 4),), (torch.zeros(5, 4),)], ({0: "batch"},))

    Raises:
        InvalidArgumentError: naming the input, the axis, the call and what was expected.
    """
    require_callable("model", model, "a module or a function")
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise wrong("calls", calls, "a list of calls, each a tuple or a dictionary of arguments")
    for number, call in enumerate(calls):
        require_kind(f"call {number}", call, (tuple, list, Mapping), "a tuple or a dictionary of arguments")
    rows = [_shapes_of_call(model, call, dynamic_shapes) for call in calls]
    for number, row in enumerate(rows):
        where = f" in call {number}"
        for shape in row:
            _require_bounds(shape, where)
        _require_equal_sizes(row, where)
        _require_like(rows[0], row, where)


def _shapes_of_call(model: Any, call: Any, dynamic_shapes: DynamicShapes) -> list[LeafShape]:
    args, kwargs = ((), call) if isinstance(call, Mapping) else (tuple(call), {})
    return _as_asked(
        CallInputs.of(model.forward if isinstance(model, torch.nn.Module) else model, args, kwargs), dynamic_shapes
    )


#: Examples of smaller sizes are made larger before anything is traced.
_ENLARGED = 2


def _require_bounds(shape: LeafShape, where: str, at_least: int = 0) -> None:
    """Raises if an axis of at least this size is outside of what its `Dim` says."""
    for axis, asked in shape.axes.items():
        if not isinstance(shape.leaf.value, torch.Tensor):
            continue
        size, (lowest, highest) = shape.leaf.value.shape[axis], _bounds(asked)
        if size >= at_least and not lowest <= size <= (math.inf if highest is None else highest):
            sizes = f"{lowest} or more" if highest is None else f"{lowest} to {highest}"
            raise InvalidArgumentError(
                f"axis {axis} of {shape.leaf.name} ({name_of(asked) or asked}) is {size}{where}, outside of its bounds "
                f"{sizes}"
            )


def _bounds(asked: Axis) -> tuple[int, int | None]:
    """The smallest and the largest size; None for no end."""
    if isinstance(asked, int):
        return asked, asked
    lowest, highest = ends_of(asked)
    return lowest or 0, highest


def _require_like(first: Sequence[LeafShape], row: Sequence[LeafShape], where: str) -> None:
    names, expected = ([shape.leaf.name for shape in shapes] for shapes in (row, first))
    if names != expected:
        raise InvalidArgumentError(f"the inputs{where} are {', '.join(names)}, but {', '.join(expected)} in call 0")
    for leaf, other in zip(first, row, strict=True):
        _require_same_leaf(leaf, other.leaf.value, where)


def _require_same_leaf(first: LeafShape, value: Any, where: str) -> None:
    expected, name = first.leaf.value, first.leaf.name
    if not isinstance(expected, torch.Tensor):
        if not first.axes and value != expected:
            raise InvalidArgumentError(
                f"{name} is {value!r}{where} and {expected!r} in call 0: it is a constant of the program"
            )
        return
    kinds = [(tensor.dtype, tensor.dim()) for tensor in (value, expected)]
    if kinds[0] != kinds[1]:
        (dtype, rank), (dtype_0, rank_0) = kinds
        raise InvalidArgumentError(f"{name} is {dtype} of rank {rank}{where}, but {dtype_0} of rank {rank_0} in call 0")
    for axis, (size, size_0) in enumerate(zip(value.shape, expected.shape, strict=True)):
        if size != size_0 and not _asks_for_change(first.axes.get(axis)):
            raise InvalidArgumentError(
                f"axis {axis} of {name} is {size}{where} and {size_0} in call 0, but dynamic_shapes does not let it "
                "change; name it there"
            )


def use_dyn_not_str(dynamic_shapes: object, default_value: Axis = Dim.DYNAMIC) -> Any:
    """The same dynamic shapes with `default_value` for every name, as torch.export takes them.

    >>> use_dyn_not_str({"x": {0: "batch"}}, Dim.AUTO)["x"][0] == Dim.AUTO
    True
    """
    return _with_names(dynamic_shapes, lambda name: default_value)


def use_dims_not_str(dynamic_shapes: object) -> Any:
    """The same dynamic shapes with one `Dim` for every name: axes of one name are equal to torch.export.

    >>> use_dims_not_str({"x": {0: "batch"}})["x"][0].__name__
    'batch'
    """
    return _with_names(dynamic_shapes, functools.cache(Dim))


def _with_names(spec: object, of_name: Callable[[str], Any]) -> Any:
    if isinstance(spec, str):
        return of_name(spec)
    if isinstance(spec, Mapping):
        return {key: _with_names(part, of_name) for key, part in spec.items()}
    if isinstance(spec, (list, tuple)):
        return type(spec)(_with_names(part, of_name) for part in spec)
    return spec


def _is_container(tree: object) -> bool:
    return pytree._get_node_type(tree) in pytree.BUILTIN_TYPES


def _with_further_arguments(
    named: Mapping[str, Any], place: str | None, dynamic_shapes: DynamicShapes
) -> DynamicShapes:
    """What is asked for an argument that `forward` takes as one of its `**kwargs`, where torch.export looks for it."""
    passed = named.get(place, {}) if place is not None else {}
    if place is None or not isinstance(dynamic_shapes, Mapping) or not passed:
        return dynamic_shapes
    moved = {name: asked for name, asked in dynamic_shapes.items() if name in passed and name not in named}
    if not moved:
        return dynamic_shapes
    stay = {name: asked for name, asked in dynamic_shapes.items() if name not in moved}
    return {**stay, place: {**dict.fromkeys(passed), **(stay.get(place) or {}), **moved}}


def _by_name(named: Mapping[str, Any], dynamic_shapes: DynamicShapes) -> dict[str, Any]:
    if dynamic_shapes is None:
        return {}
    if isinstance(dynamic_shapes, Mapping):
        if dynamic_shapes and all(isinstance(axis, int) for axis in dynamic_shapes):
            return _axes_of_the_only_input(named, dynamic_shapes)
        _require_known_names(named, dynamic_shapes)
        return dict(dynamic_shapes)
    if isinstance(dynamic_shapes, (tuple, list)):
        if len(dynamic_shapes) != len(named):
            raise InvalidArgumentError(
                f"dynamic_shapes has {len(dynamic_shapes)} entries for {len(named)} inputs ({', '.join(named)}); "
                "pass one for each, None for an input that does not change"
            )
        return dict(zip(named, dynamic_shapes, strict=True))
    remedy = "; pass what it makes: shapes.dynamic_shapes(model, args, kwargs)" if _makes_shapes(dynamic_shapes) else ""
    raise InvalidArgumentError(
        "dynamic_shapes must be a dictionary by input name or a tuple by position, got "
        f"{type(dynamic_shapes).__name__}{remedy}"
    )


def _makes_shapes(given: object) -> bool:
    """Whether it is one of torch's collections, which need the model to say what they ask for."""
    return isinstance(given, (torch.export.ShapesCollection, torch.export.AdditionalInputs))


def _axes_of_the_only_input(named: Mapping[str, Any], axes: Mapping[Any, Any]) -> dict[str, Any]:
    """`{0: "batch"}` says which axes change, but of several inputs not of which."""
    if len(named) == 1:
        return dict.fromkeys(named, axes)
    name = next(iter(named), "input")
    raise InvalidArgumentError(
        f"dynamic_shapes is {dict(axes)!r}, axes without an input; write {{{name!r}: {dict(axes)!r}}}, by the names of "
        f"the inputs ({', '.join(named)})"
    )


def _require_known_names(named: Mapping[str, Any], dynamic_shapes: Mapping[str, Any]) -> None:
    unknown = [str(name) for name in dynamic_shapes if name not in named]
    if unknown:
        raise InvalidArgumentError(
            f"dynamic_shapes names {', '.join(unknown)}, which the call does not pass; it passes {', '.join(named)}. "
            "The axes of outputs follow from those of inputs"
        )


def _pair(path: str, value: object, spec: object) -> Iterator[LeafShape]:
    """The leaves below `value` with the part of `spec` that is theirs."""
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is None:
        yield LeafShape(Leaf(path, value), _axes(path, value, spec))
    elif spec is None or _is_axes(value, spec):
        # One {axis: name} for a whole container goes to each tensor in it.
        leaves = flatten_named(value)
        for leaf in leaves:
            name = f"{path}.{leaf.name}" if path else leaf.name
            is_tensor = isinstance(leaf.value, torch.Tensor)
            axes = _of_a_tensor(leaf, leaves, spec) if is_tensor else _of_a_count(value, leaf.value, spec)
            yield LeafShape(Leaf(name, leaf.value), _axes(name, leaf.value, axes))
    else:
        yield from _pair_children(path, value, spec)


def _of_a_tensor(tensor: Leaf, leaves: Sequence[Leaf], spec: object) -> object:
    """What was asked of all tensors of a container, but for axes that others of them have and this one has not."""
    if not isinstance(spec, Mapping):
        return spec
    ranks = [leaf.rank for leaf in leaves]
    return {
        axis: asked for axis, asked in spec.items() if _has(tensor.rank, axis) or not any(_has(r, axis) for r in ranks)
    }


def _has(rank: int, axis: int) -> bool:
    return -rank <= axis < rank


def _of_a_count(container: object, number: object, spec: object) -> Axis:
    """What a registered class counts in an integer, a cache its tokens, changes as the axes of its tensors do.

    An integer in a container of the user's own is an argument of the model, and stays what it is.
    """
    is_count = isinstance(number, int) and not isinstance(number, bool) and not _is_container(container)
    asked = spec.values() if is_count and isinstance(spec, Mapping) else ()
    return Dim.DYNAMIC if any(map(_asks_for_change, asked)) else None


def _asks_for_change(asked: object) -> bool:
    return asked is not None and not isinstance(asked, int) and asked != Dim.STATIC


def _pair_children(path: str, value: Any, spec: Any) -> Iterator[LeafShape]:
    if not path:
        for name, child in value.items():
            yield from _pair(name, child, spec.get(name))
        return
    names, children = _children(value)
    if isinstance(spec, (list, tuple)) and not _is_container(value):
        spec = _of_those_with_axes(path, names, children, spec)
    for name, child, part in zip(names, children, _parts(path, names, spec, value), strict=True):
        yield from _pair(f"{path}.{name}", child, part)


def _children(value: object) -> tuple[list[str], list[Any]]:
    """The direct children of a registered container under the names that paths use."""
    children, _ = pytree.SUPPORTED_NODES[pytree._get_node_type(value)].flatten_fn(value)
    entries, _ = pytree.tree_flatten_with_path(value, is_leaf=lambda inner: inner is not value)
    names = [leaf_path[0] for leaf_path, _ in entries] if len(entries) == len(children) else range(len(children))
    return [str(getattr(name, "key", getattr(name, "idx", getattr(name, "name", name)))) for name in names], list(
        children
    )


def _parts(path: str, names: Sequence[str], spec: object, value: object) -> list[Any]:
    if isinstance(spec, Mapping):
        by_name = {str(name): part for name, part in spec.items()}
        unknown = [name for name in by_name if name not in names]
        if unknown:
            raise InvalidArgumentError(
                f"dynamic_shapes names {path}.{unknown[0]}, which is not there; {path} has {', '.join(names)}"
            )
        return [by_name.get(name) for name in names]
    if isinstance(spec, (list, tuple)):
        if len(spec) != len(names):
            raise InvalidArgumentError(
                f"dynamic_shapes has {len(spec)} entries for {path}, a {type(value).__name__} of {len(names)} "
                f"({', '.join(names)}); pass one for each, or one {{axis: name}} for all"
            )
        return list(spec)
    raise InvalidArgumentError(
        f"dynamic_shapes has {spec!r} for {path}, a {type(value).__name__}; pass a dictionary or a list like it, "
        "or one {axis: name} for all its tensors"
    )


def _of_those_with_axes(path: str, names: Sequence[str], children: Sequence[Any], spec: Sequence[Any]) -> list[Any]:
    """What was said of a cache in lists, with None for tensors without axes, as for one that counts the tokens."""
    has_axes = [not isinstance(child, torch.Tensor) or child.dim() > 0 for child in children]
    spec = _of_keys_and_values(path, [*itertools.compress(names, has_axes)], spec)
    rest = iter(spec)
    return [next(rest) if has else None for has in has_axes] if len(spec) == sum(has_axes) else [*spec]


def _of_keys_and_values(path: str, names: Sequence[str], spec: Sequence[Any]) -> list[Any]:
    """What was said of a cache in lists, `[[key, …], [value, …]]` or `[[key, value], …]`, one entry for each tensor."""
    layers = len(names) // 2
    is_cache = len(names) == 2 * layers and all(name.endswith(("key", "value")) for name in names)
    if not is_cache or not all(isinstance(part, list | tuple) for part in spec):
        return list(spec)
    readings = []
    if len(spec) == 2 and all(len(part) == layers for part in spec):
        readings.append([entry for pair in zip(*spec, strict=True) for entry in pair])
    if len(spec) == layers and all(len(part) == 2 for part in spec):
        readings.append([entry for pair in spec for entry in pair])
    if len(readings) == 2 and readings[0] != readings[1]:
        raise InvalidArgumentError(
            f"dynamic_shapes has two lists of two for {path}, keys and values or layers; pass an entry for each tensor "
            f"({', '.join(names)})"
        )
    return readings[0] if readings else list(spec)


def _is_axes(value: object, spec: object) -> bool:
    if not isinstance(spec, Mapping) or not spec:
        return False
    keys_are_axes = all(isinstance(axis, int) for axis in spec)
    return keys_are_axes and not (isinstance(value, dict) and any(axis in value for axis in spec))


def _axes(path: str, value: object, spec: object) -> dict[int, Axis]:
    if spec is None:
        return {}
    if not isinstance(value, torch.Tensor):
        return _number_axis(path, value, spec)
    if isinstance(spec, Mapping):
        entries = list(spec.items())
    elif isinstance(spec, (list, tuple)):
        entries = _entries_by_position(path, value, spec)
    else:
        raise InvalidArgumentError(
            f"dynamic_shapes has {spec!r} for the tensor {path}; pass {{axis: name}} or a tuple with one entry an axis"
        )
    axes = [
        (_axis_number(path, value, axis), _known(path, axis, asked))
        for axis, asked in entries
        if asked is not None and asked != Dim.STATIC
    ]
    twice = next((axis for axis, _ in axes if [number for number, _ in axes].count(axis) > 1), None)
    if twice is not None:
        raise InvalidArgumentError(f"dynamic_shapes names axis {twice} of {path} twice, counted from both ends")
    return dict(axes)


def _number_axis(path: str, value: object, spec: object) -> dict[int, Axis]:
    if isinstance(value, int) and not isinstance(value, bool) and isinstance(spec, (str, Dim, _DimHint)):
        return {0: spec}
    raise InvalidArgumentError(
        f"dynamic_shapes has {spec!r} for {path}, which is {value!r} and has no axes; pass None, or a tensor"
    )


def _entries_by_position(path: str, value: torch.Tensor, spec: Sequence[Any]) -> list[tuple[int, Any]]:
    if len(spec) != value.dim():
        raise InvalidArgumentError(
            f"dynamic_shapes has {len(spec)} entries for {path}, which has rank {value.dim()}; pass one for each axis, "
            "or {axis: name} for those that change"
        )
    return list(enumerate(spec))


def _axis_number(path: str, value: torch.Tensor, axis: object) -> int:
    rank = value.dim()
    if not isinstance(axis, int) or isinstance(axis, bool) or not -rank <= axis < rank:
        raise InvalidArgumentError(
            f"dynamic_shapes names axis {axis!r} of {path}, which has rank {rank}; axes are 0 to {rank - 1}"
            if rank
            else f"dynamic_shapes names axis {axis!r} of {path}, which has no axes; pass None"
        )
    return axis % rank


def _known(path: str, axis: object, asked: object) -> Axis:
    if isinstance(asked, (str, Dim, _DimHint, int)) and asked != "" and not isinstance(asked, bool):
        return asked
    raise InvalidArgumentError(
        f"dynamic_shapes has {asked!r} for axis {axis} of {path}; pass a name, a torch.export.Dim, or None"
    )


def _require_fixed_sizes(shape: LeafShape) -> None:
    """A number in the place of a name is the size of the example."""
    if not isinstance(shape.leaf.value, torch.Tensor):
        return
    for axis, asked in shape.axes.items():
        size = shape.leaf.value.shape[axis]
        if isinstance(asked, int) and asked != size:
            raise InvalidArgumentError(
                f"dynamic_shapes fixes axis {axis} of {shape.leaf.name} to {asked}, but the example has {size}"
            )


def _require_equal_sizes(shapes: Sequence[LeafShape], where: str = " in the example") -> None:
    """A name says that its axes are equal."""
    first: dict[str, tuple[str, int]] = {}
    for shape in shapes:
        for axis in shape.axes:
            name = shape.label(axis)
            if name is None or not isinstance(shape.leaf.value, torch.Tensor):
                continue
            place, size = f"axis {axis} of {shape.leaf.name}", shape.leaf.value.shape[axis]
            known, expected = first.setdefault(name, (place, size))
            if size != expected:
                raise InvalidArgumentError(
                    f"dynamic_shapes calls {known} and {place} both {name!r}, but they are {expected} and "
                    f"{size}{where}; give them names of their own"
                )
