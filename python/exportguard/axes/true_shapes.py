"""The graph of a program run as its conversion is meant to: with the shapes that its trace says.

Branches and steps of loops are graphs of their own. Where the data at hand do not lead into one, its shapes are looked
at on tensors that have none.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exportguard.repeats.markers import MARKER
from exportguard.repeats.paths import NUMBER, Path, leaves
from exportguard.rewrites import resizing  # noqa: F401 - registers two operators
from exportguard.signature import raw_size

from . import bodies
from .compiled_calls import Block, Stretch, in_stretches, is_assertion, operator_calls
from .evaluation import Evaluation
from .expressions import Sizes
from .forms import formed_as_traced
from .silence import torch_silent

logger = logging.getLogger(__name__)

_aten = torch.ops.aten

#: A tensor that a loop carries under the sizes of another one, and one that is asked for its sizes.
_RESIZED, _SIZED_ANEW = torch.ops.exportguard.taken_for.default, torch.ops.exportguard.sized_anew.default


class OtherShapeError(RuntimeError):
    """A tensor has another shape than the trace says that it has at these sizes."""


def path_of(marker: Node) -> Path:
    """The path of a block that was replayed."""
    path: Path = marker.meta["exportguard_path"]
    return path


def markers(graph: Graph) -> Sequence[Node]:
    """The blocks of a graph that were replayed."""
    return [*graph.find_nodes(op="call_function", target=MARKER)]


#: The traced shape of a tensor, in numbers and expressions.
_Shape = tuple[Any, ...]


class TracedSizes:
    """What the sizes of a trace are where its symbols have these values."""

    def __init__(self, sizes: Sizes, evaluations: dict[Any, Evaluation] | None = None) -> None:
        """`evaluations` are those of other values, and get those that are made for these."""
        self._sizes = sizes
        self._evaluations = {} if evaluations is None else evaluations
        self._known: dict[Any, int | None] = {}
        self._shapes: dict[int, tuple[int | None, ...]] = {}  # by the identity of a traced shape, which `Reading` holds

    @functools.cached_property
    def key(self) -> frozenset[tuple[Any, int]]:
        """The same for all with these values."""
        return frozenset(self._sizes.items())

    def shape(self, traced: _Shape) -> tuple[int | None, ...]:
        """The sizes of a traced shape."""
        known = self._shapes.get(id(traced))
        if known is None:
            known = self._shapes[id(traced)] = tuple([self(size) for size in traced])
        return known

    def __call__(self, size: Any) -> int | None:
        """The traced size, a number or an expression; None for one that depends on data."""
        if type(size) is int:
            return size
        if size not in self._known:
            self._known[size] = self._value(size)
        return self._known[size]

    def _value(self, expression: Any) -> int | None:
        symbols = sorted(expression.free_symbols, key=str)
        if not all(symbol in self._sizes for symbol in symbols):
            return None
        evaluation = self._evaluations.get(expression)
        if evaluation is None:
            evaluation = self._evaluations[expression] = Evaluation(expression, symbols)
        value = evaluation(self._sizes)
        return None if value is None else int(value)


@dataclass
class Reading:
    """What is read off the graphs of a program once for all of its runs."""

    compiled: dict[tuple[Path, tuple[int, ...]], Block] = field(default_factory=dict)
    blocks: dict[Node, _BlockCall] = field(default_factory=dict)
    calls: dict[Node, _Call] = field(default_factory=dict)
    last_uses: dict[Graph, dict[Node, list[Node]]] = field(default_factory=dict)
    functions: dict[GraphModule, Block | None] = field(default_factory=dict)
    steps: dict[Graph, Sequence[Node | Stretch]] = field(default_factory=dict)
    met: set[Graph] = field(default_factory=set)  # that were run once
    looked_at: set[tuple[object, ...]] = field(default_factory=set)  # bodies, sizes, and the shapes of what they take

    def function_of(self, module: GraphModule) -> Block | None:
        """A branch or a step as calls that never leave C++; None if it has more than operators."""
        if module not in self.functions:
            own = [node for node in module.graph.nodes if not is_assertion(node.target)]
            results = _values(own.pop().args[0])
            is_plain = all(isinstance(result, Node) for result in results)
            self.functions[module] = operator_calls(own, results) if is_plain else None
        return self.functions[module]

    def steps_of(self, graph: Graph, *, keeps_values: bool) -> Sequence[Node | Stretch]:
        """The nodes of a graph, from its second run on those that are run at once together."""
        known = self.steps.get(graph)
        if known is None:
            known = self.steps[graph] = [*graph.nodes]
            self.met.add(graph)
        elif graph in self.met:
            self.met.discard(graph)
            known = self.steps[graph] = in_stretches(known, self._shapes_of, keeps_values=keeps_values)
        return known

    def _shapes_of(self, node: Node) -> Sequence[_Shape | None]:
        return self.call_of(node).shapes

    def block_of(self, marker: Node) -> _BlockCall:
        """What a marker asks for."""
        if marker not in self.blocks:
            self.blocks[marker] = _BlockCall.of(marker)
        return self.blocks[marker]

    def call_of(self, node: Node) -> _Call:
        """What a node calls."""
        known = self.calls.get(node)
        if known is None:
            known = self.calls[node] = _Call.of(node)
        return known

    def dead_after(self, graph: Graph) -> Mapping[Node, Sequence[Node]]:
        """The nodes whose values nobody needs once a node has run."""
        known = self.last_uses.get(graph)
        if known is None:
            known = self.last_uses[graph] = {}
            met: set[Node] = set()
            for node in reversed(graph.nodes):
                for used in node.all_input_nodes:
                    if used not in met:
                        met.add(used)
                        known.setdefault(node, []).append(used)
        return known


def _shape(traced: object) -> _Shape | None:
    if not isinstance(traced, torch.Tensor):
        return None
    return tuple([size if type(size) is int else raw_size(size) for size in traced.shape])


def _form_of(value: object) -> object:
    """What a value is without its data; a number is itself."""
    if not isinstance(value, torch.Tensor):
        return type(value), value
    return value.shape, value.stride(), value.dtype, value.device


def _asked(node: Node) -> set[int] | None:
    """Which of several outputs somebody asks for; None for all.

    What is for gradients alone may have another shape than its trace says: bags and their sizes in `embedding_bag`
    (torch 2.11 to 2.13).
    """
    takes_one = [user.op == "call_function" and user.target is operator.getitem for user in node.users]
    return {user.args[1] for user in node.users} if takes_one and all(takes_one) else None  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class _Call:
    """What a node calls, and the traced shape of each value that it gives; None for what is no tensor.

    Without a `target` it only checks something. `has_plain_arguments` if none is a list with values of other nodes,
    `has_bodies` if it is a branch or a loop.
    """

    target: Callable[..., Any] | None
    has_plain_arguments: bool
    has_bodies: bool
    shapes: Sequence[_Shape | None]

    @classmethod
    def of(cls, node: Node) -> _Call:
        """What is read off a node."""
        target = None if is_assertion(node.target) else formed_as_traced(node) or node.target
        inner = [argument for argument in (*node.args, *node.kwargs.values()) if not isinstance(argument, Node)]
        is_plain = not any(isinstance(leaf, Node) for leaf in leaves(inner))
        is_named = any(isinstance(argument, Node) for argument in node.kwargs.values())
        asked = _asked(node)
        values = enumerate(_values(node.meta.get("val")))
        shapes = [_shape(value) if asked is None or place in asked else None for place, value in values]
        has_bodies = node.target in (bodies.BRANCH, bodies.WHILE, bodies.SCAN)
        return cls(target, is_plain and not is_named, has_bodies, shapes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _BlockCall:
    """A marker: its path, what it takes, and the numbers of the values that somebody asks for."""

    path: Path
    operands: tuple[Any, ...]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, marker: Node) -> _BlockCall:
        tensors, sizes = marker.args
        numbers = tuple(sorted({user.args[1] for user in marker.users}))  # type: ignore[type-var]
        return cls(path_of(marker), (*tensors, *sizes), numbers)  # type: ignore[misc,arg-type]


class Blocks:
    """The blocks of a program that were replayed, as functions.

    In each run the first one of a path is run node by node, and its shapes are looked at; those that come later take
    tensors of the same shapes, which the graph around them tells, and the shapes inside follow from these.
    """

    def __init__(self, reading: Reading | None = None, course: bodies.Course | None = None) -> None:
        self.reading = Reading() if reading is None else reading
        self.course = bodies.Course() if course is None else course
        self._met: set[Path] = set()
        self._bodies: set[GraphModule] = set()  # whose shapes were looked at

    def is_first(self, module: GraphModule) -> bool:
        """Whether this run comes to a branch or a step for the first time, which it has done then."""
        is_met = module in self._bodies
        self._bodies.add(module)
        return not is_met

    def of_another_run(self, course: bodies.Course | None = None) -> Blocks:
        """The same functions, no path of which was run yet, and no step of a loop."""
        return Blocks(self.reading, course)

    def run(self, marker: Node, around: GraphWithTrueShapes) -> Mapping[int, Any]:
        """The values of a block that somebody asks for, by their numbers; `around` runs the graph that it is in."""
        call = self.reading.block_of(marker)
        env, path, numbers = around.env, call.path, call.numbers
        given = [env[operand] if isinstance(operand, Node) else operand for operand in call.operands]
        if path not in self._met or not around.shapes_follow:
            self._met.add(path)
            inner = around.of_block(path.graph)
            inner.run(*given)
            return {node.meta[NUMBER]: value for node, value in inner.env.items() if NUMBER in node.meta}
        block = self.reading.compiled.get((path, numbers))
        if block is None:
            block = self.reading.compiled[path, numbers] = _compiled(path, numbers)
        return dict(zip(numbers, block(*given), strict=True))


def _compiled(path: Path, numbers: Sequence[int]) -> Block:
    """A function of what a block takes from outside, without its assertions."""
    own = [node for node in path.graph.nodes if not is_assertion(node.target)]
    of_number = {node.meta[NUMBER]: node for node in own if NUMBER in node.meta}
    wanted = [of_number[number] for number in numbers]
    return operator_calls(own, wanted) or _in_python(own, wanted)


def _in_python(own: Sequence[Node], wanted: Sequence[Node]) -> Block:
    graph = Graph()
    nodes: dict[Node, Node] = {}
    for node in own:
        nodes[node] = copy = graph.node_copy(node, nodes.__getitem__)
        copy.target = formed_as_traced(node) or copy.target
    graph.output(tuple([nodes[node] for node in wanted]))
    return GraphModule({}, graph).forward


class GraphWithTrueShapes(torch.fx.Interpreter):
    """Runs a graph as its conversion is meant to: the shapes in it are true, and its assertions are left out.

    `shapes_follow`: those in a block follow from those of what it takes; `bodies_follow`: those in branches and loops.
    With `runs_stretches` operators that follow each other are run in C++, where their shapes are looked at as well.
    """

    shapes_follow = bodies_follow = runs_stretches = True

    def __init__(
        self, module: torch.nn.Module, sizes: TracedSizes, blocks: Blocks | None = None, *, graph: Graph | None = None
    ) -> None:
        """A `graph` that is not the module's own needs no output: the values of all nodes are in `env` afterwards."""
        super().__init__(module, garbage_collect_values=False, graph=graph)
        self._sizes = sizes
        self._blocks = blocks if blocks is not None else Blocks()
        self._keeps_values = graph is not None

    def of_block(self, graph: Graph) -> GraphWithTrueShapes:
        """What runs a graph within this one in the same way."""
        return type(self)(torch.nn.Module(), self._sizes, self._blocks, graph=graph)

    def run(self, *args: Any) -> Any:  # type: ignore[override]
        """What the graph returns; torch's own loop takes longer for a node than most operators."""
        values, env, reading = iter(args), self.env, self._blocks.reading
        dead_after = {} if self._keeps_values else reading.dead_after(self.graph)
        steps: Sequence[Node | Stretch] = [*self.graph.nodes]
        if self.runs_stretches:
            steps = reading.steps_of(self.graph, keeps_values=self._keeps_values)
        result = None
        for step in steps:
            is_done = isinstance(step, Stretch) and step.run(env, self._sizes)
            for node in step.nodes if isinstance(step, Stretch) else (step,):
                if not is_done:
                    env[node] = next(values) if node.op == "placeholder" else self.run_node(node)
                if node.op == "output":
                    result = env[node]
                for dead in dead_after.get(node, ()):
                    env.pop(dead, None)
        return result

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        if n.target is MARKER:
            return self._blocks.run(n, self)
        call, env = self._blocks.reading.call_of(n), self.env
        if call.target is None:
            return None
        if call.has_plain_arguments:
            args, kwargs = tuple([env[value] if type(value) is Node else value for value in n.args]), n.kwargs
        else:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
        result = self._of_bodies(n, args) if call.has_bodies else call.target(*args, **kwargs)
        for value, traced in zip(_values(result), call.shapes, strict=False):
            if traced is not None and isinstance(value, torch.Tensor) and value.shape != self._sizes.shape(traced):
                self._require_shape(n, value, traced)
        return result

    def _of_bodies(self, node: Node, args: Sequence[Any]) -> Sequence[Any]:
        """What a branch or a loop gives."""
        course = self._blocks.course
        with torch.no_grad():
            if node.target is bodies.BRANCH:
                is_first = course.goes(args[0], node.meta.get("stack_trace", ""))
                self._look_at(args[2 if is_first else 1], args[3])
                return bodies.branch(is_first, [*map(self._function, args[1:3])], args[3])
            if node.target is bodies.WHILE:
                condition, body = map(self._function, args[:2])
                result = bodies.while_loop(condition, body, args[2], args[3], course)
                self._look_at(args[1], [*args[2], *args[3]])
                return result
            if args[2] and args[2][0].shape[0]:
                return bodies.scan(self._function(args[0]), args[1], args[2], args[3], course)
            return self._scan_of_nothing(node, args)

    def _function(self, module: GraphModule) -> Block:
        """A branch, a step or a condition; it gives a list of what its graph gives.

        The first time that a run comes to it, its shapes are looked at; further steps of a loop have the same.
        """
        made = self._blocks.reading.function_of(module) or self._in_python(module, _Body)
        if not self.bodies_follow:
            return made
        first = self._in_python(module, _BodyWithTrueShapes)
        return lambda *given: (first if self._blocks.is_first(module) else made)(*given)

    def _in_python(self, module: GraphModule, kind: type[GraphWithTrueShapes]) -> Block:
        return lambda *given: _values(kind(module, self._sizes, self._blocks).run(*given))

    def _look_at(self, module: GraphModule, given: Sequence[Any]) -> None:
        """Looks at the shapes in a branch or a step that the data at hand do not lead into, as far as shapes tell them.

        Raises:
            OtherShapeError: one is another than the trace says.
        """
        if not self.bodies_follow or not self._blocks.is_first(module):
            return
        looked_at = self._blocks.reading.looked_at
        at = (module, self._sizes.key, *map(_form_of, given))
        if at in looked_at:
            return
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        fakes = [mode.from_tensor(v, static_shapes=True) if isinstance(v, torch.Tensor) else v for v in given]
        try:
            with mode, torch_silent():
                _ShapesAlone(module, self._sizes, self._blocks).run(*fakes)
        except OtherShapeError:
            raise
        except Exception as error:  # whatever an operator raises that needs data, or that the data at hand keep from it
            logger.debug("the shapes of what is not run are known up to here: %s", error)
        looked_at.add(at)

    def _scan_of_nothing(self, node: Node, args: Sequence[Any]) -> Sequence[Any]:
        """What a scan over no rows gives, which torch 2.11 to 2.13 do not take."""
        state = [tensor.clone() for tensor in args[1]]
        traced = node.meta["val"][len(state) :]
        shapes = self._blocks.reading.call_of(node).shapes[len(state) :]
        sizes = [[self._sizes(size) or 0 for size in shape[1:]] for shape in shapes if shape is not None]
        return (*state, *(torch.empty((0, *rest), dtype=like.dtype) for like, rest in zip(traced, sizes, strict=True)))

    def _require_shape(self, node: Node, value: torch.Tensor, traced: _Shape) -> None:
        if not self.may_have(self._others(value, traced)) or len(traced) != value.dim():
            raise OtherShapeError(f"{node} has the shape {[*value.shape]} and was traced as {[*traced]}")

    def _others(self, value: torch.Tensor, traced: _Shape) -> list[int]:
        """The sizes that are other than the traced ones, but for those that data decide."""
        return [b for a, b in zip(self._sizes.shape(traced), value.shape, strict=False) if a not in (None, b)]

    def may_have(self, others: Sequence[int]) -> bool:
        """Whether a tensor may have these sizes in place of the traced ones."""
        return not others


class _Body(GraphWithTrueShapes):
    """A branch or a step that has more in it than operators, with whatever shapes it has."""

    def _require_shape(self, node: Node, value: torch.Tensor, traced: _Shape) -> None:
        pass


class _BodyWithTrueShapes(GraphWithTrueShapes):
    """A branch or a step, whose shapes are true but for those that a loop carries a tensor of another size under."""

    def run(self, *args: Any) -> Any:  # type: ignore[override]
        """What the graph returns."""
        places = (node for node in self.graph.nodes if node.op == "placeholder")
        self._given = dict(zip(places, args, strict=False))
        return super().run(*args)

    def _require_shape(self, node: Node, value: torch.Tensor, traced: _Shape) -> None:
        if not self._means_nothing(node):
            super()._require_shape(node, value, traced)

    def _means_nothing(self, node: Node) -> bool:
        """Whether sizes come from a tensor that steps leave longer or shorter, and that is not asked for them anew."""
        waiting, met = [node], {node}
        while waiting:
            current = waiting.pop()
            if current.target is _RESIZED or (current in self._given and self._is_of_other_sizes(current)):
                return True
            if current.target is not _SIZED_ANEW:
                waiting += [before for before in current.all_input_nodes if before not in met]
                met.update(current.all_input_nodes)
        return False

    def _is_of_other_sizes(self, place: Node) -> bool:
        traced, value = _shape(place.meta.get("val")), self._given[place]
        if traced is None or not isinstance(value, torch.Tensor):
            return False
        return tuple(value.shape) != tuple(map(self._sizes, traced))


class _ShapesAlone(_BodyWithTrueShapes):
    """The same on tensors without data: both branches, and one step of each loop."""

    runs_stretches = False

    def _of_bodies(self, node: Node, args: Sequence[Any]) -> Sequence[Any]:
        if node.target is bodies.BRANCH:
            first, _ = [self._once(function, args[3]) for function in args[1:3]]
            return first
        if node.target is bodies.WHILE:
            return self._once(args[1], [*args[2], *args[3]])
        rows = [rows[0] for rows in args[2]]
        results = self._once(args[0], [*args[1], *rows, *args[3]])
        made = [row.expand(args[2][0].shape[0], *row.shape) for row in results[len(args[1]) :]]
        return [*results[: len(args[1])], *made]

    def _once(self, module: GraphModule, given: Sequence[Any]) -> Sequence[Any]:
        return _values(type(self)(module, self._sizes, self._blocks).run(*given))


#: What a file computes of the entries that are there, beside the pointwise operators; of others it may have the traced
#: size written into it, as of `ones_like`.
_OF_WHAT_IS_THERE = frozenset(
    (
        *(_aten.slice.Tensor, _aten.select.int, _aten.unsqueeze.default, _aten.expand.default, _aten.alias.default),
        *(_aten.transpose.int, _aten.permute.default, _aten.contiguous.default, _aten.detach.default),
        *(_aten.to.dtype, _aten.to.dtype_layout, _aten.to.device, _aten.to.other, _aten._to_copy.default),
        *(_aten.type_as.default, _aten.masked_fill.Tensor, _aten.__and__.Tensor, _aten.__or__.Tensor),
        *(_aten.embedding.default, _aten.index.Tensor, _aten.index_select.default),
    )
)


class GraphWithCutTables(GraphWithTrueShapes):
    """The same, but for single entries in place of several, which may not be what it returns: a file says how many."""

    shapes_follow = runs_stretches = False
    _cut: set[Node] | None = None  # nodes with single entries in place of several

    def run_node(self, n: Node) -> Any:
        if n.op == "output":
            self._require_traced(n.all_input_nodes, lambda value, traced: self._sizes.shape(traced) != value.shape)
        elif n.op == "call_function" and n.target is not MARKER and self._blocks.reading.call_of(n).has_bodies:
            given = [node for node in n.all_input_nodes if node.op != "get_attr"]  # the others are bodies
            self._require_traced(given, lambda value, traced: bool(self._others(value, traced)))
        elif self._cut and not self._cut.isdisjoint(n.all_input_nodes) and not _is_of_what_is_there(n.target):
            raise OtherShapeError(f"{n} is given single entries in place of several")
        return super().run_node(n)

    def _require_traced(self, given: Iterable[Node], is_other: Callable[[torch.Tensor, _Shape], bool]) -> None:
        """A file says what size its outputs have, and what its branches and loops are given."""
        for node in given:
            shapes = self._blocks.reading.call_of(node).shapes
            for value, traced in zip(_values(self.env[node]), shapes, strict=False):
                if traced is not None and is_other(value, traced):
                    raise OtherShapeError(f"{node} has the shape {[*value.shape]} and was traced as {[*traced]}")

    def may_have(self, others: Sequence[int]) -> bool:
        return all(size == 1 for size in others)

    def _require_shape(self, node: Node, value: torch.Tensor, traced: _Shape) -> None:
        # A file joins what is written with what is around it, which has to have the traced size; and it says what size
        # branches and loops give, to which the runtime holds them.
        is_written = node.target == _aten.slice.Tensor and any(_writes_into(user, node) for user in node.users)
        if is_written or (self._blocks.reading.call_of(node).has_bodies and self._others(value, traced)):
            raise OtherShapeError(f"{node} has the shape {[*value.shape]} and was traced as {[*traced]}")
        super()._require_shape(node, value, traced)
        self._cut = {*(self._cut or ()), node}


def _is_of_what_is_there(target: Any) -> bool:
    is_pointwise = isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
    return is_pointwise or target in _OF_WHAT_IS_THERE or target is MARKER


def _writes_into(user: Node, node: Node) -> bool:
    """Whether an operator changes a value in place."""
    schema = getattr(user.target, "_schema", None)
    alias = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
    return alias is not None and alias.is_write and user.args[:1] == (node,)


def _values(outputs: object) -> list[Any]:
    """The outputs of one node, of which one alone is no list."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
