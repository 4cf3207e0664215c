"""Programs for different sizes as one: a graph whose `cond` on the sizes of the inputs runs one of them."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.utils import _pytree as pytree
from torch.utils._sympy.interp import sympy_interp

from exportguard.example import Example, Place
from exportguard.patches.torch.floats_of_sizes import computed_as_written
from exportguard.signature import raw_size

from .condition_graph import OfNodes
from .regions import symbol_of
from .size_tests import Branch, OneWayError, Tree, Way, ways_of

_FURTHER = 1000  # torch's number of the first size that only both branches together have, beyond those of the branches


def joined(tree: Tree) -> ExportedProgram:
    """The program of a tree, which takes what each of its programs takes.

    The graphs of the programs become its branches.

    Raises:
        OneWayError: they take, return or write different things.
    """
    ways = list(ways_of(tree))
    _return_numbers_as_tensors(ways)
    frame = _frame_among(ways)
    for way in ways:
        _require_alike(frame.program, way.program)
        _require_one_name(frame, way, ways[0].example)
    return _Joining(frame, ways).program(tree)


def _frame_among(ways: Sequence[Way]) -> Way:
    """A program that was traced with a symbol of its own for every size that may be any."""
    for way in ways:
        example = ways[0].example
        sizes = [way.inputs.sizes[place.leaf][place.axis] for place in example.sizes]
        replaced = way.inputs.shape_env.replacements
        related = {relation.place for relation in example.relations}
        free = [size for place, size in zip(example.sizes, sizes, strict=True) if place not in related]
        if all(size.is_Symbol for size in sizes) and not any(size in replaced for size in free):
            return way
    raise OneWayError("on every way through the model some of its sizes are equal, or constant")


def _return_numbers_as_tensors(ways: Sequence[Way]) -> None:
    """Lets each way return a tensor of rank 0 in the place of a whole number that is not the same on all of them."""
    for place, outputs in enumerate(zip(*(_outputs(way.program) for way in ways), strict=False)):
        dtype = _dtype_for_numbers(outputs)
        if dtype is not None:
            for way in ways:
                _return_as_tensor(way, place, dtype)


def _dtype_for_numbers(outputs: Sequence[object]) -> torch.dtype | None:
    """The dtype that holds one output of all ways; None where they are no numbers, or one constant."""
    values = [_value(output) for output in outputs]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    numbers = [value for value in values if isinstance(value, int | torch.SymInt) and not isinstance(value, bool)]
    are_one = not any(isinstance(output, Node) for output in outputs) and len(set(values)) == 1
    if are_one or not numbers or len(tensors) + len(numbers) < len(values) or any(tensor.dim() for tensor in tensors):
        return None
    dtypes = {tensor.dtype for tensor in tensors} or {torch.int64}
    return dtypes.pop() if len(dtypes) == 1 and torch.bool not in dtypes else None


def _return_as_tensor(way: Way, place: int, dtype: torch.dtype) -> None:
    graph = way.program.graph
    (output,) = graph.find_nodes(op="output")
    result = output.args[0][place]
    if isinstance(_value(result), torch.Tensor):
        return
    with graph.inserting_before(output):
        made = graph.call_function(torch.ops.aten.scalar_tensor.default, (result,), {"dtype": dtype})
    with _mode_of(way):
        made.meta["val"] = torch.empty((), dtype=dtype)
    output.args = ((*output.args[0][:place], made, *output.args[0][place + 1 :]),)


def _mode_of(way: Way) -> Any:
    return next(leaf.fake_mode for leaf in way.inputs.leaves if isinstance(leaf, FakeTensor))


def _require_alike(one: ExportedProgram, other: ExportedProgram) -> None:
    if one.call_spec.out_spec != other.call_spec.out_spec:
        raise OneWayError("the model returns another structure at other sizes")
    for program in (one, other):
        kinds = {spec.kind for spec in program.graph_signature.output_specs}
        if kinds != {OutputKind.USER_OUTPUT}:
            raise OneWayError("the model writes into its inputs or buffers")
    for first, second in zip(_outputs(one), _outputs(other), strict=True):
        _require_alike_values(first, second)


def _require_one_name(frame: Way, way: Way, example: Example) -> None:
    """Refuses ways in which torch calls sizes by other names: their graphs have the sizes by name.

    torch 2.11 to 2.13 name a size after its input, but for the rare two whose names would be one.
    """
    for place in example.sizes:
        names = {str(size) for one in (frame, way) if (size := one.inputs.sizes[place.leaf][place.axis]).is_Symbol}
        if len(names) > 1:
            raise OneWayError("torch calls two of the sizes by one name; name the arguments of forward in another way")


def _require_alike_values(one: object, other: object) -> None:
    first, second = _value(one), _value(other)
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if first.dim() != second.dim():
            raise OneWayError(
                f"the model returns a tensor of rank {first.dim()} at some sizes and of rank {second.dim()} at others, "
                "while a file has one rank for each output"
            )
        if first.dtype != second.dtype:
            raise OneWayError(f"the model returns {first.dtype} at some sizes and {second.dtype} at others")
    elif isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor):
        raise OneWayError(f"the model returns {_described(first)} at some sizes and {_described(second)} at others")
    elif isinstance(one, Node) or isinstance(other, Node) or one != other:
        raise OneWayError("the model returns numbers that depend on its sizes")


def _described(value: object) -> str:
    return f"a tensor of rank {value.dim()}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"


def _value(output: object) -> Any:
    return output.meta.get("val") if isinstance(output, Node) else output


def _outputs(program: ExportedProgram) -> list[Any]:
    (output,) = program.graph.find_nodes(op="output")
    return list(output.args[0])


@dataclass(frozen=True)
class _Body:
    """A graph that runs for some sizes, and what each of its placeholders stands for.

    `outputs` are the sizes of what it returns, in symbols of the frame; None is one that the frame has no symbol for.
    """

    module: GraphModule
    operands: Sequence[str]  # names of placeholders of the whole program
    outputs: Sequence[Sequence[sympy.Expr | None]]


class _Inputs:
    """What the whole program takes: parameters, buffers, the constants of each way, and the user's inputs."""

    def __init__(self, frame: Way, ways: Sequence[Way]) -> None:
        self._frame = frame
        self.mode: Any = _mode_of(frame)
        self.specs: dict[str, InputSpec] = {}
        self.constants: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        specs = frame.program.graph_signature.input_specs
        self.of_user = [spec.arg.name for spec in specs if spec.kind == InputKind.USER_INPUT]
        self._names = {id(way): self._register(way, number) for number, way in enumerate(ways)}

    def in_order(self) -> list[str]:
        """The names in the order in which torch wants them."""
        kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.USER_INPUT)
        return [name for kind in kinds for name, spec in self.specs.items() if spec.kind == kind]

    def name_of(self, way: Way, node: Node) -> str:
        """What a placeholder of one way is called here."""
        return self._names[id(way)][node.name]

    def placeholder(self, graph: Graph, name: str) -> Node:
        """A new placeholder of that name."""
        node = graph.placeholder(name)
        node.name = name
        node.meta["val"] = self._values[name]
        return node

    def _register(self, way: Way, number: int) -> dict[str, str]:
        values = {node.name: node.meta.get("val") for node in way.program.graph.find_nodes(op="placeholder")}
        of_user = iter(self.of_user)
        names = {}
        for spec in way.program.graph_signature.input_specs:
            renamed = self._renamed(spec, number, of_user)
            name = names[spec.arg.name] = renamed.arg.name
            if spec.target in way.program.constants:
                self.constants[str(renamed.target)] = way.program.constants[str(spec.target)]
            if name not in self.specs or way is self._frame:
                self.specs[name] = renamed
                self._values[name] = self._in_frame(values[spec.arg.name])
        return names

    def _renamed(self, spec: InputSpec, number: int, of_user: Iterator[str]) -> InputSpec:
        """What an input of one way is here: constants of two ways are two, whatever they are called."""
        if spec.kind == InputKind.USER_INPUT:
            return replace(spec, arg=replace(spec.arg, name=next(of_user)))
        if spec.kind == InputKind.CONSTANT_TENSOR:
            return replace(
                spec, arg=replace(spec.arg, name=f"{spec.arg.name}_{number}"), target=f"{spec.target}_{number}"
            )
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER):
            raise OneWayError(f"the program takes a {spec.kind.name.lower()}")
        return spec

    def _in_frame(self, value: Any) -> Any:
        """A fake tensor of constant sizes of another trace as one of the frame's."""
        if not isinstance(value, FakeTensor) or value.fake_mode is self.mode:
            return value
        with self.mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


class _Joining:
    """Puts the programs of a tree together in the frame of one of them."""

    def __init__(self, frame: Way, ways: Sequence[Way]) -> None:
        self._frame, self._example = frame, ways[0].example
        self._inputs = _Inputs(frame, ways)
        self._results = _outputs(frame.program)
        self._env = self._inputs.mode.shape_env
        self._env.unbacked_symint_counter = max(self._env.unbacked_symint_counter, _FURTHER)

        # They are those of one way, and an ExportedProgram of torch 2.11 to 2.13 checks them when it is called.
        self._env.guards.clear()

    def program(self, tree: Tree) -> ExportedProgram:
        """The whole program."""
        body, program = self._body(tree), self._frame.program
        names = self._inputs.in_order()
        self._take(body, names)

        (output,) = body.module.graph.find_nodes(op="output")
        tensors = iter(output.args[0])
        results = [next(tensors) if isinstance(known, Node) else known for known in self._results]
        output.args = (tuple(results),)
        body.module.recompile()

        pairs = zip(program.graph_signature.output_specs, results, strict=True)
        outputs = [
            replace(spec, arg=TensorArgument(name=result.name)) if isinstance(result, Node) else spec
            for spec, result in pairs
        ]
        return ExportedProgram(
            body.module,
            body.module.graph,
            ExportGraphSignature([self._inputs.specs[name] for name in names], outputs),
            program.state_dict,
            {},
            copy.deepcopy(program.module_call_graph),
            program.example_inputs,
            constants=self._inputs.constants,
            verifiers=program.verifiers,
        )

    def _body(self, tree: Tree) -> _Body:
        return self._of_way(tree) if isinstance(tree, Way) else self._of_branch(tree)

    # ------------------------------------------------------------------------------------------------ one way

    def _of_way(self, way: Way) -> _Body:
        """The graph of a program, which takes what it uses and returns tensors alone."""
        module, operands = way.program.graph_module, []
        for node in module.graph.find_nodes(op="placeholder"):
            name = self._inputs.name_of(way, node)
            if not node.users:
                module.graph.erase_node(node)
                continue
            if isinstance(self._inputs.specs[name].arg, ConstantArgument):
                raise OneWayError(f"the program uses {name}, which is a constant")
            operands.append(name)

        (output,) = module.graph.find_nodes(op="output")
        results = [result for result in output.args[0] if isinstance(result, Node)]
        output.args = (tuple(results),)
        module.recompile()
        return _Body(module, operands, [self._sizes_in_frame(way, result.meta["val"]) for result in results])

    def _sizes_in_frame(self, way: Way, value: torch.Tensor) -> list[sympy.Expr | None]:
        pairs = ((self._size(way, place), self._size(self._frame, place)) for place in self._example.sizes)
        known = {own: of_frame for own, of_frame in pairs if own.is_Symbol}
        expressions = [raw_size(size) for size in value.shape]
        return [e.xreplace(known) if e.free_symbols <= known.keys() else None for e in expressions]

    @staticmethod
    def _size(way: Way, place: Place) -> sympy.Expr:
        return way.inputs.sizes[place.leaf][place.axis]

    # ------------------------------------------------------------------------------------------------ branches

    def _of_branch(self, branch: Branch) -> _Body:
        """A graph with a `cond` of both sides, which take the same operands."""
        then, orelse = self._body(branch.then), self._body(branch.orelse)
        operands = list(dict.fromkeys([*then.operands, *orelse.operands]))
        for body in (then, orelse):
            self._take(body, operands)
        places = {symbol_of(place): place for place in self._example.sizes}
        read = {symbol: places[symbol] for symbol in sorted(branch.condition.free_symbols, key=str)}
        names = list(dict.fromkeys([*operands, *(self._inputs.of_user[place.leaf] for place in read.values())]))

        graph, root = Graph(), torch.nn.Module()
        nodes = {name: self._inputs.placeholder(graph, name) for name in names}
        sizes = {symbol: self._size_node(graph, nodes[self._inputs.of_user[p.leaf]], p) for symbol, p in read.items()}
        test = self._condition(graph, branch.condition, sizes)
        root.add_module("true_graph_0", then.module)
        root.add_module("false_graph_0", orelse.module)
        bodies = graph.get_attr("true_graph_0"), graph.get_attr("false_graph_0")
        given = tuple(nodes[name] for name in operands)
        call = graph.call_function(torch.ops.higher_order.cond, (test, *bodies, given))

        outputs = [_merged(*pair) for pair in zip(then.outputs, orelse.outputs, strict=True)]
        call.meta["val"] = tuple(self._values(outputs))
        graph.output(tuple(self._item(graph, call, number) for number in range(len(outputs))))
        return _Body(GraphModule(root, graph), names, outputs)

    def _take(self, body: _Body, operands: Sequence[str]) -> None:
        """Lets a graph take these operands, in this order."""
        graph = body.module.graph
        before = graph.find_nodes(op="placeholder")
        own = dict(zip(body.operands, before, strict=True))
        with graph.inserting_before(next(iter(graph.nodes))):
            fresh = {name: self._inputs.placeholder(graph, name) for name in operands}
        for name, node in own.items():
            fresh[name].meta = node.meta
            node.replace_all_uses_with(fresh[name])
            graph.erase_node(node)
            fresh[name].name = name
        body.module.recompile()

    def _size_node(self, graph: Graph, node: Node, place: Place) -> Node:
        size = graph.call_function(torch.ops.aten.sym_size.int, (node, place.axis))
        size.meta["val"] = self._frame.inputs.leaves[place.leaf].shape[place.axis]
        return size

    @staticmethod
    def _condition(graph: Graph, condition: sympy.Basic, sizes: Mapping[sympy.Symbol, Node]) -> Node:
        """The nodes that compute a condition of sizes."""
        tracer = GraphAppendingTracer(graph)
        proxies = {symbol: Proxy(node, tracer) for symbol, node in sizes.items()}
        found = sympy_interp(OfNodes, proxies, condition)
        if not isinstance(found, Proxy):  # which no size decides
            raise OneWayError("on one of the ways a test has the same answer at all sizes")
        result: Node = found.node
        with computed_as_written():
            for node in graph.nodes:
                if node.op == "call_function" and "val" not in node.meta:
                    arguments = pytree.tree_map_only(Node, lambda operand: operand.meta["val"], node.args)
                    node.meta["val"] = node.target(*arguments)
        return result

    @staticmethod
    def _item(graph: Graph, call: Node, number: int) -> Node:
        item = graph.call_function(operator.getitem, (call, number))
        item.meta["val"] = call.meta["val"][number]
        return item

    def _values(self, outputs: Sequence[Sequence[sympy.Expr | None]]) -> Iterator[torch.Tensor]:
        """Fake tensors of the frame; a further symbol stands for a size that has none."""
        known = [_value(result) for result in self._results if isinstance(result, Node)]
        for sizes, like in zip(outputs, known, strict=True):
            with self._inputs.mode:
                shape = [self._symbolic(size) for size in sizes]
                self._env.pending_fresh_unbacked_symbols.clear()
                yield torch.empty(shape, dtype=like.dtype, device=like.device)

    def _symbolic(self, size: sympy.Expr | None) -> Any:
        if size is None:
            return self._env.create_unbacked_symint()
        if size.is_Integer:
            return int(size)
        made = self._env.create_symintnode(size, hint=None)
        # Both ways may make `n - m` rows and the sizes of the example go a third, on which that is negative.
        is_there = made.node.hint is None or made.node.hint >= 0
        return made if is_there else self._env.create_unbacked_symint()


def _merged(one: Sequence[sympy.Expr | None], other: Sequence[sympy.Expr | None]) -> list[sympy.Expr | None]:
    """The sizes that are the same on both sides."""
    return [a if a is not None and a == b else None for a, b in zip(one, other, strict=True)]
