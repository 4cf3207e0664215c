"""Operator calls of blocks are traced once, when and as it is asked for, and nothing of it stays."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exportguard import ExportError, ExportOptions, InvalidArgumentError, _core, to_onnx, torch_export_patches
from exportguard.repeats.kinds import Kinds
from exportguard.repeats.markers import MARKER
from exportguard.repeats.plan import counted
from exportguard.repeats.tracing import _SESSIONS
from exportguard.request import ExportRequest
from exportguard.tracing import exported_module


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.lin(x).relu()


class Layers(nn.Module):
    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


BATCH: Any = ({0: "batch"},)
X = torch.randn(3, 4)
REPLACED = [
    *((proxy_tensor._ModuleStackTracer, name) for name in ("trace", "call_module", "create_node")),
    *((proxy_tensor.ProxyTorchDispatchMode, name) for name in ("__torch_dispatch__", "__sym_dispatch__")),
    (ShapeEnv, "create_symbol"),
]


def exported(model: nn.Module, repeats: Any = "trace once") -> Any:
    return exported_module(
        ExportRequest.of(model, (X,), {}, dynamic_shapes=BATCH, options=ExportOptions(repeats=repeats))
    )


def test_all_blocks_but_the_first_are_replayed() -> None:
    counts = exported(Layers()).counts[-1]
    assert (counts.blocks, counts.markers, counts.recorded, counts.replayed) == (4, 3, 3, 9)


class Growing(Layer):
    """As a cache does that the model makes itself: states begin as a tensor without elements."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = torch.cat([torch.tensor([], dtype=x.dtype, device=x.device), self.lin(x)], -2)
        return x + states.relu()


class Limited(Layer):
    """With constants that it makes itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        least = torch.tensor(torch.finfo(x.dtype).min, dtype=torch.float64).to(x.dtype)
        return x + torch.where(self.lin(x) > 0, x, least).clamp(min=-1) * torch.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("layer", [Growing, Limited])
def test_blocks_with_equal_constants_are_replayed(layer: type[Layer]) -> None:
    model = Layers()
    model.layers = nn.ModuleList([layer() for _ in range(4)])
    outcome = exported(model)
    counts = outcome.counts[-1]
    assert (counts.blocks, counts.markers) == (4, 3)
    torch.testing.assert_close(outcome.expanded().module()(X), model(X))


def test_a_program_has_markers_until_it_is_expanded() -> None:
    outcome = exported(Layers())
    assert len(outcome.program.graph.find_nodes(op="call_function", target=MARKER)) == 3
    program = outcome.expanded()
    assert not program.graph.find_nodes(op="call_function", target=MARKER)
    model = Layers()
    torch.testing.assert_close(exported(model).expanded().module()(X), model(X))


def test_a_program_that_the_user_exports_has_operators() -> None:
    model = Layers()
    with torch_export_patches(), counted() as counts, torch.no_grad():
        program = torch.export.export(model, (X,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert counts[-1].markers == 3
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets == ["aten.linear.default", "aten.relu.default", "aten.add.Tensor"] * 4
    torch.testing.assert_close(program.module()(X), model(X))


def test_nodes_of_replayed_blocks_are_in_their_own_modules() -> None:
    with torch_export_patches(), torch.no_grad():
        program = torch.export.export(Layers(), (X,))
    stacks = [node.meta["nn_module_stack"] for node in program.graph.nodes if node.op == "call_function"]
    innermost = [[*stack.values()][-1][0] for stack in stacks]
    assert innermost == [path for i in range(4) for path in (f"layers.{i}.lin", f"layers.{i}", f"layers.{i}")]


def test_nodes_of_a_model_know_the_modules_of_replayed_blocks() -> None:
    model = to_onnx(Layers(), (X,), dynamic_shapes=BATCH, optimize=False)
    modules = [node.module for node in _core.nodes(model._core)]
    assert [path for path in dict.fromkeys(modules) if path.endswith("lin")] == [f"layers.{i}.lin" for i in range(4)]


def test_trace_all_traces_all() -> None:
    outcome = exported(Layers(), "trace all")
    assert outcome.counts == ()
    assert not outcome.program.graph.find_nodes(op="call_function", target=MARKER)
    with torch_export_patches(repeats="trace all"), counted() as counts:
        torch.export.export(Layers(), (X,))
    assert not counts


def test_another_choice_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match='repeats must be one of "trace once", "trace all", "verify", got'):
        to_onnx(Layers(), (X,), options=ExportOptions(repeats="twice"))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="repeats must be one of"), torch_export_patches(repeats="twice"):
        pass


def test_verify_names_the_first_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    from exportguard.repeats import region

    monkeypatch.setattr(region.Region, "_key", lambda self, func, args, kwargs, taken: (func, len(self._numbers)))

    class Scaled(Layer):
        scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    model = Layers()
    model.layers = nn.ModuleList([Scaled() for _ in range(3)])
    model.layers[2].scale = 3.0
    with pytest.raises(ExportError, match=r"gives another model.* output 0 .* against Mul .layers"):
        to_onnx(model, (X,), options=ExportOptions(repeats="verify"))


@pytest.fixture
def originals() -> list[Any]:
    return [owner.__dict__[name] for owner, name in REPLACED]


def assert_nothing_stays(originals: list[Any]) -> None:
    assert [owner.__dict__[name] for owner, name in REPLACED] == originals
    assert not _SESSIONS


@pytest.mark.parametrize("error", [RuntimeError("in the middle"), KeyboardInterrupt()])
def test_an_exception_in_the_middle_of_a_block_leaves_nothing(error: BaseException, originals: list[Any]) -> None:
    class Stops(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.lin(x)
            if self is model.layers[2]:
                raise error
            return x + y

    model = Layers()
    model.layers = nn.ModuleList([Stops() for _ in range(3)])
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ExportError):
        to_onnx(model, (X,), dynamic_shapes=BATCH)
    assert_nothing_stays(originals)
    assert exported(Layers()).counts[-1].markers == 3


def test_nested_guards_and_two_exports_leave_nothing(originals: list[Any]) -> None:
    with torch_export_patches(), torch_export_patches(repeats="trace all"), torch_export_patches():
        assert exported(Layers()).counts == ()
    with torch_export_patches(), torch_export_patches():
        assert [exported(Layers()).counts[-1].markers for _ in range(2)] == [3, 3]
    assert_nothing_stays(originals)


def test_an_export_that_fails_where_calls_are_replayed_is_made_without(caplog: pytest.LogCaptureFixture) -> None:
    class Counts(Layer):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from exportguard.repeats.plan import current_plan

            self.calls += 1
            if current_plan().traces_once and self is model.layers[2]:
                raise RuntimeError("of the replay")
            x = x * self.calls
            self.calls -= 1
            return x

    model = Layers()
    model.layers = nn.ModuleList([Counts() for _ in range(3)])
    with caplog.at_level(logging.WARNING, logger="exportguard"):
        onnx_model = to_onnx(model, (X,), dynamic_shapes=BATCH)
    assert (
        "could not be traced once, so all were traced, which takes longer: RuntimeError: of the replay" in caplog.text
    )
    torch.testing.assert_close(next(iter(onnx_model.run({"x": X}).values())), X)  # each was in one call


def test_what_repeats_inside_is_replayed_where_that_traces_less() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Layers(6), Layers(6)

    model = Two()
    kinds = Kinds(model)
    assert kinds.key_of_call(model.first) is None
    assert kinds.key_of_call(model.first.layers[0]) is kinds.key_of_call(model.second.layers[3])


def test_a_block_of_experts_is_replayed_as_a_whole() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(4, 4)) for _ in range(8)])

    model = nn.ModuleList([Experts() for _ in range(6)])
    assert Kinds(model).key_of_call(model[0]) is not None


class Turns(nn.Module):
    """Asks of a tensor that does not live to the end of its block whether it lies in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.lin(x.transpose(0, 1).contiguous().transpose(0, 1))


def test_what_was_found_out_of_the_layout_of_a_tensor_is_known_in_later_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def products(depth: int) -> int:
        count = itertools.count()
        multiplied = SymNode.mul

        def mul(self: SymNode, other: SymNode) -> SymNode:
            next(count)
            return multiplied(self, other)

        with monkeypatch.context() as changed:
            changed.setattr(SymNode, "mul", mul)
            program = exported(nn.Sequential(*(Turns() for _ in range(depth)))).program
        assert len(program.graph.find_nodes(op="call_function", target=MARKER)) == depth - 1
        return next(count)

    assert products(3) == products(9)
