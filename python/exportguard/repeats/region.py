"""One call of a repeated block, while its Python runs: its operator calls are replayed, or traced and remembered."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node, Proxy
from torch.fx.experimental import proxy_tensor
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from exportguard.repeats.cousins import Cousins
from exportguard.repeats.keys import (
    SYMBOLIC,
    Local,
    UncomparableError,
    appearance,
    changes_nothing,
    constant_key,
    has_elements,
    scalar_key,
    thread_state,
)
from exportguard.repeats.likenesses import Likeness
from exportguard.repeats.markers import add_marker
from exportguard.repeats.memory import Memory
from exportguard.repeats.paths import Place, Shared, Step, Template, leaves, shared_argument, stamp

#: What torch's tracer does with one call of an operator.
Trace = Callable[[], Any]

_CONSTANT_RESULTS = (bool, int, float, type(None), torch.device, torch.dtype, *SYMBOLIC)


#: Said of a call that no earlier block made.
NOT_REPLAYED = object()


class LazyProxyTensor(proxy_tensor._ProxyTensor):
    """What torch's tracer knows of a replayed tensor: its node is made when somebody asks for it."""

    def __init__(self, region: Region, number: int, constant: torch.Tensor | None = None) -> None:
        self.region, self.number, self.constant = region, number, constant

    @property
    def proxy(self) -> Proxy:  # type: ignore[override]
        return Proxy(self.region.node_of(self.number), self.region.tracer)


class Taken:
    """A tensor from outside that the block uses for the first time."""

    __slots__ = ("local", "look", "place", "slot")

    def __init__(self, place: Any, local: Local, look: tuple[Any, ...], slot: Any) -> None:
        self.place, self.local, self.look, self.slot = place, local, look, slot


class Region:
    """A block is replayed as long as it makes the calls of an earlier one; then it is traced, to its end or until the
    tree of steps has again what it does.

    :param root: above the first calls of all blocks that are compared with this one
    """

    def __init__(self, memory: Memory, root: Step, place: Place) -> None:
        self.memory, self.tracer, self.place = memory, memory.tracer, place
        self._step = root
        self._count = 0  # values so far
        self._nodes: dict[int, Node] = {}  # by number: what is from outside, and what is in the graph
        self._numbers: dict[Any, int] = {}  # by node, or by (region, number) for what has no node yet
        self._replayed: list[Step] = []  # not in the graph yet
        self._recorded: list[Likeness] = []  # the block may still use their tensors
        self._by_tensor: dict[int, Likeness] = {}  # the same, by the identity of a tensor that may be another by now
        self._created: list[Node] = []
        self._marker: Node | None = None
        self._cousins = Cousins()
        self._apart: frozenset[int] = frozenset()  # the looks of these values stand in keys, beside their numbers
        self.replays = True
        self.is_open = True  # calls are compared and remembered
        self.is_tracing = False  # a call is being traced
        self._modes = torch._C._len_torch_dispatch_stack()

    # ------------------------------------------------------------------------------------------------ calls

    def replayed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operator call returns that an earlier block made; `NOT_REPLAYED`, and nothing done, if none did."""
        if not self.replays or not self.is_open or self.is_tracing:
            return NOT_REPLAYED
        taken: list[Taken] = []
        try:
            key = self._key(func, args, kwargs, taken)
        except UncomparableError:
            return NOT_REPLAYED
        found = self._step.children.get(key)
        return NOT_REPLAYED if found is None else self._replay(found, args, kwargs, taken)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace) -> Any:
        """An operator call: replayed if an earlier block made it, else traced and remembered."""
        if not self.is_open or self.is_tracing:
            return trace()
        taken: list[Taken] = []
        try:
            key = self._key(func, args, kwargs, taken)
        except UncomparableError as reason:
            self.close(f"{func}: {reason}")
            return trace()
        found = self._step.children.get(key) if self.replays else None
        if found is not None:
            return self._replay(found, args, kwargs, taken)
        self._put_into_graph()
        self._bind(taken)
        return self._record(func, args, kwargs, trace, key, taken)

    def _replay(self, found: Step, args: tuple[Any, ...], kwargs: dict[str, Any], taken: list[Taken]) -> Any:
        if taken:
            self._bind(taken)
        self._replayed.append(found)
        self._step = found
        if found.apart:
            self._apart |= found.apart
        # Not `max`, which torch.export replaces by a function that looks for tensors.
        end = found.first + len(found.templates)
        if end > self._count:
            self._count = end
        self.memory.counts.replayed += 1
        return self._results(found.returned, args, kwargs)

    def _key(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: list[Taken]) -> Any:
        if torch._C._len_torch_dispatch_stack() != self._modes:
            raise UncomparableError("a mode that the block entered has to be given each call")
        if func is torch.ops.aten.lift_fresh.default:
            return func, constant_key(args[0]), thread_state()
        if not changes_nothing(func, args):
            if not self.memory.is_comparable(func):
                raise UncomparableError("not to be repeated")
            if func._schema.is_mutable and self._is_constant(args[0]):
                raise UncomparableError("it writes into a constant")
        named = tuple([(name, self._argument_key(value, taken)) for name, value in kwargs.items()]) if kwargs else None
        return func, tuple([self._argument_key(value, taken) for value in args]), named, thread_state()

    def _argument_key(self, value: Any, taken: list[Taken]) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor_key(value, taken)
        if type(value) is list or type(value) is tuple:
            return tuple([self._argument_key(item, taken) for item in value])
        return scalar_key(value)

    def _tensor_key(self, tensor: torch.Tensor, taken: list[Taken]) -> Any:
        """The number of a value; at its first use what it looks like stands beside it."""
        slot: Any = self.tracer.tensor_tracker.get(tensor)
        if slot is None:
            raise UncomparableError("a tensor that is a constant")
        if type(slot) is LazyProxyTensor:
            if slot.region is self:
                return self._key_of_known(tensor, slot.number)
            place: Any = (slot.region, slot.number)
        else:
            place = slot.proxy.node
        number = self._numbers.get(place)
        if number is not None:
            return self._key_of_known(tensor, number)
        if has_elements(slot.constant):
            raise UncomparableError("a constant from outside")
        for value in taken:
            if value.place == place:
                return value.local
        look = appearance(tensor)
        local = Local.of(self._count + len(taken))
        taken.append(Taken(place, local, look, slot))
        return local, look

    def _is_constant(self, value: Any) -> bool:
        """Whether it is a tensor whose value torch knows while it traces."""
        slot: Any = self.tracer.tensor_tracker.get(value) if isinstance(value, torch.Tensor) else None
        return slot is not None and has_elements(slot.constant)

    def _is_part(self, result: torch.Tensor, constant: torch.Tensor, given: Any) -> bool:
        """Whether the value of a result lies in the memory of another one, so that a write to either is one to both."""
        place = constant.untyped_storage().data_ptr()
        others = (leaf for leaf in leaves(given) if self._is_constant(leaf) and leaf is not result)
        return any(place == self.tracer.tensor_tracker[one].constant.untyped_storage().data_ptr() for one in others)

    def _key_of_known(self, tensor: torch.Tensor, number: int) -> Any:
        return (Local.of(number), appearance(tensor)) if number in self._apart else Local.of(number)

    def _bind(self, taken: list[Taken]) -> None:
        """Numbers what a call takes from outside, in the order of its arguments."""
        for value in taken:
            node = value.slot.proxy.node
            self._numbers[value.place] = self._numbers[node] = value.local.number
            self._nodes[value.local.number] = node
        self._count += len(taken)

    # ------------------------------------------------------------------------------------------------ replaying

    def _results(self, returned: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(returned) is tuple or type(returned) is list:
            return type(returned)([self._results(item, args, kwargs) for item in returned])
        if type(returned) is not Likeness:
            return returned
        place = returned.argument

        # A call that returned what it was given: from now on that tensor is another value, as for torch's tracer.
        given = kwargs if isinstance(place, str) else args
        tensor = returned.make() if place is None else given[place]  # type: ignore[index]
        self.tracer.tensor_tracker[tensor] = LazyProxyTensor(self, returned.value.number, returned.constant())
        return tensor

    # ------------------------------------------------------------------------------------------------ recording

    def _record(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trace: Trace,
        key: Any,
        taken: list[Taken],
    ) -> Any:
        first = self._count
        result = self._traced(trace)
        self._look_again((args, kwargs))
        try:
            templates = tuple([template for node in self._created if (template := self._template(node)) is not None])
            returned = self._described(func, result, args, kwargs)
        except UncomparableError as reason:
            self.close(f"{func}: {reason}")
            return result
        step = Step(
            templates=templates,
            returned=returned,
            place=self.place,
            first=first,
            outside=tuple([value.look for value in taken]),
        )
        self._append(key, step, _shape_env_of(result))
        self.memory.counts.recorded += 1
        return result

    def _traced(self, trace: Trace) -> Any:
        self._created = []
        self.is_tracing = True
        try:
            return trace()
        finally:
            self.is_tracing = False

    def _append(self, key: Any, step: Step, shape_env: Any) -> None:
        """Where calls differ from those of an earlier block by numbers alone, both go on the same way behind them."""
        siblings = list(self._step.children.values())
        self._step.children[key] = step
        self._step = step
        meeting = self._cousins.met(step, siblings, shape_env)
        if meeting is not None:
            step.children, step.apart = meeting.step.children, meeting.apart
            self._apart |= step.apart
            self.replays = True

    def _template(self, node: Node) -> Template | None:
        """What a node that a call made is in other blocks; None for a size or a constant, which they share."""
        if node.op == "get_attr" or isinstance(node.meta.get("val"), SYMBOLIC):
            if "unbacked_bindings" in node.meta:
                raise UncomparableError("it makes a size that depends on data")
            return None
        if node.op != "call_function" or "unbacked_bindings" in node.meta:
            raise UncomparableError("it makes a size that depends on data")
        number, self._count = self._count, self._count + 1
        template = Template(
            number=number,
            target=node.target,
            args=self._abstract(node.args),
            kwargs=self._abstract(node.kwargs),
            name=node.name,
            meta=node.meta,
            shares=shared_argument(node),
        )
        self._numbers[node] = number
        self._nodes[number] = node
        return template

    def _abstract(self, arguments: Any) -> Any:
        def leaf(value: Any) -> Any:
            if not isinstance(value, Node):
                return value
            number = self._numbers.get(value)
            return Shared(value) if number is None else Local.of(number)

        return map_aggregate(arguments, leaf)

    def _described(self, func: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(result) is tuple or type(result) is list:
            return type(result)([self._described(func, item, args, kwargs) for item in result])
        if not isinstance(result, torch.Tensor):
            if not isinstance(result, _CONSTANT_RESULTS):
                raise UncomparableError(f"it returns a {type(result).__name__}")
            return result
        slot: Any = self.tracer.tensor_tracker.get(result)
        number = None if slot is None else self._numbers.get(slot.proxy.node)
        if number is None:
            raise UncomparableError("it returns what it did not make")
        is_constant = has_elements(slot.constant)
        if is_constant != has_elements(getattr(result, "constant", None)):
            raise UncomparableError("it returns what is a constant in part")
        if is_constant and self._is_part(result, slot.constant, (args, kwargs)):
            raise UncomparableError("it returns a part of a constant")
        arguments: list[tuple[Any, Any]] = [*enumerate(args), *kwargs.items()]
        place = next((at for at, value in arguments if value is result), None)
        likeness = Likeness(Local.of(number), result, place, is_known=is_constant)
        if _makes_variables(func):
            likeness.settle(slot.proxy.node.meta["val"])
        else:
            self._recorded.append(likeness)
            self._by_tensor[id(result)] = likeness
        return likeness

    # ------------------------------------------------------------------------------------------------ the graph

    def note_node(self, target: Any, kind: str) -> None:
        """Called before torch adds a node: one that no call of an operator makes has an order among their nodes."""
        if self.is_open and not self.is_tracing and kind == "call_function" and not is_size_function(target):
            self.close(f"{target}: a node that is not a call of an operator")

    def add_node(self, node: Node) -> None:
        """Called after torch added a node."""
        if self.is_tracing:
            self._created.append(node)

    def node_of(self, number: int) -> Node:
        """The node of a value; one from the marker if the block was replayed to its end."""
        node = self._nodes.get(number)
        if node is not None:
            return node
        if self._marker is None:
            self.close("a value is asked for before the end")
            return self._nodes[number]
        graph = self.tracer.graph
        last = next(iter(reversed(graph.nodes)))  # not an iterator itself before torch 2.12

        # torch asks for the nodes of all living tensors when the graph has its output already.
        with graph.inserting_before(last) if last.op == "output" else contextlib.nullcontext():
            path = self._marker.meta["exportguard_path"]
            node = graph.create_node("call_function", operator.getitem, (self._marker, number), name=path.names[number])
        node.meta.update({**self._marker.meta, "val": path.values[number]})
        self._nodes[number] = node
        return cast(Node, node)

    def close(self, reason: str) -> None:
        """The rest of the block is traced, and nothing of it is remembered."""
        if self.is_open:
            self.memory.counts.stops[reason] += 1
            self.is_open = False
        self._put_into_graph()
        self._settle()

    def end(self) -> None:
        """The block returned."""
        if self.is_open and self._replayed:
            self._marker = add_marker(self.tracer, self.memory.path(self._replayed), self._nodes)
            self._replayed = []
            self.memory.counts.markers += 1
        self.is_open = False
        self._settle()

    def _settle(self) -> None:
        recorded, self._recorded, self._by_tensor = self._recorded, [], {}
        for likeness in recorded:
            likeness.settle()

    def _look_again(self, used: Any) -> None:
        """Most tensors do not live to the end of their block: what was asked of their layout is known where they are
        used, as the clone in `x.transpose(1, 2).contiguous()` is behind the question of whether it is one."""
        for leaf in leaves(used):
            likeness = self._by_tensor.get(id(leaf))
            if likeness is not None:
                likeness.look_again(leaf)

    def _put_into_graph(self) -> None:
        """Puts what was replayed so far into the graph, node by node, since it is not replayed any further."""
        self.replays = False
        steps, self._replayed = self._replayed, []
        self.memory.counts.stamped += len(steps)
        for number, node in stamp(steps, self._nodes, {}, self.tracer.graph, self.place):
            self._numbers[node] = number


def _shape_env_of(result: Any) -> Any:
    """Where the sizes of what a call returned are known; None if it returned no tensor."""
    fake = next((leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, FakeTensor)), None)
    return None if fake is None else fake.fake_mode.shape_env


def is_size_function(target: Any) -> bool:
    """Whether it computes sizes, numbers or conditions, which blocks that are equal share."""
    return target in _SIZE_FUNCTIONS or getattr(target, "__module__", "") == "_operator"


_SIZE_FUNCTIONS = frozenset(
    {
        torch.ops.aten.sym_size.int,
        torch.ops.aten.sym_stride.int,
        torch.ops.aten.sym_numel.default,
        torch.ops.aten.sym_storage_offset.default,
        torch.sym_float,
        torch.sym_int,
        torch.sym_ite,
        torch.sym_max,
        torch.sym_min,
        torch.sym_not,
        torch.sym_sum,
    }
)


def _makes_variables(func: Any) -> bool:
    """Whether torch copies the result if somebody else holds it, as it does for `zeros`, `arange`, `empty_like` …

    The copy would not be tracked, and become a constant of the model.
    """
    return any(argument.name == "pin_memory" for argument in func._schema.arguments)
