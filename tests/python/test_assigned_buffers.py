"""What `forward` assigns to its buffers is an output of the program, wherever the module is, and nothing else is."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
import torch
from torch.nn import Module

from exportguard import to_onnx, validate_module

SHAPES = ({0: "batch", 1: "seq"},)


class Within(Module):
    def __init__(self, inner: Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y


class Decays(Module):
    """Two states, one of which takes the other's place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("older", torch.ones(4))
        self.register_buffer("newer", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.older, self.newer = self.newer, self.older * 0.5 + x.sum((0, 1))
        return x * self.newer + self.older


class ReturnsTheOlder(Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.state
        self.state = before + x.sum((0, 1))
        return x * 2, before


class MadeAtTheFirstCall(Module):
    """A table that is None before, with buffers on both sides of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((4,), 3.0))
        self.register_buffer("table", None)
        self.register_buffer("shift", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(4).float()
        return x * self.scale + self.table + self.shift


class Grows(Module):
    """A table of positions that is made anew where a text is longer."""

    def __init__(self) -> None:
        super().__init__()
        self._make(16)

    def _make(self, length: int) -> None:
        self.length = length
        angles = torch.arange(length)[:, None] * torch.arange(1, 5)[None].float()
        self.register_buffer("table", torch.cos(angles), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self.length:
            self._make(x.shape[1])
        return x * self.table[: x.shape[1]]


def outputs_and_states(model: Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """What eager returns, and every buffer that the call left with other values."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    returned = model(x)
    values = {f"output_{i}": one for i, one in enumerate(returned if isinstance(returned, tuple) else (returned,))}
    changed = {n: b for n, b in model.named_buffers() if n in before and not torch.equal(b, before[n])}
    return values | {f"{name}_mutated": buffer for name, buffer in changed.items()}


def assert_same(got: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert set(got) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [Decays, ReturnsTheOlder, MadeAtTheFirstCall])
@pytest.mark.parametrize("depth", [0, 2])
def test_assigned_buffers_are_outputs_at_any_depth(kind: type[Module], depth: int) -> None:
    def make() -> Module:
        model = kind()
        for _ in range(depth):
            model = Within(model)
        return model.eval()

    onnx_model = to_onnx(make(), (torch.ones(2, 3, 4),), dynamic_shapes=SHAPES)
    x = torch.randn(3, 5, 4)
    assert_same(onnx_model.run({"x": x}), outputs_and_states(make(), x))


@pytest.mark.parametrize("depth", [0, 1])
def test_a_table_that_grows_is_right_at_every_length(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    model = Within(Grows()) if depth else Grows()
    with caplog.at_level(logging.WARNING, "exportguard"):
        onnx_model = to_onnx(model.eval(), (torch.ones(2, 9, 4),), dynamic_shapes=SHAPES)
    assert "table other sizes" in caplog.text
    for length in (1, 16, 17, 40):
        x = torch.randn(2, length, 4)
        assert_same(onnx_model.run({"x": x}), {"output_0": Grows()(x)})


def test_a_module_of_ones_own_is_called_with_the_buffers_it_was_exported_with() -> None:
    report = validate_module(Decays().eval(), (torch.randn(2, 3, 4),), SHAPES)
    assert report.ok
