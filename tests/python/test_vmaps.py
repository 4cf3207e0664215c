"""`torch.vmap` over a batch of any size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch.export import ExportedProgram

from called import Called, CalledWithTwo
from exportguard import to_onnx
from exportguard.errors import ExportError

FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "one level": lambda x, y: torch.vmap(lambda a: (a * a.sum()).tanh())(x) + y,
    "two arguments": lambda x, y: torch.vmap(torch.dot)(x, y),
    "two levels": lambda x, y: torch.vmap(lambda a: torch.vmap(lambda b: (a - b).abs().sum())(y))(x),
    "another axis": lambda x, y: torch.vmap(lambda a, b: a @ b, in_dims=(1, 1), out_dims=0)(x, y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_of_any_size(name: str) -> None:
    function = FUNCTIONS[name]
    inputs = (torch.rand(3, 4), torch.rand(3, 4))
    model = to_onnx(CalledWithTwo(function).eval(), inputs, dynamic_shapes={"x": {0: "batch"}, "y": {0: "batch"}})
    session = ort.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    for batch in (3, 5, 2):
        x, y = torch.rand(batch, 4), torch.rand(batch, 4)
        found = session.run(None, {"x": x.numpy(), "y": y.numpy()})
        np.testing.assert_allclose(found[0], function(x, y).numpy(), rtol=1e-5, atol=1e-6)


COMPOSED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "take_along_dim": lambda x: torch.take_along_dim(x, torch.zeros_like(x[:1], dtype=torch.int64), 0),
    "gradient": lambda x: torch.gradient(x, dim=0)[0],
    "cov": torch.cov,
    "vander": lambda x: torch.vander(x[0], 3),
    "kron": lambda x: torch.kron(x, x),
    "block_diag": lambda x: torch.block_diag(x, x),
}


def _beside_a_vmap(function: Callable[[torch.Tensor], torch.Tensor]) -> Called:
    return Called(lambda x: (torch.vmap(lambda row: row * 2)(x), function(x))).eval()


@pytest.mark.parametrize("name", COMPOSED)
def test_what_stands_beside_a_vmap_keeps_its_axes(name: str) -> None:
    """torch takes the vmap out in a second trace, which meets the operators that the first one left whole."""
    module = _beside_a_vmap(COMPOSED[name])
    model = to_onnx(module, (torch.rand(3, 4),), dynamic_shapes=({0: "a", 1: "b"},))
    assert model.inputs[0].shape == ("a", "b")
    for shape in ((3, 4), (2, 5), (6, 3)):
        x = torch.rand(shape)
        for got, expected in zip(model.run({"x": x}).values(), module(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), expected, rtol=1e-4, atol=1e-5)


def _program_with_a_vmap(function: Callable[[torch.Tensor], torch.Tensor]) -> ExportedProgram:
    rows = torch.export.Dim.DYNAMIC
    return torch.export.export(_beside_a_vmap(function), (torch.rand(3, 4),), dynamic_shapes=({0: rows, 1: rows},))


def test_a_program_of_torch_that_cannot_do_without_its_vmap_is_refused() -> None:
    """torch 2.11 to 2.13 call the operator again with the number that stands for a reduction, which wants a word."""
    with pytest.raises(ExportError, match="takes the vmap out of the program in a second trace, and that one stops"):
        to_onnx(_program_with_a_vmap(lambda x: torch.nn.functional.margin_ranking_loss(x, x, x, reduction="none")))


def test_a_size_that_the_second_trace_makes_a_constant_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks_for_a_size(self: ExportedProgram, table: object) -> ExportedProgram:
        rows = next(iter(self.graph.find_nodes(op="placeholder"))).meta["val"].shape[0]
        assert rows == 3  # which is a guard
        return self

    program = _program_with_a_vmap(COMPOSED["block_diag"])
    monkeypatch.setattr(ExportedProgram, "run_decompositions", asks_for_a_size)
    with pytest.raises(ExportError, match="that one makes 3 of the size s"):
        to_onnx(program)
