"""Faults that are generated, not listed: at any node of any graph of a model, what the operator's schema lets go wrong.

Attributes become others, constants lose their sign, scale, order, dtype or place, operands change places or are another
value's, operators become others of the same signature, nodes appear on an edge or are left out: in the main graph, in
bodies of If, Loop and Scan, and in local functions.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, defs, helper, numpy_helper

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
TEXTS = {
    "mode": ("constant", "reflect", "edge", "nearest", "linear", "cubic"),
    "approximate": ("none", "tanh"),
    "direction": ("forward", "reverse", "bidirectional"),
    "coordinate_transformation_mode": ("half_pixel", "align_corners", "asymmetric"),
    "nearest_mode": ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "padding_mode": ("zeros", "border", "reflection"),
}
#: Operators that draw or that make something else than numbers of numbers.
UNFIT = ("Dropout", "Bernoulli", "RandomNormalLike", "RandomUniformLike", "Optional", "NonZero", "Shape", "Size")


@dataclass(frozen=True)
class Place:
    """A node, and the list of nodes that it stands in: a main graph's, a body's or a function's."""

    nodes: Any
    position: int
    depth: int  # 0: of the main graph

    @property
    def node(self) -> NodeProto:
        return self.nodes[self.position]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Generated:
    """What was done, and the outputs of the nodes that compute something else since then."""

    what: str
    outputs: frozenset[str]
    depth: int

    def is_named_by(self, outputs: tuple[str, ...]) -> bool:
        return bool(self.outputs & set(outputs))


#: Does one thing to the node; its outputs and what was done, or None where there is nothing to do.
Mutation = Callable[["Workshop", Place], tuple[str, frozenset[str]] | None]


class Workshop:
    """A copy of a model that is changed at one place."""

    def __init__(self, model: onnx.ModelProto, draw: random.Random) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.draw = draw
        self.constants = {one.name: one for one in self.model.graph.initializer}
        for place in self.places():
            if place.node.op_type == "Constant" and place.node.attribute[0].HasField("t"):
                self.constants[place.node.output[0]] = place.node.attribute[0].t

    def places(self) -> Iterator[Place]:
        yield from _places(self.model.graph.node, 0)
        for function in self.model.functions:
            yield from _places(function.node, 1)

    def schema(self, node: NodeProto) -> defs.OpSchema | None:
        version = next((one.version for one in self.model.opset_import if one.domain == node.domain), None)
        if version is None or not defs.has(node.op_type, max_inclusive_version=version, domain=node.domain):
            return None
        return defs.get_schema(node.op_type, version, node.domain)

    def insert(self, place: Place, *nodes: NodeProto) -> None:
        for offset, node in enumerate(nodes):
            place.nodes.insert(place.position + offset, node)

    def constant(self, place: Place, value: numpy.ndarray) -> str:
        """The name of a new constant that the node may read; the node stands one further then."""
        name = f"planted_{len(self.constants)}"
        tensor = numpy_helper.from_array(numpy.ascontiguousarray(value), name)
        self.constants[name] = tensor
        self.insert(place, helper.make_node("Constant", [], [name], value=tensor))
        return name


def _places(nodes: Any, depth: int) -> Iterator[Place]:
    for position, node in enumerate(nodes):
        yield Place(nodes, position, depth)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _places(attribute.g.node, depth + 1)


def generated(
    model: onnx.ModelProto, seed: int, *, depth: int | None = None
) -> tuple[onnx.ModelProto, Generated] | None:
    """A copy with one fault at a place and of a kind that the seed gives; None where that kind has nothing to do there.

    `depth` asks for a place in the main graph (0) or in bodies and functions (1).
    """
    draw = random.Random(seed)
    workshop = Workshop(model, draw)
    places = [place for place in workshop.places() if place.node.op_type != "Constant"]
    if depth is not None:
        places = [place for place in places if min(place.depth, 1) == depth]
    if not places:
        return None
    place = draw.choice(places)
    mutation = draw.choice(MUTATIONS)
    before, operator = place.depth, place.node.op_type
    done = mutation(workshop, place)
    if done is None:
        return None
    return workshop.model, Generated(f"{operator}: {done[0]}", done[1], before)


# ------------------------------------------------------------------------------------------------ attributes


def attribute(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """An attribute is another one: one that stands there, or one that is left to its default."""
    node, schema = place.node, workshop.schema(place.node)
    if schema is None:
        return None
    own = {one.name: one for one in node.attribute}
    kinds = (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.INTS, AttributeProto.STRING)
    names = sorted(
        name
        for name, declared in schema.attributes.items()
        if int(declared.type.value) in kinds and (name in own or declared.default_value.name)
    )
    if not names:
        return None
    name = workshop.draw.choice(names)
    found = own.get(name) or schema.attributes[name].default_value
    other = _other_attribute(name, helper.get_attribute_value(found), workshop.draw)
    if other is None:
        return None
    if name in own:
        node.attribute.remove(own[name])
    node.attribute.append(helper.make_attribute(name, other))
    return f"{name}={other}", frozenset(node.output)


def _other_attribute(name: str, value: Any, draw: random.Random) -> Any:
    if name == "to":
        return draw.choice([one for one in (*FLOATS, TensorProto.BFLOAT16, TensorProto.INT32) if one != value])
    if name == "epsilon":
        return max(value * 1e4, 1e-3)
    if isinstance(value, bytes):
        others = [text for text in TEXTS.get(name, ()) if text != value.decode()]
        return draw.choice(others) if others else None
    if isinstance(value, float):
        return value * 1.5 if value else 0.25
    if isinstance(value, int):
        return 1 - value if value in (0, 1) else value + draw.choice([-1, 1])
    numbers = list(value)
    if len(set(numbers)) > 1 and draw.random() < 0.6:
        first, second = draw.sample(range(len(numbers)), 2)
        numbers[first], numbers[second] = numbers[second], numbers[first]
    elif numbers:
        numbers[draw.randrange(len(numbers))] += 1
    return numbers if numbers != list(value) else None


# ------------------------------------------------------------------------------------------------ constants


def constant(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """A constant is another one, for this reader alone."""
    node = place.node
    positions = [at for at, name in enumerate(node.input) if name in workshop.constants]
    if not positions:
        return None
    at = workshop.draw.choice(positions)
    value = numpy_helper.to_array(workshop.constants[node.input[at]])
    ways = _FLOAT_WAYS if value.dtype.kind == "f" else _WHOLE_WAYS
    way = workshop.draw.choice(ways)
    other = way(value, workshop.draw)
    if other is None or (
        other.dtype == value.dtype and numpy.array_equal(other, value, equal_nan=value.dtype.kind == "f")
    ):
        return None
    name = workshop.constant(place, other)
    reader = place.nodes[place.position + 1]
    reader.input[at] = name
    return f"a constant with {way.__name__.strip('_').replace('_', ' ')}", frozenset(reader.output)


def _another_sign(value: numpy.ndarray, draw: random.Random) -> numpy.ndarray:
    return -value


def _another_scale(value: numpy.ndarray, draw: random.Random) -> numpy.ndarray:
    return (value * draw.choice([0.5, 1.25, 8.0])).astype(value.dtype)


def _no_values(value: numpy.ndarray, draw: random.Random) -> numpy.ndarray:
    return numpy.zeros_like(value)


def _another_dtype(value: numpy.ndarray, draw: random.Random) -> numpy.ndarray:
    return value.astype(draw.choice([numpy.float16, numpy.float64]) if value.dtype.kind == "f" else numpy.int32)


def _rows_moved(value: numpy.ndarray, draw: random.Random) -> numpy.ndarray | None:
    return numpy.roll(value, 1, axis=draw.randrange(value.ndim)) if value.ndim else None


def _axes_swapped(value: numpy.ndarray, draw: random.Random) -> numpy.ndarray | None:
    return numpy.swapaxes(value, *draw.sample(range(value.ndim), 2)) if value.ndim > 1 else None


def _one_element_off(value: numpy.ndarray, draw: random.Random) -> numpy.ndarray | None:
    if value.size == 0 or value.dtype.kind not in "iub":
        return None
    other = value.copy().reshape(-1)
    place = draw.randrange(other.size)
    other[place] = not other[place] if value.dtype.kind == "b" else other[place] + draw.choice([-1, 1])
    return other.reshape(value.shape)


def _another_order(value: numpy.ndarray, draw: random.Random) -> numpy.ndarray | None:
    return numpy.flip(value) if value.size > 1 else None


_FLOAT_WAYS = (_another_sign, _another_scale, _no_values, _another_dtype, _rows_moved, _axes_swapped)
_WHOLE_WAYS = (_one_element_off, _one_element_off, _another_order, _another_dtype)


# ------------------------------------------------------------------------------------------------ operands


def operands(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """Two operands in each other's place."""
    node = place.node
    present = [at for at, name in enumerate(node.input) if name]
    if len(present) < 2:
        return None
    first, second = workshop.draw.sample(present, 2)
    if node.input[first] == node.input[second] or (
        node.op_type in ("Add", "Mul", "And", "Or", "Max", "Min", "Equal", "Sum")
    ):
        return None
    node.input[first], node.input[second] = node.input[second], node.input[first]
    return f"operands {first} and {second} exchanged", frozenset(node.output)


def another_value(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """An operand is what an earlier node of the same operator makes: another layer's."""
    node = place.node
    made = {name: one for one in place.nodes[: place.position] for name in one.output if name}
    own = [at for at, name in enumerate(node.input) if name in made]
    if not own:
        return None
    at = workshop.draw.choice(own)
    operator = made[node.input[at]].op_type
    others = [name for name, one in made.items() if one.op_type == operator and name != node.input[at]]
    if not others:
        return None
    node.input[at] = workshop.draw.choice(others)
    return f"operand {at} is another {operator}", frozenset(node.output)


def another_weight(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """A weight of the same dtype and sizes that is another one's."""
    node = place.node
    own = [at for at, name in enumerate(node.input) if name in workshop.constants and workshop.constants[name].dims]
    if not own:
        return None
    at = workshop.draw.choice(own)
    weight = workshop.constants[node.input[at]]
    others = sorted(
        one.name
        for one in workshop.model.graph.initializer
        if one.dims == weight.dims and one.data_type == weight.data_type and one.name != node.input[at]
    )
    if place.depth or not others:
        return None
    other = workshop.draw.choice(others)
    if numpy.array_equal(numpy_helper.to_array(workshop.constants[other]), numpy_helper.to_array(weight)):
        return None
    node.input[at] = other
    return f"operand {at} is another weight", frozenset(node.output)


def no_operand(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """An operand that may be left out is left out."""
    node, schema = place.node, workshop.schema(place.node)
    if schema is None:
        return None
    optional = [
        at
        for at, name in enumerate(node.input)
        if name and at < len(schema.inputs) and schema.inputs[at].option == defs.OpSchema.FormalParameterOption.Optional
    ]
    if not optional:
        return None
    at = workshop.draw.choice(optional)
    node.input[at] = ""
    return f"operand {at} left out", frozenset(node.output)


# ------------------------------------------------------------------------------------------------ nodes


@functools.cache
def _operators_like(operator: str, version: int) -> tuple[str, ...]:
    """Operators of as many operands and outputs, of the same kinds, that need no attribute."""
    own = defs.get_schema(operator, version)
    found = []
    for name in sorted({one.name for one in defs.get_all_schemas()} - {operator, *UNFIT}):
        if not defs.has(name, max_inclusive_version=version):
            continue
        other = defs.get_schema(name, version)
        is_free = not other.deprecated and not any(one.required for one in other.attributes.values())
        if is_free and _signature(other) == _signature(own):
            found.append(name)
    return tuple(found)


def _signature(schema: defs.OpSchema) -> tuple[Any, ...]:
    names = [one.type_str for one in (*schema.inputs, *schema.outputs)]
    order = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return (len(schema.inputs), schema.min_input, schema.max_input, [order[name] for name in names])


def operator(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """An operator that is another one of the same signature."""
    node = place.node
    version = next(one.version for one in workshop.model.opset_import if one.domain == "")
    if node.domain or workshop.schema(node) is None:
        return None
    others = _operators_like(node.op_type, version)
    if not others:
        return None
    node.op_type = workshop.draw.choice(others)
    del node.attribute[:]
    return f"is {node.op_type}", frozenset(node.output)


def inserted(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """A node on the way from a value to one reader."""
    node = place.node
    made = {name for one in place.nodes[: place.position] for name in one.output if name}
    own = [at for at, name in enumerate(node.input) if name in made and name not in workshop.constants]
    if not own:
        return None
    at = workshop.draw.choice(own)
    name, other = node.input[at], f"{node.input[at]}_planted"
    choice = workshop.draw.choice(("Neg", "Abs", "Clip", "Mul", "Cast", "Transpose", "ReduceMax", "Unsqueeze"))
    outputs = {other}
    if choice == "Cast":
        narrow = f"{name}_narrow"
        outputs.add(narrow)
        to = workshop.draw.choice([TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.INT32])
        workshop.insert(
            place,
            helper.make_node("Cast", [name], [narrow], to=to),
            helper.make_node("Cast", [narrow], [other], to=TensorProto.FLOAT),
        )
        place.nodes[place.position + 2].input[at] = other
        return f"operand {at} by way of a narrower dtype", frozenset(
            {*outputs, *place.nodes[place.position + 2].output}
        )
    extra: list[str] = []
    offset = 1
    if choice in ("Clip", "Mul", "Unsqueeze"):
        numbers = {"Clip": numpy.float32(-0.25), "Mul": numpy.float32(1.125), "Unsqueeze": numpy.array([0])}
        extra = [workshop.constant(place, numpy.asarray(numbers[choice]))]
        offset = 2
    place.nodes.insert(place.position + offset - 1, helper.make_node(choice, [name, *extra], [other]))
    reader = place.nodes[place.position + offset]
    reader.input[at] = other
    return f"operand {at} by way of {choice}", frozenset({other, *reader.output})


def left_out(workshop: Workshop, place: Place) -> tuple[str, frozenset[str]] | None:
    """A node that is left out: whoever read it reads one of its operands."""
    node = place.node
    made = {name for one in place.nodes[: place.position] for name in one.output if name}
    operands = [name for name in node.input if name in made]
    readers = [one for one in place.nodes if node.output and node.output[0] in one.input]
    has_bodies = any(one.HasField("g") for reader in readers for one in reader.attribute)
    if not operands or not readers or has_bodies or len([name for name in node.output if name]) != 1:
        return None
    instead = workshop.draw.choice(operands)
    for reader in readers:
        for at, name in enumerate(reader.input):
            if name == node.output[0]:
                reader.input[at] = instead
    outputs = frozenset(name for reader in readers for name in reader.output)
    return "left out", outputs | frozenset(node.output)


MUTATIONS: tuple[Mutation, ...] = (
    attribute,
    attribute,
    constant,
    constant,
    operands,
    another_value,
    another_weight,
    no_operand,
    operator,
    inserted,
    left_out,
)
