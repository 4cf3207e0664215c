"""The operator calls of blocks: a tree of steps, since blocks go one way until they differ, and its paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from exportguard.repeats.keys import SYMBOLIC, Local
from exportguard.repeats.likenesses import Likeness

#: Keys of a node's `meta`, which C++ reads: the position of the argument whose memory the result has, or -1, …
SHARES = "exportguard_shares"
#: … its number in a path, …
NUMBER = "exportguard_number"
#: … and the path of the module in whose call it was recorded.
MODULE = "exportguard_module"


class Shared:
    """A node from before the blocks that all of them read: a size, or a constant."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node


@dataclass(slots=True)
class Template:
    """One node of a path. Its arguments are `Local` and `Shared` in the place of nodes."""

    number: int
    target: Any
    args: Any
    kwargs: Any
    name: str
    meta: dict[str, Any]
    shares: int  # the position of the argument whose memory its value has; -1: of none


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the model a block is: the entries of its module and those above it, as torch keeps them in a node."""

    stack: dict[str, tuple[str, str]]

    @classmethod
    def of(cls, module_stack: dict[str, tuple[str, Any]]) -> Place:
        """Where a tracer is; nodes have the names of classes, and not the classes."""
        return cls({key: (path, _name_of(kind)) for key, (path, kind) in module_stack.items()})

    @property
    def path(self) -> str:
        return next(reversed(self.stack.values()))[0] if self.stack else ""

    def moved(self, stack: dict[str, Any], recorded: Place) -> dict[str, Any]:
        """The stack of a node of another block, as it is in this one."""
        old, new = recorded.path, self.path
        inner = list(stack.items())[len(recorded.stack) :]
        return {
            **self.stack,
            **{_renamed(key, old, new): (_renamed(path, old, new), kind) for key, (path, kind) in inner},
        }


def _name_of(kind: object) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


def _renamed(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path.startswith(old + ".") else path


@dataclass(slots=True, eq=False)
class Step:
    """An operator call that a block made, after all those above it in the tree."""

    children: dict[Any, Step] = field(default_factory=dict)
    templates: tuple[Template, ...] = ()
    returned: Any = None  # `Likeness` in the place of tensors
    place: Place = field(default_factory=lambda: Place({}))
    first: int = 0  # the number of its first template
    outside: tuple[tuple[Any, ...], ...] = ()  # what the tensors look like that it is the first to take from outside
    apart: frozenset[int] = frozenset()  # values that look otherwise than to those whose steps its children are
    is_detour: bool = False  # its path goes on as an earlier one

    def likenesses(self) -> Iterator[Likeness]:
        return (leaf for leaf in leaves(self.returned) if type(leaf) is Likeness)

    def goes_like(self, other: Step) -> bool:
        """Whether it is the same operator at the same place of its path, whatever the values look like."""
        return (
            self.first == other.first
            and len(self.outside) == len(other.outside)
            and [(t.target, t.number, t.shares) for t in self.templates]
            == [(t.target, t.number, t.shares) for t in other.templates]
        )

    def looks(self) -> tuple[Any, ...]:
        """What comes after it sees of it: how the values look that it takes from outside and returns."""
        return self.outside, _looks(self.returned)


def _looks(returned: object) -> tuple[Any, ...]:
    """What is returned, in a form that can be compared; numbers with their classes."""
    return tuple(
        [
            (leaf.value, leaf.argument, leaf.look) if type(leaf) is Likeness else (type(leaf), _as_key(leaf))
            for leaf in leaves(returned)
        ]
    )


def _as_key(value: Any) -> Any:
    """A symbolic number as its expression: to compare two of them would be a question that torch notes."""
    return value.node.expr if isinstance(value, SYMBOLIC) else value


def leaves(value: object) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        yield from leaves(tuple(value.values()))
    elif isinstance(value, slice):
        yield from leaves((value.start, value.stop, value.step))
    else:
        yield value


def operands(template: Template) -> Iterator[Any]:
    """What stands for nodes in the arguments."""
    for leaf in leaves((template.args, template.kwargs)):
        if type(leaf) is Local or type(leaf) is Shared:
            yield leaf


def concrete(arguments: Any, node_of: Callable[[Any], Node]) -> Any:
    """Arguments with a node in the place of each `Local` and `Shared`."""

    def node(leaf: object) -> Any:
        return node_of(leaf) if type(leaf) is Local or type(leaf) is Shared else leaf

    return map_aggregate(arguments, node)


@dataclass(eq=False)
class Path:
    """Steps that a block made one after the other: a function of what it takes from outside.

    `examples` has the example values of its `locals` in one block by number; those of others look alike.
    """

    steps: tuple[Step, ...]
    examples: dict[int, Any] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, Any]) -> Path:
        """Paths are never changed, so programs that are copied go on sharing them."""
        return self

    @cached_property
    def locals(self) -> list[Local]:
        """What it takes from the block's outside, or from the part of the block that is in the graph already."""
        made = {template.number for template in self.templates()}
        taken = {leaf.number for leaf in self._operands() if type(leaf) is Local}
        return [Local.of(number) for number in sorted(taken - made)]

    @cached_property
    def shared(self) -> list[Shared]:
        """What all blocks of this path read: tensors first, then sizes."""
        found = {leaf.node: leaf for leaf in self._operands() if type(leaf) is Shared}
        return sorted(found.values(), key=lambda shared: _is_size(shared.node))

    @cached_property
    def size_count(self) -> int:
        """How many of `shared` are sizes."""
        return sum(_is_size(shared.node) for shared in self.shared)

    @cached_property
    def values(self) -> dict[int, Any]:
        """The example value of each node by its number."""
        return {template.number: template.meta.get("val") for template in self.templates()}

    @cached_property
    def names(self) -> dict[int, str]:
        return {template.number: template.name for template in self.templates()}

    @cached_property
    def graph(self) -> Graph:
        """Itself as a graph, whose placeholders are `locals` and `shared` in order, for who reads it in C++.

        In the nodes' `meta` are their number, the path of the module whose call was recorded, and `SHARES`.
        """
        graph = Graph()
        nodes: dict[Any, Node] = {}
        for operand in self.locals:
            nodes[operand] = graph.placeholder(f"value_{operand.number}")
            nodes[operand].meta["val"] = self.examples[operand.number]
        for shared in self.shared:
            nodes[shared.node] = graph.placeholder(shared.node.name)
            nodes[shared.node].meta["val"] = shared.node.meta.get("val")
        for step in self.steps:
            for template in step.templates:
                node = _appended(graph, template, lambda leaf: nodes[leaf.node if type(leaf) is Shared else leaf])
                node.meta = {
                    **template.meta,
                    SHARES: template.shares,
                    NUMBER: template.number,
                    MODULE: step.place.path,
                }
                nodes[Local.of(template.number)] = node
        return graph

    def templates(self) -> Iterator[Template]:
        return (template for step in self.steps for template in step.templates)

    def _operands(self) -> Iterator[Any]:
        return (leaf for template in self.templates() for leaf in operands(template))


def _is_size(node: Node) -> bool:
    return isinstance(node.meta.get("val"), SYMBOLIC)


def _appended(graph: Graph, template: Template, node_of: Callable[[Any], Node]) -> Node:
    args, kwargs = concrete(template.args, node_of), concrete(template.kwargs, node_of)
    return graph.create_node("call_function", template.target, args, kwargs, name=template.name)


def stamp(
    steps: Sequence[Step], nodes: dict[int, Node], shared: dict[Node, Node], graph: Graph, place: Place
) -> list[tuple[int, Node]]:
    """Puts the nodes of the steps into the graph, for the block at `place`; returns them and adds them to `nodes`.

    `nodes` has the operands by their number; what is not in `shared` is as it was recorded.
    """

    def node_of(leaf: Any) -> Node:
        return shared.get(leaf.node, leaf.node) if type(leaf) is Shared else nodes[leaf.number]

    made = []
    for step in steps:
        for template in step.templates:
            node = _appended(graph, template, node_of)

            # What shares memory is read off the examples, and these are another block's.
            node.meta = {**template.meta, SHARES: template.shares}
            stack = node.meta.get("nn_module_stack")
            if stack and step.place is not place:
                node.meta["nn_module_stack"] = place.moved(stack, step.place)
            nodes[template.number] = node
            made.append((template.number, node))
    return made


def shared_argument(node: Node) -> int:
    """The position of the first argument that a result of a node shares its memory with, as the examples say; or -1."""
    results = set(_memories(node.meta.get("val")))
    arguments = (
        {memory for leaf in leaves(arg) if isinstance(leaf, Node) for memory in _memories(leaf.meta.get("val"))}
        for arg in node.args
    )
    return next((position for position, memories in enumerate(arguments) if memories & results), -1)


def _memories(example: object) -> Iterator[int]:
    for leaf in leaves(example):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
            yield leaf.untyped_storage()._cdata
