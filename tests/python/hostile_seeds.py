"""Models that are hostile by design, class by class: what a damaged right model seldom becomes.

Ranks, cycles, inputs that are missing, sizes that no machine holds, attributes of another kind, bodies that read what
is not there, counts below zero, external data out of range. Each is read, checked, optimized and run in a process whose
memory is bounded: an error of the package or a result, never another exception, a crash or a large allocation.

python tests/python/hostile_seeds.py --rounds 500 --seed 1      # more than the test does
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import torch
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

import exportguard
from exportguard.errors import ExportGuardError

NUMBERS = (-(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 255, 2**31, 2**33, 2**40, 2**62, 2**63 - 1)
MOST_BYTES = 2 << 30  # that a model may make the process grow by; those that are right take a few thousand
Seed = Callable[[random.Random], ModelProto]


def model_of(
    nodes: list[NodeProto], outputs: list[str], constants: Mapping[str, Any] | None = None, opset: int = 23
) -> ModelProto:
    """Reads `x`, f32[2,3], and `n`, an int64."""
    graph = helper.make_graph(
        nodes,
        "hostile",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]), helper.make_tensor_value_info("n", 7, [])],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [constant(name, value) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def constant(name: str, values: Any) -> TensorProto:
    """A list of whole numbers, or zeros of a shape that is given as a tuple."""
    if isinstance(values, tuple):
        return helper.make_tensor(name, TensorProto.FLOAT, values, [0.5] * torch.Size(values).numel())
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def body(nodes: list[NodeProto], inputs: list[str], outputs: list[str]) -> GraphProto:
    return helper.make_graph(nodes, "body", [_untyped(name) for name in inputs], [_untyped(name) for name in outputs])


def _untyped(name: str) -> onnx.ValueInfoProto:
    return helper.make_empty_tensor_value_info(name)


def _numbers(draw: random.Random, most: int = 4) -> list[int]:
    return [draw.choice(NUMBERS) for _ in range(draw.randint(0, most))]


def ranks(draw: random.Random) -> ModelProto:
    """Weights of any rank where a rank is fixed."""
    operator, count = draw.choice(
        [("MatMul", 2), ("Gemm", 3), ("Conv", 3), ("ConvTranspose", 2), ("LayerNormalization", 3), ("GRU", 3),
         ("LSTM", 3), ("BatchNormalization", 5), ("Concat", 3), ("ScatterND", 3), ("Attention", 3),
         ("GroupNormalization", 3), ("GridSample", 2), ("RotaryEmbedding", 3), ("InstanceNormalization", 3),
         ("Det", 1), ("DepthToSpace", 1), ("MaxPool", 1), ("LpPool", 1), ("GlobalAveragePool", 1), ("RoiAlign", 3),
         ("Col2Im", 3), ("CumSum", 2)]
    )  # fmt: skip
    constants = {f"w{i}": tuple(draw.choice([0, 1, 2, 3]) for _ in range(draw.randint(0, 6))) for i in range(count)}
    inputs = ["x" if draw.random() < 0.2 else name for name in constants]
    settings = {"axis": 0} if operator == "Concat" else {}
    settings |= {"hidden_size": draw.choice([0, 1, 3])} if operator in ("GRU", "LSTM") else {}
    settings |= {"kernel_shape": [2, 2]} if operator in ("MaxPool", "LpPool") else {}
    settings |= {"num_groups": draw.choice([0, 1, 2])} if operator == "GroupNormalization" else {}
    settings |= {"blocksize": 2} if operator == "DepthToSpace" else {}
    return model_of([helper.make_node(operator, inputs, ["y"], **settings)], ["y"], constants)


def cycles(draw: random.Random) -> ModelProto:
    """A node reads itself, two each other, a body what its own node makes."""
    own = helper.make_node("Add", ["x", "y"], ["y"])
    pair = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    inner = body([helper.make_node("Identity", ["y"], ["r"])], [], ["r"])
    nested = [
        helper.make_node("Equal", ["n", "n"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
    ]
    nodes, name = draw.choice([([own], "y"), (pair, "b"), (pair[::-1], "a"), (nested, "y")])
    return model_of(nodes, [name, "x"])


def missing_inputs(draw: random.Random) -> ModelProto:
    """Inputs that an operator needs are left out, in front and behind."""
    names = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})
    inputs = [draw.choice(["", "", "x", "n", "w"]) for _ in range(draw.randint(0, 4))]
    outputs = [draw.choice(["y", "y", ""]), *draw.choice([[], ["z"], ["", "z"]])]
    node = helper.make_node(draw.choice(names), inputs, outputs)
    return model_of([node], [name for name in outputs if name] or ["x"], {"w": [1, 2]})


def huge_sizes(draw: random.Random) -> ModelProto:
    """Sizes whose product no machine holds, or does not fit an integer; constants, and computed when it runs."""
    sizes = [abs(max(value, 1 - 2**63)) if draw.random() < 0.9 else value for value in _numbers(draw)] or [2**62, 4]
    settings: dict[str, Any] = {}
    operator, inputs = draw.choice(
        [("ConstantOfShape", ["s"]), ("Expand", ["x", "s"]), ("Tile", ["x", "s"]), ("Reshape", ["x", "s"]),
         ("Range", ["a", "b", "c"]), ("Pad", ["x", "p"]), ("Resize", ["x", "", "", "s2"]),
         ("OneHot", ["s", "b", "v"]), ("RandomNormal", []), ("RandomUniform", []), ("Trilu", ["x", "b"]),
         ("Split", ["x"]), ("TopK", ["x", "k"]), ("CenterCropPad", ["x", "s2"]), ("Upsample", ["x", "s2"]),
         ("MelWeightMatrix", ["b", "b", "b", "f", "f"]), ("HannWindow", ["b"]), ("BlackmanWindow", ["b"]),
         ("DFT", ["x3", "b"]), ("STFT", ["x3", "b"]), ("EyeLike", ["x"])]
    )  # fmt: skip
    if operator in ("RandomNormal", "RandomUniform"):
        settings["shape"] = sizes
    if operator == "Split":
        settings["num_outputs"] = draw.choice(NUMBERS)
    if operator == "EyeLike":
        settings["k"] = draw.choice(NUMBERS)
    constants: dict[str, Any] = {"s": sizes, "s2": _numbers(draw)[:2] or [1, 2**40], "p": [draw.choice(NUMBERS)] * 4}
    constants |= {"k": [draw.choice(NUMBERS)], "v": [0, 1], "x3": (1, 4, 1), "f": (1,)}
    model = model_of([helper.make_node(operator, inputs, ["y"], **settings)], ["y"], constants)
    for name in "abc":
        number = helper.make_tensor(name, TensorProto.INT64, [], [draw.choice(NUMBERS)])
        model.graph.initializer.append(number)
    if "s" in inputs and draw.random() < 0.5:  # known only when it runs
        model.graph.node.insert(0, helper.make_node("Add", ["s", "n"], ["t"]))
        node = model.graph.node[1]
        node.input[list(node.input).index("s")] = "t"
    return model


def attributes(draw: random.Random) -> ModelProto:
    """Attributes of another kind than the operator's, without a value, or with numbers that nothing is."""
    operator, name, inputs = draw.choice(
        [("Cast", "to", 1), ("Constant", "value", 0), ("ConstantOfShape", "value", 1), ("Softmax", "axis", 1),
         ("Transpose", "perm", 1), ("Concat", "axis", 2), ("Gather", "axis", 2), ("Split", "num_outputs", 1),
         ("Flatten", "axis", 1), ("DepthToSpace", "blocksize", 1), ("MaxPool", "kernel_shape", 1),
         ("Conv", "group", 2), ("Conv", "pads", 2), ("Conv", "strides", 2), ("Conv", "dilations", 2),
         ("RandomNormal", "dtype", 0), ("RandomNormal", "shape", 0), ("EyeLike", "dtype", 1),
         ("QuantizeLinear", "block_size", 3), ("Einsum", "equation", 2), ("LSTM", "hidden_size", 3),
         ("LayerNormalization", "axis", 2), ("LayerNormalization", "epsilon", 2), ("Multinomial", "sample_size", 1),
         ("Bernoulli", "dtype", 1), ("TopK", "axis", 2), ("LRN", "size", 1), ("MaxUnpool", "kernel_shape", 2),
         ("GroupNormalization", "num_groups", 3), ("Attention", "q_num_heads", 3), ("BitShift", "direction", 2),
         ("If", "then_branch", 1), ("Loop", "body", 1), ("Scan", "num_scan_inputs", 1)]
    )  # fmt: skip
    constants = {f"w{i}": draw.choice([(1, 2, 4, 4), (2, 3), (), [1, 2]]) for i in range(inputs)}
    node = helper.make_node(operator, list(constants), ["y"])
    attribute = AttributeProto(name=name, type=draw.choice([*AttributeProto.AttributeType.values()]))
    attribute.i = draw.choice(NUMBERS)
    attribute.f = draw.choice([float("nan"), float("inf"), -1.0])
    attribute.s = draw.choice([b"", b"\xff\xfe", b"x" * 1000])
    attribute.ints.extend(_numbers(draw, 5))
    if draw.random() < 0.6:
        attribute.t.CopyFrom(_wrong_tensor(draw))
    node.attribute.append(attribute)
    return model_of([node], ["y"], constants, draw.choice([18, 20, 23, 25]))


def _wrong_tensor(draw: random.Random) -> TensorProto:
    """Its elements are not as many as its sizes say, or of a type that is none."""
    tensor = TensorProto(name="t", data_type=draw.choice([0, 1, 2, 7, 8, 9, 16, 17, 21, 22, 23, 24, 999, -1]))
    tensor.dims.extend(_numbers(draw))
    if draw.random() < 0.6:
        tensor.raw_data = bytes(draw.choice([0, 1, 3, 4, 8, 1000]))
    else:
        tensor.int64_data.extend(_numbers(draw))
        tensor.float_data.extend([0.5] * draw.randint(0, 3))
    return tensor


def tensors(draw: random.Random) -> ModelProto:
    """Initializers like that."""
    model = model_of([helper.make_node("Identity", ["t"], ["y"])], ["y"])
    model.graph.initializer.append(_wrong_tensor(draw))
    return model


def bodies(draw: random.Random) -> ModelProto:
    """Bodies that read names of nobody, of later nodes and of other bodies, and have too many or too few outputs."""
    read = draw.choice(["nobody", "later", "inner", "x", "n"])
    inner = [helper.make_node("Identity", [read], ["r"]), helper.make_node("Identity", ["x"], ["inner"])]
    one = body(
        inner[: draw.choice([1, 2])], draw.choice([[], ["extra"]]), draw.choice([["r"], ["r", "r"], [], ["other"]])
    )
    other = body([helper.make_node("Identity", ["inner"], ["r"])], [], ["r"])
    node = helper.make_node("If", ["c"], ["y"], then_branch=one, else_branch=draw.choice([one, other]))
    nodes = [helper.make_node("Equal", ["n", "n"], ["c"]), node, helper.make_node("Neg", ["x"], ["later"])]
    return model_of(nodes, ["y", "later"])


def loops(draw: random.Random) -> ModelProto:
    """Counts below zero, conditions that are no bool, other signatures, scans along axes that are not there."""
    outputs = draw.choice([["c", "s"], ["c"], ["s", "c"], ["c", "s", "s"], ["c", "s", "s"], []])
    inputs = draw.choice([["i", "c", "s"], ["i", "c", "s"], ["i", "c"], [], ["i", "c", "s", "u"]])
    nodes = [helper.make_node(draw.choice(["Identity", "Neg", "Shape"]), ["x"], ["made"])]
    graph = body(nodes, inputs, [name if name in inputs else "made" for name in outputs])
    if draw.random() < 0.6:
        count = draw.choice([-(2**63), -1, 0, 1, 3])
        node = helper.make_node(
            "Loop", [draw.choice(["m", "n", "x"]), draw.choice(["", "t", "x"]), "x"], ["y", "z"], body=graph
        )
    else:
        count = 1
        axes = [draw.choice(NUMBERS)] * draw.randint(1, 3)
        node = helper.make_node(
            "Scan", ["x", "x"], ["y", "z"], body=graph, num_scan_inputs=draw.choice(NUMBERS),
            scan_input_axes=axes, scan_output_axes=axes, scan_input_directions=axes
        )  # fmt: skip
    model = model_of([node], ["y", "z"])
    model.graph.initializer.append(helper.make_tensor("m", TensorProto.INT64, [], [count]))
    model.graph.initializer.append(helper.make_tensor("t", TensorProto.BOOL, draw.choice([[], [1]]), [False]))
    return model


def sequences(draw: random.Random) -> ModelProto:
    """Places that are not in a sequence, pieces of nothing, optionals that are empty."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", draw.choice(["x", "n"])], ["q"]),
        helper.make_node("SplitToSequence", ["x", "k"], ["p"], axis=draw.choice([0, 1, 5, -9])),
        helper.make_node(draw.choice(["SequenceAt", "SequenceErase"]), [draw.choice(["q", "p", "x"]), "k"], ["y"]),
        helper.make_node("SequenceInsert", [draw.choice(["q", "x"]), "x", "k"], ["z"]),
        helper.make_node("ConcatFromSequence", [draw.choice(["q", "z", "x"])], ["u"], axis=draw.choice([0, 7])),
        helper.make_node("OptionalGetElement", [draw.choice(["q", "x", "o"])], ["v"]),
    ]
    kept = draw.sample(nodes[2:], 2)
    model = model_of([*nodes[:2], *kept], [node.output[0] for node in kept])
    model.graph.initializer.append(helper.make_tensor("k", TensorProto.INT64, [], [draw.choice(NUMBERS)]))
    return model


def windows(draw: random.Random) -> ModelProto:
    """Kernels, strides and pads of nothing, of less, and of more than there is."""
    operator = draw.choice(["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "Col2Im", "MaxUnpool"])
    settings: dict[str, Any] = {}
    names = ["kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape"]
    for name in draw.sample(names, draw.randint(1, 4)):
        settings[name] = [draw.choice(NUMBERS) for _ in range(draw.choice([1, 2, 2, 4, 4, 6]))]
    if draw.random() < 0.3:
        settings["group"] = draw.choice(NUMBERS)
    pooled = operator in ("MaxPool", "AveragePool", "LpPool")
    inputs = ["image"] if pooled else ["image", *draw.choice([["w"], ["w", "s"], ["s", "s"]])]
    constants = {"image": (1, 2, 5, 5), "w": (2, 2, 2, 2), "s": _numbers(draw)}
    return model_of([helper.make_node(operator, inputs, ["y"], **settings)], ["y"], constants)


def headers(draw: random.Random) -> ModelProto:
    """Versions that are none, names that are taken twice, sizes of inputs that nothing has."""
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], ["y"], {"w": (2, 3)}, draw.choice([1, 17, 23, 25]))
    kind = draw.randrange(7)
    if kind == 0:
        model.opset_import[0].version = draw.choice([-1, 0, 999, 2**62])
    elif kind == 1:
        model.graph.initializer.append(constant("y", (2, 3)))
    elif kind == 2:
        model.graph.node.append(helper.make_node("Neg", ["x"], ["y"]))
    elif kind == 3:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = draw.choice(NUMBERS)
    elif kind == 4:
        model.graph.input.append(model.graph.input[0])
    elif kind == 5:
        model.ir_version = draw.choice([-1, 0, 999])
    else:
        del model.opset_import[:]
    return model


def external(draw: random.Random) -> ModelProto:
    """Data that lies elsewhere, ends before it should, or begins behind its end; the file has 64 bytes."""
    tensor = TensorProto(name="t", data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.dims.extend(draw.choice([[4], [4, 4], [0], [2**40], [-1], [2**62, 4]]))
    places = [
        "data",
        "data",
        "data",
        "../data",
        "/etc/hostname",
        "none",
        "",
        ".",
        "link",
        "a\0b",
        "x" * 5000,
        "fifo/../data",
    ]
    entries = {"location": draw.choice(places)}
    for key in ("offset", "length"):
        if draw.random() < 0.8:
            entries[key] = draw.choice(["0", "16", "64", "65", "-1", str(2**63), str(2**62), "1e3", "", "x"])
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    model = model_of([helper.make_node("Identity", ["t"], ["y"])], ["y"])
    model.graph.initializer.append(tensor)
    return model


SEEDS: tuple[Seed, ...] = (
    ranks,
    cycles,
    missing_inputs,
    huge_sizes,
    attributes,
    tensors,
    bodies,
    loops,
    sequences,
    windows,
    headers,
    external,
)


def try_file(file: Path) -> str:
    """What came of it, in one word: a result if it ran. What one step refuses the next ones are given all the same."""
    try:
        model = exportguard.load(file)
    except ExportGuardError:
        return "error"
    inputs = {"x": torch.ones(2, 3), "n": torch.tensor(2)}
    steps: tuple[Callable[[], object], ...] = (
        model.text,
        model._core.verify,
        lambda: model.run(inputs, runner="evaluator"),
        model.to_bytes,
        model.optimize,
        lambda: model.run(inputs, runner="evaluator"),
    )
    ran = [_is_done(step) for step in steps]
    return "result" if ran[2] else "error"


def _is_done(step: Callable[[], object]) -> bool:
    try:
        step()
    except ExportGuardError:
        return False
    return True


def bounded() -> None:
    """Ends the process's growth: what asks for more gets no memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Prints how many of each kind gave a result and how many an error; whatever else happens ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="models of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=[seed.__name__ for seed in SEEDS])
    options = parser.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    bounded()
    counts: Counter[tuple[str, str]] = Counter()
    with TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        (folder / "data").write_bytes(bytes(64))
        (folder / "link").symlink_to("/etc/hostname")
        for seed in (seed for seed in SEEDS if seed.__name__ in options.kinds):
            for number in range(options.rounds):
                model = seed(random.Random(f"{options.seed} {seed.__name__} {number}"))
                file = folder / "model.onnx"
                file.write_bytes(model.SerializeToString())
                try:
                    counts[seed.__name__, try_file(file)] += 1
                except BaseException:
                    print(f"{seed.__name__}, seed {options.seed}, model {number}", flush=True)
                    raise
    for (kind, word), count in sorted(counts.items()):
        print(f"{kind}: {count} {word}s")


if __name__ == "__main__":
    main()
