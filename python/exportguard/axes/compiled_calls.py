"""Operators of a program that are run without leaving C++ between them.

Of a block that was replayed, of a step of a loop, and of stretches of a graph whose shapes are looked at on the way.

A graph is run at one size after the other, and what Python does for a node takes longer than most operators.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from exportguard import _core
from exportguard.rewrites.written import may_write

from .forms import formed_as_traced

logger = logging.getLogger(__name__)

Block = Callable[..., Sequence[Any]]

_FEW = 4  # operators, which are run as soon one by one


def is_assertion(target: object) -> bool:
    """Whether a node only checks what the trace assumed."""
    return getattr(target, "__name__", "").startswith(("_assert", "sym_constrain_range"))


def operator_calls(own: Sequence[Node], wanted: Sequence[Node]) -> Block | None:
    """Calls that never leave C++; None if some node is no operator, or is computed in a form of its own."""
    calls = _core.OperatorCalls(sum(node.op == "placeholder" for node in own))
    numbers: dict[Node, int] = {}
    values: dict[Node, _core.ValueNumber] = {}
    try:
        for at, node in enumerate(own):
            number = at if node.op == "placeholder" else _added(calls, node, values)
            if number is None:
                return None
            numbers[node], values[node] = number, _core.ValueNumber(number)
        calls.want([numbers[node] for node in wanted])
    except (ValueError, RuntimeError) as error:  # an argument that C++ cannot read
        logger.debug("a block is run in Python: %s", error)
        return None
    return lambda *given: calls.run(given)


def _added(calls: _core.OperatorCalls, node: Node, values: Mapping[Node, _core.ValueNumber]) -> int | None:
    """The number of what a node makes, once it is among the calls; None if it cannot be."""
    if node.target is operator.getitem:
        whole, item = node.args
        is_plain = isinstance(whole, Node) and isinstance(item, int) and item >= 0
        return calls.pick(values[whole], item) if is_plain else None  # type: ignore[index,arg-type]
    if not isinstance(node.target, torch._ops.OpOverload) or formed_as_traced(node) is not None:
        return None
    schema = node.target._schema
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)  # type: ignore[arg-type]
    return calls.add(schema.name, schema.overload_name, args, kwargs)


@dataclass(frozen=True)
class Stretch:
    """Nodes that follow each other and are operators which write into nothing and draw no numbers: where their shapes
    are not as traced, or one raises, they can be run again."""

    nodes: Sequence[Node]
    _taken: Sequence[Node]
    _wanted: Sequence[Node]
    _calls: _core.OperatorCalls
    _sizes: Sequence[Any]  # expressions in the shapes

    def run(self, env: dict[Node, Any], sizes: Callable[[Any], int | None]) -> bool:
        """Adds to `env` what others need of their values; False, and nothing is added, if that is not all there is to
        say: a tensor has another shape than `sizes` say, or an operator raises.
        """
        table = [-1 if (size := sizes(expression)) is None else size for expression in self._sizes]
        try:
            values = self._calls.run_as_expected([env[node] for node in self._taken], table)
        except Exception as error:  # whatever an operator raises, which is raised again where they are run one by one
            logger.debug("operators are run one by one: %s", error)
            return False
        if values is None:
            return False
        env.update(zip(self._wanted, values, strict=True))
        return True


def in_stretches(
    nodes: Iterable[Node | Stretch], shapes_of: Callable[[Node], Sequence[Any]], *, keeps_values: bool
) -> list[Node | Stretch]:
    """The nodes of a graph in their order, those that can be run together as one.

    :param shapes_of: the traced shape of each value of a node: numbers and expressions; None for what is no tensor, or
        may have any shape
    :param keeps_values: whether the values of all nodes are asked for
    """
    found: list[Node | Stretch] = []
    waiting: list[Node] = []

    def close() -> None:
        while waiting:
            stretch = _stretch_of(waiting, shapes_of, keeps_values=keeps_values)
            found.extend([stretch] if isinstance(stretch, Stretch) else waiting[:stretch])
            del waiting[: len(stretch.nodes) if isinstance(stretch, Stretch) else stretch]

    for node in nodes:
        assert isinstance(node, Node)
        if _may_be_run_again(node, waiting):
            waiting.append(node)
        else:
            close()
            found.append(node)
    close()
    return found


def _may_be_run_again(node: Node, before: Sequence[Node]) -> bool:
    if node.op != "call_function":
        return False
    if node.target is operator.getitem or is_assertion(node.target):
        return bool(before)  # of what is among these; an assertion is left out
    if not isinstance(node.target, torch._ops.OpOverload) or may_write(node):
        return False
    return torch.Tag.nondeterministic_seeded not in node.target.tags


def _stretch_of(
    nodes: Sequence[Node], shapes_of: Callable[[Node], Sequence[Any]], *, keeps_values: bool
) -> Stretch | int:
    """The first of some nodes as one; if they cannot be that, the number of those that are run one by one."""
    own = [node for node in nodes if not is_assertion(node.target)]
    inside = {*nodes}
    taken = list(dict.fromkeys(given for node in own for given in node.all_input_nodes if given not in inside))
    calls = _core.OperatorCalls(len(taken))
    numbers = {node: _core.ValueNumber(at) for at, node in enumerate(taken)}
    places: dict[Any, int] = {}
    ends: dict[Node, int] = {}
    for at, node in enumerate(own):
        is_of_others = node.target is operator.getitem and node.args[0] not in ends  # a list, which C++ is not given
        number = None if is_of_others else _number_of(calls, node, numbers)
        if number is None:
            if at < _FEW:
                return nodes.index(node) + 1
            return _stretch_of(nodes[: nodes.index(node)], shapes_of, keeps_values=keeps_values)
        ends[node], numbers[node] = number, _core.ValueNumber(number)
        if node.target is not operator.getitem:
            for item, shape in enumerate(shapes_of(node)):
                if shape is not None:
                    calls.expect(number, item, [_told(size, places) for size in shape])
    if len(own) < _FEW:
        return len(nodes)
    wanted = [node for node in own if keeps_values or any(user not in inside for user in node.users)]
    calls.want([ends[node] for node in wanted])
    return Stretch([*nodes], taken, wanted, calls, [*places])


def _number_of(calls: _core.OperatorCalls, node: Node, values: Mapping[Node, _core.ValueNumber]) -> int | None:
    try:
        return _added(calls, node, values)
    except (ValueError, RuntimeError) as error:  # as in `operator_calls`
        logger.debug("%s is run in Python: %s", node, error)
        return None


def _told(size: Any, places: dict[Any, int]) -> int:
    """A size of a shape: a number, or below 0 its place in the table of expressions."""
    return size if type(size) is int else -1 - places.setdefault(size, len(places))
