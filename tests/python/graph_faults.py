"""Faults planted into ONNX models at random: what a wrong lowering, a wrong fusion or a wrong weight would leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


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
            if own is None or not own.dims or own.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
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
    for node in _nodes(model, chooser, "MatMul", "Gemm", "Conv", "Attention"):
        name = node.input[0]
        if name in _constants(model):
            continue
        place = list(model.graph.node).index(node)
        narrow, wide = f"{name}_narrow", f"{name}_wide"
        model.graph.node.insert(place, helper.make_node("Cast", [narrow], [wide], to=TensorProto.FLOAT))
        model.graph.node.insert(place, helper.make_node("Cast", [name], [narrow], to=TensorProto.BFLOAT16))
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
    )
}
