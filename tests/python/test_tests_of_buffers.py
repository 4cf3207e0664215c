"""A test of what buffers hold that no call writes is decided by it; what a call writes stays data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor
from torch.nn import Module

from exportguard import to_onnx
from exportguard.errors import ExportError


class Chosen(Module):
    """A model with buffers, whose `forward` is one of the functions below."""

    def __init__(self, forward: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.register_buffer("chances", torch.tensor([1.0, 0.0, 0.5]))
        self.register_buffer("limit", torch.tensor(3), persistent=False)
        self.register_buffer("state", torch.ones(4))
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self._forward = forward

    def forward(self, x: Tensor) -> Any:
        return self._forward(self, x)


def elements(model: Any, x: Tensor) -> Any:
    """Outputs of as many as the buffer says, which no branch of a graph gives."""
    return tuple(x * (step + 1) for step in range(3) if model.chances[step] > 0)


def reductions(model: Any, x: Tensor) -> Any:
    if (model.chances == 0).any() and not torch.isnan(model.chances).any():
        return (x, x + 1)
    return x


def helpers(model: Any, x: Tensor) -> Any:
    def disabled(chance: Tensor) -> bool:
        return bool(chance < 1)

    return [x - 1 if disabled(chance) else (x, x) for chance in model.chances]


def sizes(model: Any, x: Tensor) -> Any:
    """A number of the buffer beside a dynamic size: the size is told apart when the program runs."""
    return x.sum(1) if x.shape[0] > model.limit.item() else x.sum(1) * 2


def another_is_written(model: Any, x: Tensor) -> Any:
    model.state.mul_(0.5)
    return (x * model.state,) if model.limit > 2 else x


DECIDED = (elements, reductions, helpers, another_is_written)


@pytest.mark.parametrize("forward", DECIDED, ids=lambda forward: forward.__name__)
def test_buffers_decide(forward: Any) -> None:
    is_right(Chosen(forward).eval())


def test_buffers_decide_beside_sizes() -> None:
    is_right(Chosen(sizes).eval(), rewrite="auto")


def written_behind(model: Any, x: Tensor) -> Any:
    outputs = (x,) if model.limit > 2 else (x, x)
    model.limit.sub_(1)
    return outputs


def written_before(model: Any, x: Tensor) -> Any:
    model.limit.sub_(1)
    return (x,) if model.limit > 1 else (x, x)


def written_through_a_view(model: Any, x: Tensor) -> Any:
    outputs = (x,) if model.chances[0] > 0 else (x, x)
    model.chances[:2].zero_()
    return outputs


def written_by_an_assignment(model: Any, x: Tensor) -> Any:
    outputs = (x,) if model.limit > 2 else (x, x)
    model.limit = model.limit - 1
    return outputs


def made_of_inputs_too(model: Any, x: Tensor) -> Any:
    return (x,) if model.chances[0] > x.sum() else (x, x)


def what_is_made_of_it_is_written(model: Any, x: Tensor) -> Any:
    doubled = model.chances * 2
    doubled[:1].copy_(x[:1, 0])
    return (x,) if doubled.sum() > 0 else (x, x)


def parameters(model: Any, x: Tensor) -> Any:
    """Who trains goes on with the program."""
    return (x,) if model.scale > 0 else (x, x)


def drawn(model: Any, x: Tensor) -> Any:
    return (x,) if torch.bernoulli(model.chances)[2] > 0 else (x, x)


DATA = (
    written_behind, written_before, written_through_a_view, written_by_an_assignment, made_of_inputs_too,
    what_is_made_of_it_is_written, parameters, drawn,
)  # fmt: skip


@pytest.mark.parametrize("forward", DATA, ids=lambda forward: forward.__name__)
def test_what_a_call_writes_stays_data(forward: Any) -> None:
    model = Chosen(forward).eval()
    held = copy.deepcopy(model.state_dict())
    with pytest.raises(ExportError, match=f"in {forward.__name__}: "):
        to_onnx(model, (torch.rand(2, 4),), dynamic_shapes=({0: "batch"},))
    assert all(torch.equal(held[name], tensor) for name, tensor in model.state_dict().items())


class Gated(Module):
    def __init__(self, gate: float) -> None:
        super().__init__()
        self.register_buffer("gate", torch.tensor(gate))
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x) if self.gate > 0 else x - self.linear(x)


def test_each_block_has_buffers_of_its_own() -> None:
    is_right(torch.nn.Sequential(*(Gated(gate) for gate in (1.0, 1.0, 0.0, 1.0, 0.0))).eval())


class Counts(Module):
    """What a call writes is data that a rewritten test goes by, at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("left", torch.tensor(2))

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2 if self.left > 0 else x - 1
        self.left.sub_(1)
        return y


def test_a_test_of_what_a_call_writes_is_rewritten() -> None:
    is_right(Counts().eval(), rewrite="auto")


def is_right(model: Module, rewrite: Any = None) -> None:
    """Compares with eager at several sizes; each call of the program begins with what the model held."""
    onnx = to_onnx(copy.deepcopy(model), (torch.rand(2, 4),), dynamic_shapes=({0: "batch"},), rewrite=rewrite)
    session = onnxruntime.InferenceSession(onnx.to_bytes(), providers=["CPUExecutionProvider"])
    for batch in (1, 2, 5):
        x = torch.rand(batch, 4)
        expected = torch.utils._pytree.tree_leaves(copy.deepcopy(model)(x))
        given = session.run(None, {session.get_inputs()[0].name: x.numpy()})[: len(expected)]
        for one, other in zip(given, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other.detach())
