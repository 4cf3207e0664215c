"""What a forward writes in place, an export leaves as it was: weights, buffers, plain tensors; its file is right."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from exportguard import to_onnx
from exportguard.axes.model_run import ModelRun
from exportguard.axes.traced_program import TracedProgram
from exportguard.errors import ExportError
from exportguard.inputs import CallInputs
from exportguard.rewrites.written import UndoneWrites, may_write

_Write = Callable[[torch.Tensor], object]


class _Writing(torch.nn.Module):
    """Writes into its weight, and computes with it."""

    def __init__(self, write: _Write) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4) * 3)
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.write(self.weight)
        return x @ self.weight


class _LookingUp(torch.nn.Module):
    def __init__(self, table: torch.nn.Module) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.long().clamp(0, 5)
        result: torch.Tensor = self.table(rows) + self.table(5 - rows)
        return result


class _Functional(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(6, 4) * 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.embedding(x.long().clamp(0, 5), self.table, max_norm=1.5, norm_type=1.0)


class _Plain(torch.nn.Module):
    """Tensors that are neither weights nor buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.held = [torch.ones(4), {"other": torch.ones(4)}]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.held[0].mul_(0.5)
        self.held[1]["other"][1:].add_(1)
        return x * self.held[0] + self.held[1]["other"]


class _Reforming(torch.nn.Module):
    """Gives a tensor of its own another form."""

    def __init__(self, write: _Write) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(4, 3))
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.write(self.table)
        return x + self.table.sum()


FORMS: dict[str, _Write] = {
    "t_": lambda t: t.t_(),
    "unsqueeze_": lambda t: t.unsqueeze_(0),
    "squeeze_": lambda t: t.squeeze_(),
    "as_strided_": lambda t: t.as_strided_((3, 2), (1, 3), 1),
}
WRITES: dict[str, _Write] = {
    "mul_": lambda w: w.mul_(0.5),
    "of data": lambda w: w.data.mul_(0.5),
    "of a view": lambda w: w[1:3].zero_(),
    "of a view of detached": lambda w: w.detach().t()[0].clamp_(-1, 1),
    "by an index": lambda w: w.data.index_fill_(0, torch.tensor([1]), 2.0),
    "set by an index": lambda w: w.__setitem__((slice(None), 1), 3.0),
    "copied": lambda w: w.copy_(w.flip(0)),
    "out": lambda w: torch.mul(w, 0.5, out=w),
}
MODULES: dict[str, Callable[[], torch.nn.Module]] = {
    "embedding": lambda: _LookingUp(torch.nn.Embedding(6, 4, max_norm=1.0)),
    "embedding of another norm": lambda: _LookingUp(torch.nn.Embedding(6, 4, max_norm=1.0, norm_type=1.0)),
    "bags": lambda: _LookingUp(torch.nn.EmbeddingBag(6, 4, max_norm=1.0, mode="sum")),
    "buffer": _Functional,
    "plain": _Plain,
    **{name: lambda write=write: _Writing(write) for name, write in WRITES.items()},
}


def held_by(module: torch.nn.Module) -> list[torch.Tensor]:
    own = torch.utils._pytree.tree_leaves(getattr(module, "held", []))
    return [*module.state_dict().values(), *own]


@pytest.mark.parametrize("made", MODULES.values(), ids=MODULES)
def test_what_forward_writes_is_as_before_behind_an_export(made: Callable[[], torch.nn.Module]) -> None:
    module = made().eval()
    before = copy.deepcopy(module)
    versions = [tensor._version for tensor in module.parameters()]
    x = torch.tensor([[1.0, 2, 3, 0], [5, 1, 1, 2]])
    model = to_onnx(module, (x,), dynamic_shapes={"x": {0: "batch"}})
    for expected, left in zip(held_by(before), held_by(module), strict=True):
        torch.testing.assert_close(left, expected, rtol=0, atol=0)
    assert [tensor._version for tensor in module.parameters()] == versions
    for other in (x, x[:1], x.repeat(3, 1)):
        got = next(iter(model.run({"x": other}).values()))
        torch.testing.assert_close(got, copy.deepcopy(before)(other).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("write", FORMS.values(), ids=FORMS)
def test_a_tensor_has_its_form_behind_an_export(write: _Write) -> None:
    module = _Reforming(write).eval()
    shape, stride = module.table.shape, module.table.stride()
    x = torch.randn(2, 4)
    model = to_onnx(module, (x,), dynamic_shapes={"x": {0: "batch"}})
    assert (module.table.shape, module.table.stride()) == (shape, stride)
    got = next(iter(model.run({"x": x[:1]}).values()))
    torch.testing.assert_close(got, copy.deepcopy(module)(x[:1]), rtol=1e-5, atol=1e-5)


class _InputOfMoreAxes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.unsqueeze_(0)
        return x * 2


def test_an_input_that_gets_an_axis_in_place_is_refused_with_the_line() -> None:
    text = r"an input of 2 axes has 3 [\s\S]*x\.unsqueeze_\(0\)[\s\S]*go on with"
    with pytest.raises(ExportError, match=text):
        to_onnx(_InputOfMoreAxes(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: "batch"}})


def test_a_gradient_of_what_was_computed_before_an_export_is_there_behind_it() -> None:
    module = _Writing(WRITES["of a view"])
    with torch.enable_grad():
        loss = (module.weight * module.weight).sum()
    to_onnx(module.eval(), (torch.ones(2, 4),))
    loss.backward()
    torch.testing.assert_close(module.weight.grad, 2 * module.weight.detach())


def _written(write: Callable[[torch.Tensor], Any]) -> bool:
    """Whether something is copied for a write of a call, into a tensor of its own or one that is older."""
    older = torch.ones(8)
    undone = UndoneWrites()
    with undone.call():
        write(older)
    assert bool((older == 1).all())
    return bool(undone._before)


def test_what_a_call_writes_into_tensors_of_its_own_costs_no_copy() -> None:
    assert not _written(lambda older: (older + 1).mul_(2))
    assert not _written(lambda older: older.clone()[2:].t().zero_())
    assert _written(lambda older: older[2:].zero_())
    assert _written(lambda older: older.detach().view(2, 4).zero_())


#: Calls that write into what they are given, and calls that do not.
WRITING: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "batch_norm": lambda: (torch.ops.aten.batch_norm.default, (*_normed(), True, 0.1, 1e-5, False)),
    "instance_norm": lambda: (torch.ops.aten.instance_norm.default, (*_normed(), True, 0.1, 1e-5, False)),
    "native_batch_norm": lambda: (torch.ops.aten.native_batch_norm.default, (*_normed(), True, 0.1, 1e-5)),
    "add_": lambda: (torch.ops.aten.add_.Tensor, (torch.ones(2), torch.ones(2))),
    "linear": lambda: (torch.ops.aten.linear.default, (torch.ones(2, 2), torch.ones(2, 2))),
    "add": lambda: (torch.ops.aten.add.Tensor, (torch.ones(2), torch.ones(2))),
    "an item": lambda: (operator.getitem, ([torch.ones(2)], 0)),
    "a size": lambda: (torch.sym_max, (2, 3)),
    "a function that writes": lambda: (operator.setitem, (torch.ones(2), 0, 2.0)),
}


def _normed() -> tuple[torch.Tensor | None, ...]:
    """An input, no weight and no bias, a running mean and a running variance."""
    return torch.randn(4, 3, 5), None, None, torch.zeros(3), torch.ones(3)


@pytest.mark.parametrize("name", WRITING)
def test_what_writes_is_known_by_its_operator(name: str) -> None:
    target, arguments = WRITING[name]()
    node = _node(target, arguments)
    before = copy.deepcopy(arguments)
    target(*arguments)
    pairs = zip(pytree.tree_leaves(before), pytree.tree_leaves(arguments), strict=True)
    is_written = any(isinstance(one, torch.Tensor) and not torch.equal(one, other) for one, other in pairs)
    assert may_write(node) == is_written


def _node(target: Any, arguments: tuple[Any, ...]) -> torch.fx.Node:
    """A call in a graph, with a node for each argument."""
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"x{at}") for at in range(len(arguments))]
    for node, argument in zip(nodes, arguments, strict=True):
        node.meta["val"] = argument
    return graph.call_function(target, tuple(nodes))


def test_what_has_any_code_may_write() -> None:
    graph = torch.fx.Graph()
    assert may_write(graph.call_function(torch.ops.higher_order.cond, (True, graph.get_attr("a"), graph.get_attr("b"))))
    assert may_write(_node(lambda x: x, (torch.ones(2),)))


def test_a_call_that_raises_is_undone_as_well() -> None:
    older, undone = torch.ones(8), UndoneWrites()

    def called() -> None:
        with undone.call():
            older.zero_()
            raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            called()
        assert bool((older == 1).all())


class _Branching(torch.nn.Module):
    """Writes, and has a branch, which torch compiles where a model runs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.data.mul_(0.5)
        y: torch.Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return y * self.weight


def test_a_model_with_a_branch_is_watched_as_well() -> None:
    module = _Branching().eval()
    model = to_onnx(module, (torch.ones(2, 3),), dynamic_shapes={"x": {0: "batch"}})
    assert module.weight.tolist() == [2, 2, 2]
    for x in (torch.ones(4, 3), -torch.ones(1, 3)):
        torch.testing.assert_close(next(iter(model.run({"x": x}).values())), torch.sin(x) if x[0, 0] > 0 else x.cos())


class _Updating(torch.nn.Module):
    """Returns what it was given, and what it holds, with what it wrote there."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        state.add_(x.sum(0))
        return x + state, state, self.count.add_(x[0])


def test_what_is_returned_of_written_memory_is_what_was_written() -> None:
    module, given = _Updating().eval(), (torch.randn(2, 3), torch.randn(3))
    run = ModelRun(module, CallInputs.of(module.forward, given, {}))
    expected = copy.deepcopy(module)(*[x.clone() for x in given])
    for _ in range(2):
        outputs = run.of(CallInputs.of(module.forward, given, {})).outputs()
        torch.testing.assert_close(outputs, list(expected))
    program = torch.export.export(module, given)
    for _ in range(2):
        torch.testing.assert_close(TracedProgram(program).run(CallInputs.of(module.forward, given, {}), {}), outputs)
