"""The model and its program, run at sizes at which the program may be wrong."""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from exportguard.errors import REFUSALS
from exportguard.inputs import CallInputs
from exportguard.repeats.markers import expand as expand_markers
from exportguard.rewrites.state import Snapshot

from .expressions import Evaluation, Sizes
from .resizing import InputsOfOtherSizes, raw_size

logger = logging.getLogger(__name__)

_SQUEEZES = tuple(getattr(torch.ops.aten.squeeze, name) for name in ("default", "dim", "dims"))

# What a result may differ by where both sides do the same arithmetic, in parts of the largest value: epsilons of it.
_EPSILONS = 256


class Outcome(enum.Enum):
    """What a trial shows."""

    REFUSED = "the model refuses these sizes"
    AGREES = "the program does what the model does"
    REPEATS = "the model takes one entry of a table for all, where it has no more of them, and so does the program"
    DIFFERS = "the program does something else than the model"
    UNKNOWN = "it could not be tried"


class Trial:
    """Runs a model as it is, without patches, beside the program that was made of it."""

    def __init__(self, model: torch.nn.Module, call: CallInputs, program: ExportedProgram) -> None:
        """`call` is what was exported."""
        self._model, self._program = model, program
        self._inputs = InputsOfOtherSizes(program, call)
        self._call = call
        self._works_without_data: bool | None = None
        self._is_possible = not any(one.is_meta or is_fake(one) for one in _tensors_of(model))

    def refuses(self, sizes: Sizes) -> bool | None:
        """Whether the model itself does not take inputs of these sizes; None if that cannot be told.

        It is run without its data where it can be, which costs next to nothing, whatever the sizes.
        """
        call = self._inputs(sizes) if self._is_possible else None
        if call is None:
            return None
        if self._works_without_data is None:
            self._works_without_data = _error_without_data(self._model, self._call) is None
        error = _error_of(self._model, call, self._works_without_data)
        logger.debug("the model at %s: %s", sizes, error or "runs")
        return error is not None

    def outcome(self, sizes: Sizes) -> Outcome:
        """Whether model and program do the same at these sizes."""
        call = self._inputs(sizes) if self._is_possible else None
        if call is None:
            return Outcome.UNKNOWN
        try:
            with _left_as_it_was(self._model):
                expected = _leaves(self._model(*_copied(call.args), **_copied(dict(call.kwargs))))
        except REFUSALS:
            return Outcome.REFUSED
        try:
            with _left_as_it_was(self._model):
                got = run_program(self._program, call, sizes)
        except Exception as error:  # whatever an operator raises for shapes that do not go together
            logger.debug("the program at %s: %s", sizes, error)
            return Outcome.REPEATS if self._repeats(call, sizes, expected) else Outcome.DIFFERS
        return Outcome.AGREES if agree(expected, got) else Outcome.DIFFERS

    def _repeats(self, call: CallInputs, sizes: Sizes, expected: Sequence[Any]) -> bool:
        """Whether the program does the same as long as what was cut to one entry may be repeated for all.

        A slice of a table that ends beyond it has fewer entries than were asked for. All models refuse that but for a
        single entry, which is broadcast.
        """
        try:
            with _left_as_it_was(self._model):
                got = run_program(self._program, call, sizes, GraphWithCutTables)
        except Exception as error:  # as above
            logger.debug("the program at %s, with a table cut to one entry: %s", sizes, error)
            return False
        return agree(expected, got)


def refuses(model: torch.nn.Module, call: CallInputs, known: CallInputs) -> bool:
    """Whether the model does not take a call; `known` is one that it takes."""
    return _error_of(model, call, _error_without_data(model, known) is None) is not None


def _error_of(model: torch.nn.Module, call: CallInputs, works_without_data: bool) -> Exception | None:
    if works_without_data:
        return _error_without_data(model, call)
    try:
        with _left_as_it_was(model):
            model(*_copied(call.args), **_copied(dict(call.kwargs)))
    except REFUSALS as error:
        return error
    return None


def _error_without_data(model: torch.nn.Module, call: CallInputs) -> Exception | None:
    """What the model raises for fake tensors of the sizes of the call."""
    # Not at the top: it takes long to import, and whoever exports has it by now.
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _torch_silent(), _left_as_it_was(model), mode:
            args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (call.args, dict(call.kwargs)))
            model(*args, **kwargs)
    except Exception as error:  # the model's refusal, or that of fake tensors to tell their data
        return error
    return None


@contextlib.contextmanager
def _torch_silent() -> Iterator[None]:
    """Without torch's log of a fake tensor that an operator refuses: here that is an answer."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


@contextlib.contextmanager
def _left_as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Runs a block that calls the model; its attributes, its buffers and the random numbers are then as before."""
    snapshot = Snapshot(model.modules())
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        snapshot.restore(snapshot.changes())
        with torch.no_grad():
            for buffer, before in buffers:
                if not is_fake(buffer):
                    buffer.copy_(before)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data, but belongs to a trace."""
    return hasattr(tensor, "fake_mode")


def _tensors_of(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _copied(arguments: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, arguments)


def run_program(
    program: ExportedProgram, call: CallInputs, sizes: Sizes, graph: type[GraphWithTrueShapes] | None = None
) -> list[Any]:
    """The outputs of the program, without the checks of its sizes; what it writes to buffers is written to copies.

    `graph` runs it, and says which shapes are true: all of them by default.

    Raises:
        RuntimeError: a tensor within it has another shape than the trace says it has at these sizes.
    """
    signature = program.graph_signature
    leaves = iter(pytree.tree_leaves((_copied(call.args), _copied(dict(call.kwargs)))))
    values = [
        next(leaves) if spec.kind == InputKind.USER_INPUT else _own_value(program, spec)
        for spec in signature.input_specs
    ]
    expand_markers(program.graph_module)
    results = (graph or GraphWithTrueShapes)(program.graph_module, sizes).run(*values)
    pairs = zip(signature.output_specs, results, strict=True)
    return [value for spec, value in pairs if spec.kind == OutputKind.USER_OUTPUT]


def _own_value(program: ExportedProgram, spec: Any) -> Any:
    state, constants = program.state_dict, program.constants
    value = state[spec.target] if spec.target in state else constants.get(spec.target)
    is_written = spec.kind == InputKind.BUFFER and isinstance(value, torch.Tensor)
    return value.detach().clone() if is_written and isinstance(value, torch.Tensor) else value


class GraphWithTrueShapes(torch.fx.Interpreter):
    """Runs a graph as its conversion is meant to: the shapes in it are true, and its assertions are left out."""

    def __init__(self, module: torch.fx.GraphModule, sizes: Sizes) -> None:
        super().__init__(module)
        self._sizes = sizes
        self._known: dict[Any, Evaluation] = {}

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(target, "__name__", "")
        if name.startswith(("_assert", "sym_constrain_range")):
            return None
        return super().call_function(target, args, kwargs)

    def run_node(self, n: torch.fx.Node) -> Any:
        result = self._squeezed(n) if n.target in _SQUEEZES else super().run_node(n)
        if n.op == "call_function":
            for value, traced in zip(_values(result), _values(n.meta.get("val")), strict=False):
                self._require_shape(n, value, traced)
        return result

    def _squeezed(self, node: torch.fx.Node) -> Any:
        """Without the axes that the trace knows to be of size 1, as the conversion leaves out those and no others."""
        value, *asked = self.fetch_args_kwargs_from_env(node)[0]
        traced: Any = node.args[0]
        sizes = traced.meta["val"].shape
        axes = pytree.tree_leaves(asked) if asked else range(len(sizes))
        return torch.squeeze(
            value, [axis for axis in axes if sizes and isinstance(sizes[axis], int) and sizes[axis] == 1]
        )

    def _require_shape(self, node: torch.fx.Node, value: Any, traced: Any) -> None:
        if not isinstance(value, torch.Tensor) or not isinstance(traced, torch.Tensor):
            return
        shape = [self._size(size) for size in traced.shape]
        differs = [b for a, b in zip(shape, value.shape, strict=False) if a is not None and a != b]
        if not self.may_have(differs) or len(shape) != value.dim():
            raise RuntimeError(f"{node} has the shape {[*value.shape]} and was traced as {[*traced.shape]}")

    def may_have(self, others: Sequence[int]) -> bool:
        """Whether a tensor may have these sizes in place of the traced ones."""
        return not others

    def _size(self, size: Any) -> int | None:
        """The traced size; None for one that depends on data."""
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = raw_size(size)
        symbols = sorted(expression.free_symbols, key=str)
        if not all(symbol in self._sizes for symbol in symbols):
            return None
        if expression not in self._known:
            self._known[expression] = Evaluation(expression, symbols)
        value = self._known[expression](self._sizes)
        return None if value is None else int(value)


class GraphWithCutTables(GraphWithTrueShapes):
    """The same, but for single entries in place of several."""

    def may_have(self, others: Sequence[int]) -> bool:
        return all(size == 1 for size in others)


def _values(outputs: Any) -> list[Any]:
    """The outputs of one node, of which one alone is no list."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _leaves(outputs: Any) -> list[Any]:
    return pytree.tree_leaves(outputs)


def agree(expected: Sequence[Any], got: Sequence[Any]) -> bool:
    """Whether two lists of outputs are the same but for the rounding of sums."""
    if len(expected) != len(got):
        return False
    return all(_same(one, other) for one, other in zip(expected, got, strict=True))


def _same(expected: Any, got: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        return (
            bool(expected == got) if not isinstance(expected, torch.Tensor | float) else _close_numbers(expected, got)
        )
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return False
    if not expected.is_floating_point() and not expected.is_complex():
        return torch.equal(expected, got)
    finite = expected[torch.isfinite(expected)]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    bound = _EPSILONS * torch.finfo(expected.dtype).eps * largest
    return torch.allclose(expected, got, rtol=0.0, atol=bound, equal_nan=True)


def _close_numbers(expected: Any, got: Any) -> bool:
    return abs(float(expected) - float(got)) <= 1e-6 * abs(float(expected))
