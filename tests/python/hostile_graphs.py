"""Models that no exporter writes: right ones that are damaged at random, in their bytes, their graphs and their sizes.

Each is read, checked, optimized, run and compared with the right one: an error of the package, or a result, and never
another exception or a crash.

python tests/python/hostile_graphs.py --rounds 5000 --seed 1      # more than the test does
"""

from __future__ import annotations

import argparse
import faulthandler
import random
from collections.abc import Callable

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

import exportguard
from exportguard.errors import ExportGuardError
from fault_models import FAMILIES

Damage = Callable[[onnx.ModelProto, random.Random], None]
NUMBERS = (-(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 1000, 2**31, 2**40, 2**62, 2**63 - 1)


def _node(model: onnx.ModelProto, draw: random.Random) -> onnx.NodeProto:
    return draw.choice(list(model.graph.node))


def _values(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    made = [name for node in graph.node for name in node.output]
    return [
        *made,
        *(one.name for one in graph.initializer),
        *(one.name for one in graph.input),
        "",
        "nobody makes this",
    ]


def rewire(model: onnx.ModelProto, draw: random.Random) -> None:
    """Reads any other value: a later one, its own output, one that does not exist."""
    node = _node(model, draw)
    if node.input:
        node.input[draw.randrange(len(node.input))] = draw.choice(_values(model))


def fewer_or_more_inputs(model: onnx.ModelProto, draw: random.Random) -> None:
    node = _node(model, draw)
    if draw.random() < 0.5 and node.input:
        node.input.pop()
    else:
        node.input.extend([draw.choice(_values(model))] * draw.choice([1, 1, 9]))


def other_outputs(model: onnx.ModelProto, draw: random.Random) -> None:
    node = _node(model, draw)
    if draw.random() < 0.5:
        node.output.append(draw.choice(["more", "", *node.output]))
    else:
        node.output[0] = draw.choice(_values(model))


def other_operator(model: onnx.ModelProto, draw: random.Random) -> None:
    node = _node(model, draw)
    names = [
        "MatMul",
        "Reshape",
        "Expand",
        "Loop",
        "If",
        "Split",
        "Concat",
        "Range",
        "Tile",
        "Pad",
        "Resize",
        "NoSuchOp",
    ]
    node.op_type = draw.choice([*names, _node(model, draw).op_type])


def other_attributes(model: onnx.ModelProto, draw: random.Random) -> None:
    node = _node(model, draw)
    if node.attribute and draw.random() < 0.7:
        attribute = draw.choice(list(node.attribute))
        attribute.i = draw.choice(NUMBERS)
        attribute.f = draw.choice([float("nan"), 1e38, -1.0])
        for place in range(len(attribute.ints)):
            if draw.random() < 0.5:
                attribute.ints[place] = draw.choice(NUMBERS)
        if draw.random() < 0.3:
            attribute.type = draw.choice(list(onnx.AttributeProto.AttributeType.values()))
    else:
        name = draw.choice(["axis", "perm", "axes", "scale", "body", "value", "to"])
        value = draw.choice([draw.choice(NUMBERS), [draw.choice(NUMBERS)] * 3, "text", 0.5])
        node.attribute.append(helper.make_attribute(name, value))


def other_sizes(model: onnx.ModelProto, draw: random.Random) -> None:
    """Sizes that the elements do not have, and constants of integers that are anything."""
    initializers = list(model.graph.initializer)
    if not initializers:
        return
    tensor = draw.choice(initializers)
    if tensor.data_type == TensorProto.INT64 and draw.random() < 0.7:
        values = numpy_helper.to_array(tensor).copy()
        values.flat[draw.randrange(values.size) if values.size else 0 : None] = draw.choice(NUMBERS)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    elif tensor.dims and draw.random() < 0.5:
        tensor.dims[draw.randrange(len(tensor.dims))] = draw.choice(NUMBERS)
    else:
        tensor.dims.append(draw.choice(NUMBERS))


def other_types(model: onnx.ModelProto, draw: random.Random) -> None:
    graph = model.graph
    value = draw.choice([*graph.input, *graph.output, *graph.value_info])
    if draw.random() < 0.5:
        value.type.tensor_type.elem_type = draw.choice([0, 1, 7, 8, 10, 16, 23, 999])
    else:
        value.type.tensor_type.shape.dim.add().dim_value = draw.choice(NUMBERS)


def order(model: onnx.ModelProto, draw: random.Random) -> None:
    nodes = list(model.graph.node)
    first, second = draw.randrange(len(nodes)), draw.randrange(len(nodes))
    nodes[first], nodes[second] = nodes[second], nodes[first]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def outputs(model: onnx.ModelProto, draw: random.Random) -> None:
    if draw.random() < 0.3:
        del model.graph.output[:]
    else:
        model.graph.output.add().name = draw.choice(_values(model))


def nested(model: onnx.ModelProto, draw: random.Random) -> None:
    """Bodies within bodies, deeper than anybody writes them."""
    name = draw.choice(_values(model)[:-2])
    graph = helper.make_graph([helper.make_node("Identity", [name], ["inner"])], "g", [], [_untyped("inner")])
    for depth in range(draw.choice([2, 10, 20])):
        node = helper.make_node(
            "If", ["yes"], [f"o{depth}"], then_branch=graph, else_branch=graph if depth < 3 else None
        )
        graph = helper.make_graph([node], "g", [], [_untyped(f"o{depth}")])
    shape = draw.choice([[], [2]])
    model.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, shape, [True] * (2 if shape else 1)))
    model.graph.node.append(helper.make_node("If", ["yes"], ["deep"], then_branch=graph, else_branch=graph))
    model.graph.output.add().name = "deep"


def _untyped(name: str) -> onnx.ValueInfoProto:
    return helper.make_empty_tensor_value_info(name)


def functions(model: onnx.ModelProto, draw: random.Random) -> None:
    """Local functions that call each other in a circle, or hide an operator of ONNX."""
    names = draw.choice([("own", "F", "F"), ("own", "F", "G"), ("", "Add", "Add")])
    domain, first, second = names
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("own", 1)]
    for name, called in {(first, second), (second, first)}:
        body = [helper.make_node(called, ["x"], ["y"], domain=domain)]
        model.functions.append(helper.make_function(domain, name, ["x"], ["y"], body, imports))
    model.opset_import.append(helper.make_opsetid("own", 1))
    node = _node(model, draw)
    node.op_type, node.domain = first, domain
    del node.attribute[:]


DAMAGES: tuple[Damage, ...] = (
    rewire,
    fewer_or_more_inputs,
    other_outputs,
    other_operator,
    other_attributes,
    other_sizes,
    other_types,
    order,
    outputs,
    nested,
    functions,
)


def damaged(model: onnx.ModelProto, draw: random.Random) -> bytes:
    """The bytes of a copy with one to three damages, and now and then damaged themselves."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(draw.choice([0, 1, 1, 1, 2, 3])):
        draw.choice(DAMAGES)(copy, draw)
    data = bytearray(copy.SerializeToString())
    if draw.random() < 0.25:
        del data[draw.randrange(len(data)) :]
    if draw.random() < 0.25:
        for _ in range(draw.choice([1, 3, 20])):
            if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(data)


def try_model(data: bytes, right: exportguard.OnnxModel, inputs: dict[str, torch.Tensor]) -> str:
    """What came of it, in one word."""
    try:
        model = exportguard.load(data)
        model._core.verify()
        model.text()
        model.run(inputs, runner="evaluator")
        exportguard.compare(right, model, inputs)
        model.optimize()
        model.run(inputs, runner="evaluator")
        model.to_bytes()
    except ExportGuardError:
        return "error"
    return "result"


def main() -> None:
    """Prints how many gave a result and how many an error; whatever else happens ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    torch.manual_seed(0)
    cases = []
    for make in FAMILIES.values():
        module, args, shapes = make(1)
        model = exportguard.to_onnx(module, args, dynamic_shapes=shapes, opset=23)
        inputs = {value.name: tensor for value, tensor in zip(model.inputs, args, strict=True)}
        cases.append((model, onnx.load_from_string(model.to_bytes()), inputs))
    counts: dict[str, int] = {}
    for number in range(options.rounds):
        draw = random.Random(f"{options.seed} {number}")
        model, proto, inputs = draw.choice(cases)
        data = damaged(proto, draw)
        try:
            word = try_model(data, model, inputs)
        except BaseException:
            print(f"seed {options.seed}, model {number}", flush=True)
            raise
        counts[word] = counts.get(word, 0) + 1
    print(", ".join(f"{count} {word}s" for word, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
