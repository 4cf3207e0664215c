"""Graphs that look like what a pattern of the optimizer matches, and may be something else.

A graph in the text format, without types between its inputs and outputs, is changed in one place at a time: an operand,
an attribute, a constant, an operator, a type, what is read besides. Most of what comes out is still a graph, and has an
answer of its own, which an optimizer must keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

NODE = re.compile(
    r"^(?P<indent> *)(?P<outputs>%\S+(?:, %\S+)*) = (?P<op>[\w.:]+)\((?P<inputs>[^)]*)\)(?: \{(?P<attributes>.*)\})?$"
)
INPUT = re.compile(r"%(?P<name>\w+): (?P<dtype>\w+)\[(?P<shape>[^\]]*)\](?: = \{(?P<elements>[^}]*)\})?")
ATTRIBUTE = re.compile(r"(\w+)=(\[[^\]]*\]|\"[^\"]*\"|\w+\[[^\]]*\]\{[^}]*\}|[-\w.]+)")
SIBLINGS = {
    "Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Sin": "Cos", "Cos": "Sin", "Sqrt": "Exp", "And": "Or",
    "Or": "And", "Neg": "Abs", "Reciprocal": "Neg", "ReduceMean": "ReduceSum", "Tanh": "Sigmoid", "Sigmoid": "Tanh",
    "Softmax": "LogSoftmax", "Erf": "Tanh", "Relu": "Neg", "Exp": "Neg", "MaxPool": "AveragePool", "Not": "Identity",
    "RMSNormalization": "LayerNormalization", "LayerNormalization": "RMSNormalization",
}  # fmt: skip
BETWEEN = ("Neg", "Abs", "Relu", "Not", "Transpose", "f16", "Identity")


@dataclass(frozen=True)
class Input:
    """An input, or with elements an initializer."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    elements: tuple[str, ...] | None = None

    def __str__(self) -> str:
        content = "" if self.elements is None else f" = {{{', '.join(self.elements)}}}"
        return f"%{self.name}: {self.dtype}[{','.join(self.shape)}]{content}"


@dataclass(frozen=True)
class Node:
    """A line with one node, of the main graph or of a nested one."""

    indent: str
    outputs: tuple[str, ...]
    op: str
    inputs: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        attributes = ", ".join(f"{name}={value}" for name, value in self.attributes)
        written = f"{self.indent}{', '.join(self.outputs)} = {self.op}({', '.join(self.inputs)})"
        return f"{written} {{{attributes}}}" if attributes else written


@dataclass(frozen=True)
class Program:
    """A graph taken apart; lines that are no plain node stay text."""

    inputs: tuple[Input, ...]
    lines: tuple[Node | str, ...]
    outputs: tuple[str, ...]
    opset: int = 25

    @classmethod
    def parse(cls, text: str) -> Program:
        head, *body, last = text.strip().split("\n")
        inputs = tuple(
            Input(m["name"], m["dtype"], _listed(m["shape"]), None if m["elements"] is None else _listed(m["elements"]))
            for m in INPUT.finditer(head)
        )
        return cls(inputs, tuple(map(_line, body)), _listed(last.strip().removeprefix("return (").removesuffix(")")))

    def __str__(self) -> str:
        head = f"opset {self.opset}\ngraph({', '.join(map(str, self.inputs))}):"
        return "\n".join([head, *map(str, self.lines), f"  return ({', '.join(self.outputs)})", ""])

    def with_input(self, i: int, **changes: object) -> Program:
        changed = replace(self.inputs[i], **changes)  # type: ignore[arg-type]
        return replace(self, inputs=(*self.inputs[:i], changed, *self.inputs[i + 1 :]))

    def with_node(self, i: int, **changes: object) -> Program:
        changed = replace(self.lines[i], **changes)  # type: ignore[type-var]
        return replace(self, lines=(*self.lines[:i], changed, *self.lines[i + 1 :]))

    def with_line_before(self, i: int, *lines: Node | str) -> Program:
        return replace(self, lines=(*self.lines[:i], *lines, *self.lines[i:]))

    def nodes(self) -> Iterator[tuple[int, Node]]:
        return ((i, line) for i, line in enumerate(self.lines) if isinstance(line, Node))

    @property
    def symbols(self) -> list[str]:
        names = (name for value in self.inputs for dim in value.shape for name in re.findall(r"[a-z]\w*", dim))
        return sorted(set(names))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _line(text: str) -> Node | str:
    match = NODE.match(text)
    if match is None:
        return text
    attributes = tuple(ATTRIBUTE.findall(match["attributes"] or ""))
    return Node(match["indent"], _listed(match["outputs"]), match["op"], _listed(match["inputs"]), attributes)


# ------------------------------------------------------------------------------------------------ changes


def look_alikes(program: Program) -> Iterator[Program]:
    """Every graph that differs in one place, in an order that does not change from run to run."""
    for change in CHANGES:
        yield from change(program)


def operands(program: Program) -> Iterator[Program]:
    """Two operands change places, or another value takes the place of one."""
    known = [f"%{value.name}" for value in program.inputs]
    for i, node in program.nodes():
        if len(node.inputs) > 1:
            yield program.with_node(i, inputs=(node.inputs[1], node.inputs[0], *node.inputs[2:]))
        if len(node.inputs) > 3:
            yield program.with_node(i, inputs=node.inputs[:-1])
        for k, operand in enumerate(node.inputs):
            for other in known:
                if other != operand:
                    yield program.with_node(i, inputs=(*node.inputs[:k], other, *node.inputs[k + 1 :]))
        known += node.outputs if node.indent == "  " else ()


def attributes(program: Program) -> Iterator[Program]:
    """An attribute has another value, or its default."""
    for i, node in program.nodes():
        for k, (name, value) in enumerate(node.attributes):
            rest = (node.attributes[:k], node.attributes[k + 1 :])
            yield program.with_node(i, attributes=rest[0] + rest[1])
            for other in _other_values(name, value):
                yield program.with_node(i, attributes=(*rest[0], (name, other), *rest[1]))


def _other_values(name: str, value: str) -> Iterator[str]:
    if re.fullmatch(r"-?\d+", value):
        yield from (str(int(value) + step) for step in (-2, -1, 1, 2))
    elif re.fullmatch(r"-?[\d.]+", value):
        yield from (str(2 * float(value)), "0.0", str(-float(value)))
    elif value.startswith("["):
        parts = _listed(value[1:-1])
        for i in range(len(parts) - 1):
            swapped = [*parts[:i], parts[i + 1], parts[i], *parts[i + 2 :]]
            yield f"[{', '.join(swapped)}]"
        yield f"[{', '.join(str(int(part) + 1) for part in parts)}]"
    elif "true" in value:
        yield value.replace("true", "false")


def further_attributes(program: Program) -> Iterator[Program]:
    """An attribute that the pattern does not speak of."""
    added = {
        "Attention": (("softcap", "0.5"), ("is_causal", "1"), ("scale", "0.25")),
        "Cast": (("saturate", "0"),),
        "RMSNormalization": (("stash_type", "10"),),
        "LayerNormalization": (("stash_type", "10"),),
        "MaxPool": (("dilations", "[2, 2]"), ("ceil_mode", "1"), ("pads", "[1, 1, 1, 1]"), ("strides", "[2, 2]")),
        "Conv": (("dilations", "[2, 2]"), ("auto_pad", '"SAME_UPPER"'), ("strides", "[2, 1]")),
        "Gemm": (("beta", "0.5"), ("transA", "1")),
        "ReduceMean": (("noop_with_empty_axes", "1"),),
        "Reshape": (("allowzero", "1"),),
        "RotaryEmbedding": (("interleaved", "1"), ("rotary_embedding_dim", "2")),
        "Shape": (("start", "1"), ("end", "1")),
        "GatherND": (("batch_dims", "1"),),
    }
    for i, node in program.nodes():
        for name, value in added.get(node.op, ()):
            if name not in dict(node.attributes):
                yield program.with_node(i, attributes=(*node.attributes, (name, value)))


def further_outputs(program: Program) -> Iterator[Program]:
    """A result that the operator gives besides, and the pattern does not speak of."""
    most = {"Attention": 4, "LayerNormalization": 3, "MaxPool": 2, "Dropout": 2}
    for i, node in program.nodes():
        for count in range(len(node.outputs) + 1, most.get(node.op, 0) + 1):
            new = tuple(f"%further{i}_{k}" for k in range(len(node.outputs), count))
            changed = program.with_node(i, outputs=(*node.outputs, *new))
            yield replace(changed, outputs=(*program.outputs, *new))


def operators(program: Program) -> Iterator[Program]:
    """Another operator of the same operands."""
    for i, node in program.nodes():
        if node.op in SIBLINGS:
            yield program.with_node(i, op=SIBLINGS[node.op])


def between(program: Program) -> Iterator[Program]:
    """Something is computed between two nodes."""
    for i, node in program.nodes():
        for k, operand in enumerate(node.inputs):
            for op in BETWEEN:
                new = f"%between{i}"
                changed = program.with_node(i, inputs=(*node.inputs[:k], new, *node.inputs[k + 1 :]))
                yield changed.with_line_before(i, *_computed(op, node.indent, operand, new))


def _computed(op: str, indent: str, operand: str, new: str) -> list[Node | str]:
    if op != "f16":
        return [Node(indent, (new,), op, (operand,))]
    return [
        Node(indent, (f"{new}_narrow",), "Cast", (operand,), (("to", "10"),)),
        Node(indent, (new,), "Cast", (f"{new}_narrow",), (("to", "1"),)),
    ]


def constants(program: Program) -> Iterator[Program]:
    """Another number, another rank, or an input in its place."""
    for i, value in enumerate(program.inputs):
        if value.elements is None:
            continue
        yield program.with_input(i, elements=None)
        yield program.with_input(i, shape=("1", *value.shape))
        yield program.with_input(i, shape=("1", "1", "1", "1", *value.shape))
        for k, element in enumerate(value.elements[:6]):
            for other in _other_elements(value.dtype, element):
                yield program.with_input(i, elements=(*value.elements[:k], other, *value.elements[k + 1 :]))


def _other_elements(dtype: str, element: str) -> Iterator[str]:
    if dtype == "bool":
        yield {"true": "false"}.get(element, "true")
    elif dtype.startswith("i"):
        yield from (str(int(element) + step) for step in (-1, 1) if abs(int(element)) < 2**62)
        yield str(-int(element))
    elif element not in ("nan", "-inf"):
        yield from (str(2 * float(element)), str(-float(element)), "0.0", "-0.0", "1.0")
        yield from ("nan", "-inf", "inf")


def types(program: Program) -> Iterator[Program]:
    """An input of another size, rank or dtype, or of a shape that is not told."""
    for i, value in enumerate(program.inputs):
        if value.elements is not None:
            continue
        yield program.with_input(i, shape=("*",))
        yield program.with_input(i, shape=("1", *value.shape))
        yield program.with_input(i, shape=value.shape[1:])
        for k, dim in enumerate(value.shape):
            for other in ("1", f"{value.name}{k}", "0", "2", "4"):
                if other != dim:
                    yield program.with_input(i, shape=(*value.shape[:k], other, *value.shape[k + 1 :]))
    for other in ("f16", "f64", "i32"):
        floats = tuple(replace(value, dtype=other) if value.dtype == "f32" else value for value in program.inputs)
        yield replace(program, inputs=floats)


def readers(program: Program) -> Iterator[Program]:
    """Something else reads what lies between: the caller, a nested graph, a node like one that is there."""
    end = len(program.lines)
    for i, node in program.nodes():
        if node.indent != "  ":
            continue
        for output in node.outputs:
            if output not in program.outputs:
                yield replace(program, outputs=(*program.outputs, output))
                yield replace(program, outputs=(output, *program.outputs))
            inner = [f"%chosen{i} = If(%flag) {{then_branch=graph():", f"      %inner{i} = Identity({output})"]
            inner += [f"      return (%inner{i}), else_branch=graph():", f"      %other{i} = Neg({output})"]
            nested = program.with_line_before(
                end, "\n".join(["  " + inner[0], *inner[1:], f"      return (%other{i})}}"])
            )
            inputs = (*program.inputs, Input("flag", "bool", ()))
            yield replace(nested, inputs=inputs, outputs=(*program.outputs, f"%chosen{i}"))
        twin = replace(node, outputs=tuple(f"{output}_twin" for output in node.outputs))
        outputs = (*program.outputs, *twin.outputs)
        yield replace(program.with_line_before(i + 1, twin), outputs=outputs)


def opsets(program: Program) -> Iterator[Program]:
    """The operators of earlier and later opsets."""
    return (replace(program, opset=opset) for opset in (18, 19, 20, 21, 22, 23, 24))


CHANGES = (
    operands,
    attributes,
    further_attributes,
    further_outputs,
    operators,
    between,
    constants,
    types,
    readers,
    opsets,
)
