"""Models of equal blocks, whose operator calls are traced once."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from torch import nn
from torch._export.non_strict_utils import _NonStrictTorchFunctionHandler as Handler
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.meta_utils import MetaTensorDescriber
from torch.fx._lazy_graph_module import _LazyGraphModule, _make_graph_module
from torch.fx.experimental import proxy_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._sympy.value_ranges import ValueRanges

from exportguard import ExportOptions, torch_export_patches
from exportguard.declaration.patch import KEPT_FRAMES
from exportguard.repeats.plan import counted, current_plan, traced_with_markers
from exportguard.request import ExportRequest
from exportguard.tracing import exported_module


class Adds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.lin(x) + other


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Adds() for _ in range(4)])

    def forward(self, x: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
        for layer, other in zip(self.layers, others, strict=True):
            x = layer(x, other)
        return x


def _replayed(shapes: Any) -> int:
    inputs = (torch.zeros(2, 4), [torch.zeros(2, 4) for _ in range(4)])
    with torch_export_patches(), torch.no_grad(), counted() as counts:
        torch.export.export(Layers().eval(), inputs, dynamic_shapes=shapes)
    return sum(one.markers for one in counts)


def _equal_blocks() -> None:
    assert _replayed(None) == 3


def _equal_blocks_with_axes_of_one_name() -> None:
    batch = torch.export.Dim("batch")
    assert _replayed(({0: batch}, [{0: batch}] * 4)) >= 3


class Fails(nn.Module):
    """Stops where operator calls are traced once, in its third call."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Fails.calls += 1
        if current_plan().traces_once and Fails.calls > 2:
            raise RuntimeError("only where calls are traced once")
        return x + 1


class FailsWhenReplayed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), Fails()) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _an_export_that_replaying_stops() -> None:
    Fails.calls = 0
    with torch_export_patches(), torch.no_grad():
        torch.export.export(FailsWhenReplayed().eval(), (torch.zeros(2, 4),))


def _values_without_metadata() -> None:
    program = exported_module(
        ExportRequest.of(
            Layers().eval(),
            (torch.zeros(2, 4), [torch.zeros(2, 4)] * 4),
            {},
            dynamic_shapes=None,
            options=ExportOptions(),
        )
    ).program
    assert not any("tensor_meta" in node.meta and node.meta["tensor_meta"] is not None for node in program.graph.nodes)


def _fake_tensors_without_a_cache() -> None:
    with torch_export_patches():
        assert not FakeTensorMode().cache_enabled


def _graphs_without_code() -> None:
    with torch_export_patches():
        module = _make_graph_module(torch.nn.Module(), torch.fx.Graph())
    assert isinstance(module, _LazyGraphModule)


def _a_program_without_code() -> None:
    """That of a converter has none until it is called; that of `torch.export.export` in the guard is as ever."""
    with torch_export_patches():
        known = torch.export.export(Asks(), (torch.zeros(2, 4),))
        with traced_with_markers("trace once"):
            program = torch.export.export(Asks(), (torch.zeros(2, 4),))
    assert not isinstance(known.graph_module, _LazyGraphModule)
    assert isinstance(program.graph_module, _LazyGraphModule)
    assert torch.equal(program.module()(torch.ones(2, 4)), known.module()(torch.ones(2, 4)))


def _functions_that_stand_for_themselves() -> None:
    func, args = torch.add, (torch.zeros(2), 1)
    with torch_export_patches():
        assert [getattr(Handler._override, "__wrapped__", None)] != [None]
        assert Handler()._override(func, args, {}) == (func, args, {})


class Asks(nn.Module):
    """Calls functions that torch.export looks at and mostly leaves as they are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x[:, None, :2], x.shape[0]).mul(2)


class Seen(TorchFunctionMode):
    """Notes the names of the functions that are called."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def _functions_that_no_mode_looks_for() -> None:
    seen: list[str] = []
    with torch_export_patches(), torch.no_grad(), pytest.MonkeyPatch.context() as changed:
        looks_at = Handler.__torch_function__

        def torch_function(self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(func.__name__)
            return looks_at(self, func, *args, **kwargs)

        changed.setattr(Handler, "__torch_function__", torch_function)
        program = torch.export.export(Asks(), (torch.zeros(2, 4),))
    assert not {"add", "mul", "__getitem__"} & {*seen}
    assert torch.equal(program.module()(torch.ones(2, 4)), Asks()(torch.ones(2, 4)))


def _questions_of_the_tracer() -> None:
    tracer = proxy_tensor.PythonKeyTracer()
    tracer.graph = torch.fx.Graph(tracer_cls=type(tracer))
    proxy = tracer.create_proxy("placeholder", "x", (), {})
    with torch_export_patches(), Seen() as seen:
        proxy_tensor.track_tensor_tree(torch.ones(2), proxy, constant=None, tracer=tracer)
    assert not {"numel", "__get__"} & {*seen.names}


def _fake_tensors_that_look_alike() -> None:
    """Torch describes a tensor before it makes a fake one for it; with the patch one of each look."""
    described: list[torch.Tensor] = []
    with torch_export_patches(), torch.no_grad(), pytest.MonkeyPatch.context() as changed:
        describe = MetaTensorDescriber.describe_tensor

        def describe_tensor(self: Any, t: torch.Tensor, **options: Any) -> Any:
            described.append(t)
            return describe(self, t, **options)

        changed.setattr(MetaTensorDescriber, "describe_tensor", describe_tensor)
        model = Layers().eval()
        program = torch.export.export(model, (torch.zeros(2, 4), [torch.zeros(2, 4) for _ in range(4)]))
    weights = [t for t in described if isinstance(t, nn.Parameter)]
    assert {tuple(weight.shape) for weight in weights} == {(4, 4), (4,)}
    assert len(weights) == 2
    storages = {node.meta["val"].untyped_storage()._cdata for node in program.graph.nodes if node.op == "placeholder"}
    assert len(storages) == 13


def _a_strict_export() -> None:
    """It asks its graph for what a graph without code does not know."""
    with torch_export_patches():
        program = torch.export.export(nn.Linear(4, 2), (torch.ones(3, 4),), strict=True)
    assert program.module()(torch.ones(3, 4)).shape == (3, 2)


def _bindings_where_nothing_depends_on_data() -> None:
    from torch.export import _trace
    from torch.fx.experimental import symbolic_shapes

    with torch_export_patches(), pytest.MonkeyPatch.context() as changed:
        program = torch.export.export(Layers().eval(), (torch.zeros(2, 4), [torch.zeros(2, 4)] * 4))
        asked: list[Any] = []
        find = symbolic_shapes._free_unbacked_symbols_with_path

        def free_symbols(*args: Any, **options: Any) -> Any:
            asked.append(args)
            return find(*args, **options)

        changed.setattr(symbolic_shapes, "_free_unbacked_symbols_with_path", free_symbols)
        _trace._replace_unbacked_bindings(program.graph_module)
    assert not asked


def _equal_ranges() -> None:
    one, other, wide = ValueRanges(2, 9), ValueRanges(2, 9), ValueRanges(0, 5)
    with torch_export_patches():
        assert (one & other) is one
        assert (one & wide) == ValueRanges(2, 5)


def _lines_of_stack_traces() -> None:
    """The lines of a node are those that torch gives it, and of the frames around them none is read."""
    read: list[str] = []
    plain = torch.export.export(Asks(), (torch.zeros(2, 4),))
    with torch_export_patches(), pytest.MonkeyPatch.context() as changed:
        line_of = linecache.getline

        def getline(file: str, number: int, *args: Any) -> str:
            read.append(file)
            return line_of(file, number, *args)

        changed.setattr(linecache, "getline", getline)
        program = torch.export.export(Asks(), (torch.zeros(2, 4),))
    traces = [node.stack_trace or "" for node in program.graph.nodes if node.op == "call_function"]
    assert traces
    assert all("return torch.add(x[:, None, :2], x.shape[0]).mul(2)" in trace for trace in traces)
    assert traces == [node.stack_trace for node in plain.graph.nodes if node.op == "call_function"]
    assert not any("torch/fx/" in file for file in read)


def _replaced_functions_in_stack_traces() -> None:
    """A node names the function that a patch put in the place of another, and names it no more behind the guard."""

    def twice(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        return x * 2

    with torch_export_patches(custom_patches=[{"torch.nn.functional.silu": twice}]):
        program = torch.export.export(nn.SiLU(), (torch.zeros(2),))
    (node,) = (node for node in program.graph.nodes if node.op == "call_function")
    assert "return x * 2" in (node.stack_trace or "")
    assert not KEPT_FRAMES


PROGRAMS = {
    "replaced functions in stack traces": _replaced_functions_in_stack_traces,
    "lines of stack traces": _lines_of_stack_traces,
    "fake tensors that look alike": _fake_tensors_that_look_alike,
    "bindings of sizes that depend on data": _bindings_where_nothing_depends_on_data,
    "equal ranges of sizes": _equal_ranges,
    "functions that no mode looks for": _functions_that_no_mode_looks_for,
    "questions of torch's tracer": _questions_of_the_tracer,
    "functions that stand for themselves": _functions_that_stand_for_themselves,
    "metadata beside the examples": _values_without_metadata,
    "cache of fake tensors": _fake_tensors_without_a_cache,
    "code of graphs": _graphs_without_code,
    "code of strict graphs": _a_strict_export,
    "code of programs": _a_program_without_code,
    "repeated blocks": _equal_blocks,
    "one symbol for axes of one name": _equal_blocks_with_axes_of_one_name,
    "exports that replaying stops": _an_export_that_replaying_stops,
}
