"""Faults planted into ONNX models at random: what a wrong lowering, a wrong fusion or a wrong weight would leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


@dataclass(frozen=True)
class Fault:
    """What was changed: the kind, and the outputs of the nodes that compute something else since then.

    A node that was taken out leaves those that read it, all of them.
    """

    kind: str
    outputs: frozenset[str]

    def is_named_by(self, outputs: tuple[str, ...]) -> bool:
        return bool(self.outputs & set(outputs))


Plant = Callable[[onnx.ModelProto, random.Random], Fault | None]


def planted(model: onnx.ModelProto, kind: str, seed: int) -> tuple[onnx.ModelProto, Fault] | None:
    """A copy of the model with one fault of that kind at a place that the seed gives; None where there is no place."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fault = KINDS[kind](copy, random.Random(seed))
    return (copy, fault) if fault is not None else None


def _nodes(model: onnx.ModelProto, chooser: random.Random, *operators: str) -> Iterator[onnx.NodeProto]:
    """Nodes of these operators (all of them without any), in random order."""
    nodes = [node for node in model.graph.node if not operators or node.op_type in operators]
    chooser.shuffle(nodes)
    yield from nodes


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    return next((one for one in node.attribute if one.name == name), None)


def _fault(kind: str, node: onnx.NodeProto) -> Fault:
    return Fault(kind, frozenset(node.output))


def _constants(model: onnx.ModelProto) -> dict[str, TensorProto]:
    return {one.name: one for one in model.graph.initializer}


def _own_constant(model: onnx.ModelProto, node: onnx.NodeProto, position: int, value: numpy.ndarray) -> None:
    """The node reads another constant there; whoever else reads the old one still does."""
    name = f"planted_{len(model.graph.initializer)}"
    model.graph.initializer.append(numpy_helper.from_array(value, name))
    node.input[position] = name


def axis(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A softmax over another axis."""
    for node in _nodes(model, chooser, "Softmax", "LogSoftmax"):
        found = _attribute(node, "axis")
        if found is not None:
            found.i = -2 if found.i != -2 else -1
        else:
            node.attribute.append(helper.make_attribute("axis", -2))
        return _fault("axis", node)
    return None


def epsilon(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A normalization with another epsilon: ten thousand times, and never less than a thousandth."""
    for node in _nodes(model, chooser, "LayerNormalization", "RMSNormalization", "BatchNormalization"):
        found = _attribute(node, "epsilon")
        if found is None:
            found = helper.make_attribute("epsilon", 1e-5)
            node.attribute.append(found)
            found = node.attribute[-1]
        found.f = max(found.f * 1e4, 1e-3)
        return _fault("epsilon", node)
    return None


def weight(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A node reads the weight of another one of the same sizes."""
    constants = _constants(model)
    for node in _nodes(model, chooser, "MatMul", "Gemm", "LayerNormalization", "RMSNormalization", "Conv", "Mul"):
        for position, name in enumerate(node.input):
            own = constants.get(name)
            if own is None or not own.dims or own.data_type not in _FLOATS:
                continue
            others = [
                one.name
                for one in constants.values()
                if one.dims == own.dims and one.data_type == own.data_type and not _equal(one, own)
            ]
            if others:
                node.input[position] = chooser.choice(sorted(others))
                return _fault("weight", node)
    return None


def _equal(a: TensorProto, b: TensorProto) -> bool:
    return numpy.array_equal(numpy_helper.to_array(a), numpy_helper.to_array(b))


def comparison(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A mask off by one: a comparison with or without equality."""
    other = {"LessOrEqual": "Less", "Less": "LessOrEqual", "GreaterOrEqual": "Greater", "Greater": "GreaterOrEqual"}
    for node in _nodes(model, chooser, *other):
        node.op_type = other[node.op_type]
        return _fault("comparison", node)
    return None


def index(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """Positions off by one: a constant integer beside a computed one."""
    constants = _constants(model)
    for node in _nodes(model, chooser, "Add", "Sub"):
        for position, name in enumerate(node.input):
            own = constants.get(name)
            if own is not None and own.data_type == TensorProto.INT64:
                _own_constant(model, node, position, numpy_helper.to_array(own) + 1)
                return _fault("index", node)
    return None


def cast(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A value that goes through a narrower dtype on its way to one reader."""
    return _cast_around(model, chooser, TensorProto.BFLOAT16)


def _cast_around(model: onnx.ModelProto, chooser: random.Random, narrower: int) -> Fault | None:
    for node in _nodes(model, chooser, "MatMul", "Gemm", "Conv", "Attention"):
        name = node.input[0]
        if name in _constants(model):
            continue
        place = list(model.graph.node).index(node)
        narrow, wide = f"{name}_narrow", f"{name}_wide"
        model.graph.node.insert(place, helper.make_node("Cast", [narrow], [wide], to=TensorProto.FLOAT))
        model.graph.node.insert(place, helper.make_node("Cast", [name], [narrow], to=narrower))
        reader = model.graph.node[place + 2]
        reader.input[0] = wide
        return Fault("cast", frozenset({narrow, wide, *reader.output}))
    return None


def scale(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A factor that is lost: whoever read the product reads what was multiplied."""
    constants = _constants(model)
    outputs = {value.name for value in model.graph.output}
    for node in _nodes(model, chooser, "Mul", "Div"):
        factor = constants.get(node.input[1])
        if factor is None or node.output[0] in outputs or factor.data_type != TensorProto.FLOAT:
            continue
        if numpy.allclose(numpy_helper.to_array(factor), 1.0, atol=0.05):
            continue
        readers = [one for one in model.graph.node if node.output[0] in one.input]
        if not readers or any(len(one.attribute) and any(a.HasField("g") for a in one.attribute) for one in readers):
            continue
        for reader in readers:
            for position, name in enumerate(reader.input):
                if name == node.output[0]:
                    reader.input[position] = node.input[0]
        model.graph.node.remove(node)
        return Fault("scale", frozenset(name for reader in readers for name in reader.output))
    return None


def attention_scale(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """Attention with the scale of other heads."""
    for node in _nodes(model, chooser, "Attention"):
        found = _attribute(node, "scale")
        if found is not None:
            found.f *= 1.5
        else:
            node.attribute.append(helper.make_attribute("scale", 0.9))
        return _fault("attention_scale", node)
    return None


def operands(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A difference or quotient the wrong way round."""
    constants = _constants(model)
    for node in _nodes(model, chooser, "Sub", "Div"):
        if node.input[0] == node.input[1] or {*node.input} <= set(constants):
            continue
        first, second = node.input
        node.input[0], node.input[1] = second, first
        return _fault("operands", node)
    return None


def permutation(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """Two axes of equal position in another order: a transposition that forgets itself."""
    for node in _nodes(model, chooser, "Transpose"):
        found = _attribute(node, "perm")
        if found is None or list(found.ints) == sorted(found.ints):
            continue
        swapped = list(found.ints)
        swapped[0], swapped[-1] = swapped[-1], swapped[0]
        del found.ints[:]
        found.ints.extend(swapped)
        return _fault("permutation", node)
    return None


def activation(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """An activation that is another one."""
    other = {
        "Sigmoid": "HardSigmoid",
        "Tanh": "Softsign",
        "Relu": "Softplus",
        "Erf": "Tanh",
        "Sqrt": "Abs",
        "Gelu": "Elu",
    }
    for node in _nodes(model, chooser, *other):
        node.op_type = other[node.op_type]
        del node.attribute[:]
        return _fault("activation", node)
    return None


def bias(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A bias that is left out, that of an operator or one that is added behind it."""
    constants = _constants(model)
    for node in _nodes(model, chooser, "Gemm", "Conv", "LayerNormalization", "Add"):
        own = constants.get(node.input[-1])
        if own is None or own.data_type not in _FLOATS or (node.op_type == "Add") != (len(node.input) == 2):
            continue
        if numpy.abs(numpy_helper.to_array(own).astype(numpy.float64)).max(initial=0.0) < 0.05:
            continue
        _own_constant(model, node, len(node.input) - 1, numpy.zeros_like(numpy_helper.to_array(own)))
        return _fault("bias", node)
    return None


def half(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A product of matrices in float16 that was asked for in another dtype."""
    return _cast_around(model, chooser, TensorProto.FLOAT16)


def _switch(node: onnx.NodeProto, name: str) -> None:
    """Turns an attribute that is 0 unless it is given into the other of 0 and 1."""
    found = _attribute(node, name)
    if found is None:
        node.attribute.append(helper.make_attribute(name, 1))
    else:
        found.i = 1 - found.i


def rotation(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """Rotary embeddings of neighbours instead of halves, or with sine and cosine in each other's place."""
    for node in _nodes(model, chooser, "RotaryEmbedding"):
        if chooser.random() < 0.5:
            node.input[1], node.input[2] = node.input[2], node.input[1]
            return _fault("rotation", node)
        _switch(node, "interleaved")
        return _fault("rotation", node)
    return None


def sides(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """Halves that are joined in the other order, as a rotation of halves may."""
    for node in _nodes(model, chooser, "Concat"):
        if len(node.input) == 2 and node.input[0] != node.input[1] and not {*node.input} & set(_constants(model)):
            first, second = node.input
            node.input[0], node.input[1] = second, first
            return _fault("sides", node)
    return None


def row(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A look-up of the row behind the one that was meant."""
    constants = _constants(model)
    for node in _nodes(model, chooser, "Gather"):
        own = constants.get(node.input[1])
        if own is not None and own.data_type == TensorProto.INT64:
            indices = numpy_helper.to_array(own)
            _own_constant(model, node, 1, numpy.where(indices == 0, 1, indices - 1))
            return _fault("row", node)
        if own is None and node.input[0] in constants and len(constants[node.input[0]].dims) == 2:
            rows = numpy.roll(numpy_helper.to_array(constants[node.input[0]]), 1, axis=0)
            _own_constant(model, node, 0, rows)
            return _fault("row", node)
    return None


def heads(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """Keys in another order of heads than the queries that share them."""
    for node in _nodes(model, chooser, "Attention"):
        place = list(model.graph.node).index(node)
        other = f"{node.input[1]}_planted"
        if _attribute(node, "kv_num_heads") is not None:
            continue  # the heads lie in the last axis
        count = f"planted_{len(model.graph.initializer)}"
        model.graph.initializer.append(numpy_helper.from_array(numpy.array([-1, 0]), count))
        model.graph.node.insert(place, helper.make_node("Gather", [node.input[1], count], [other], axis=1))
        model.graph.node[place + 1].input[1] = other
        return Fault("heads", frozenset({other, *model.graph.node[place + 1].output}))
    return None


def causal(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """Attention that sees what comes later, or does not see it though it should; a triangle that is one off."""
    for node in _nodes(model, chooser, "Trilu", "Attention"):
        if node.op_type == "Trilu":
            own = _constants(model).get(node.input[1]) if len(node.input) > 1 else None
            value = numpy_helper.to_array(own) + 1 if own is not None else numpy.array(1)
            if len(node.input) < 2:
                node.input.append("")
            _own_constant(model, node, 1, value.astype(numpy.int64))
            return _fault("causal", node)
        _switch(node, "is_causal")
        return _fault("causal", node)
    return None


def residual(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """The sum of another layer."""
    constants = set(_constants(model))
    sums = [node for node in model.graph.node if node.op_type == "Add" and not {*node.input} & constants]
    made_by = {node.output[0]: place for place, node in enumerate(sums)}
    places = [place for place, node in enumerate(sums) if any(made_by.get(name, -1) > 0 for name in node.input)]
    if not places:
        return None
    node = sums[chooser.choice(places)]
    position = next(at for at, name in enumerate(node.input) if made_by.get(name, -1) > 0)
    node.input[position] = sums[made_by[node.input[position]] - 1].output[0]
    return _fault("residual", node)


def tied(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A weight whose values are others, for all that read it."""
    read = [name for node in model.graph.node for name in node.input]
    many = [one for one in model.graph.initializer if one.data_type in _FLOATS and one.dims]
    shared = [one for one in many if read.count(one.name) > 1] or many
    if not shared:
        return None
    own = chooser.choice(shared)
    values = numpy_helper.to_array(own)
    own.CopyFrom(numpy_helper.from_array((values + numpy.roll(values, 1, axis=0)).astype(values.dtype), own.name))
    readers = [node for node in model.graph.node if own.name in node.input]
    return Fault("tied", frozenset(name for node in readers for name in node.output))


def branches(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A choice the wrong way round."""
    for node in _nodes(model, chooser, "Where"):
        node.input[1], node.input[2] = node.input[2], node.input[1]
        return _fault("branches", node)
    return None


def window(model: onnx.ModelProto, chooser: random.Random) -> Fault | None:
    """A slice that begins one later and ends one later."""
    constants = _constants(model)
    for node in _nodes(model, chooser, "Slice"):
        begin, end = (constants.get(name) for name in node.input[1:3])
        if begin is None or end is None or numpy_helper.to_array(begin).min(initial=0) < 0:
            continue
        ends = numpy_helper.to_array(end)
        _own_constant(model, node, 1, numpy_helper.to_array(begin) + 1)
        _own_constant(model, node, 2, numpy.where(ends < 2**31, ends + 1, ends))
        return _fault("window", node)
    return None


KINDS: Mapping[str, Plant] = {
    one.__name__: one
    for one in (
        axis,
        epsilon,
        weight,
        comparison,
        index,
        cast,
        scale,
        attention_scale,
        operands,
        permutation,
        activation,
        bias,
        half,
        rotation,
        sides,
        row,
        heads,
        causal,
        residual,
        tied,
        branches,
        window,
    )
}
