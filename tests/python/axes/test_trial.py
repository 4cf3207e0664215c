"""Model and program, tried at other sizes."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
import torch

from exportguard import ExportError, ExportOptions, to_onnx
from exportguard.axes.model_run import ModelRun
from exportguard.axes.trace import meets
from exportguard.axes.traced_program import TracedProgram
from exportguard.axes.trial import Outcome, Trial
from exportguard.inputs import CallInputs
from exportguard.reading import Exported
from exportguard.repeats.markers import MARKER
from exportguard.request import ExportRequest
from exportguard.rewrites.state import is_fake
from exportguard.tracing import exported_module


class Layer(torch.nn.Module):
    """A block of several operators."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x))).softmax(1)


class Stack(torch.nn.Module):
    """Blocks that repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        met = []
        for layer in self.layers:
            x = layer(x)
            met.append(x.mean(1))
        return x, *met


def exported(model: torch.nn.Module, x: torch.Tensor) -> Exported:
    return exported_module(ExportRequest.of(model, (x,), None, dynamic_shapes=({1: "seq"},), options=ExportOptions()))


def sizes_of(exported: Exported, size: int) -> dict[Any, int]:
    value = next(node.meta["val"] for node in exported.program.graph.nodes if node.name == "x")
    return {value.shape[1].node.expr: size}


def trial_of(model: torch.nn.Module, x: torch.Tensor, exported: Exported) -> Trial:
    return Trial(ModelRun(model, CallInputs((x,), {})), TracedProgram(exported.program))


def test_program_of_repeated_blocks_is_run_with_its_markers() -> None:
    model, x = Stack().eval(), torch.rand(2, 5, 4)
    found = exported(model, x)
    markers = found.program.graph.find_nodes(op="call_function", target=MARKER)
    assert len(markers) == 3

    trial = trial_of(model, x, found)
    assert [trial.outcome(sizes_of(found, size)) for size in (1, 2, 9)] == [Outcome.AGREES] * 3
    assert found.program.graph.find_nodes(op="call_function", target=MARKER) == markers


@pytest.mark.parametrize("wrong", ["value", "shape"])
def test_program_whose_later_block_does_something_else_differs(wrong: str) -> None:
    model, x = Stack().eval(), torch.rand(2, 5, 4)
    found = exported(model, x)
    marker = found.program.graph.find_nodes(op="call_function", target=MARKER)[2]
    graph = found.program.graph
    with graph.inserting_before(marker):
        target, by = (torch.ops.aten.mul.Tensor, 2.0) if wrong == "value" else (torch.ops.aten.unsqueeze.default, 0)
        other = graph.call_function(target, (marker.args[0][0], by))
    marker.update_arg(0, [other, *marker.args[0][1:]])
    other.meta["val"] = marker.args[0][1].meta["val"]
    assert trial_of(model, x, found).outcome(sizes_of(found, 3)) == Outcome.DIFFERS


def test_what_is_known_of_a_point_is_not_found_out_again() -> None:
    model, x = Stack().eval(), torch.rand(2, 5, 4)
    found = exported(model, x)
    trial = trial_of(model, x, found)

    ran = itertools.count()  # a list would be as before after each run
    model.register_forward_hook(lambda *_: (next(ran), None)[1])
    for _ in range(3):
        assert trial.refuses(sizes_of(found, 3)) is False
        assert trial.outcome(sizes_of(found, 3)) == Outcome.AGREES
    assert next(ran) == 2  # with the traced call, for the structure of its results


class Divides(torch.nn.Module):
    """Refuses a size of 3 in Python's arithmetic."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (12 // (3 - x.shape[1])) if x.shape[1] < 4 else x * 2


def test_error_of_pythons_arithmetic_is_a_refusal() -> None:
    model, x = Divides(), torch.rand(2, 5, 4)
    found = exported(model, x)
    trial = trial_of(model, x, found)
    assert trial.refuses(sizes_of(found, 3)) is True
    assert trial.outcome(sizes_of(found, 3)) == Outcome.REFUSED


@pytest.fixture
def much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a program computes is more than what is run to find out whether a model takes a size."""
    monkeypatch.setattr("exportguard.axes.trial.QUICK_PRODUCTS", 0)


@pytest.mark.usefixtures("much_work")
def test_large_model_is_tried_without_its_data() -> None:
    x = torch.rand(2, 600, 4)  # more rows than are run for that
    model = Stack().eval()
    found = exported(model, x)
    trial = trial_of(model, x, found)
    with_data = itertools.count()
    model.register_forward_pre_hook(lambda _, args: (None if is_fake(args[0]) else next(with_data), None)[1])
    assert trial.refuses(sizes_of(found, 700)) is False
    assert next(with_data) == 0


class Reads(torch.nn.Module):
    """Reads an element, which a tensor without data does not tell; refuses what is longer than 900."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 900:
            raise ValueError("too long")
        return x * float(x.sum() > 0)


@pytest.mark.usefixtures("much_work")
@pytest.mark.parametrize(("size", "is_refused"), [(700, False), (901, True)])
def test_fake_tensors_that_are_refused_are_no_refusal_of_their_sizes(size: int, is_refused: bool) -> None:
    x = torch.rand(2, 600, 4)
    found = exported(Stack().eval(), x)  # the program matters not
    assert trial_of(Reads(), x, found).refuses(sizes_of(found, size)) is is_refused


@pytest.mark.parametrize(("width", "rows", "threads"), [(4, 5, 1), (8192, 5, 1), (8192, 40, 2)])
def test_little_is_computed_in_one_thread_and_much_in_all(width: int, rows: int, threads: int) -> None:
    before, met = torch.get_num_threads(), itertools.count()
    model = torch.nn.Linear(width, width)
    model.register_forward_pre_hook(lambda *_: (next(met) if torch.get_num_threads() == threads else None, None)[1])
    torch.set_num_threads(2)
    try:
        inputs = CallInputs((torch.rand(rows, width),), {})
        call = ModelRun(model, inputs).of(inputs)
        assert call.outputs() is not None
        assert torch.get_num_threads() == 2, "as before"
    finally:
        torch.set_num_threads(before)
    assert next(met) == 1


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch: of [3] and [1, 4]"), IndexError("index 9 of 4")])
def test_a_program_that_stops_where_its_model_runs_is_another_one(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(TracedProgram, "run", stop)
    with pytest.raises(ExportError, match="for the inputs it was traced with: it stops: ") as found:
        to_onnx(Layer().eval(), (torch.rand(3, 4),))
    assert str(error) in str(found.value)


def test_a_program_with_an_operator_that_runs_nowhere_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> Any:
        raise NotImplementedError("no kernel")

    monkeypatch.setattr(TracedProgram, "run", stop)
    assert to_onnx(Layer().eval(), (torch.rand(3, 4),)).node_count


def test_numbers_that_no_size_tells_decide_nothing() -> None:
    """A condition on what floats or data make of sizes is neither met nor broken at some sizes."""
    size, of_data = sympy.Symbol("s0", integer=True), sympy.Symbol("u0", integer=True)
    trace: Any = SimpleNamespace(
        all_sizes=lambda sizes: sizes, value=lambda condition, sizes: bool(condition.xreplace(sizes))
    )
    assert meets([sympy.Ne(of_data * size, 0)], trace, {size: 4})
    assert meets([sympy.Ne(of_data, 0), sympy.Gt(size, 3)], trace, {size: 4})
    assert not meets([sympy.Ne(of_data, 0), sympy.Gt(size, 4)], trace, {size: 4})
