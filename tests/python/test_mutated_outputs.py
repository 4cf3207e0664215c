"""What a model writes into its inputs and buffers is an output too, unless it is asked not to be."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Module

from exportguard import ExportOptions, to_onnx


class Writes(Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        self.count.add_(1)
        return x * 2 + self.count


@pytest.mark.parametrize("decomposed", [False, True])
def test_written_tensors_are_outputs_unless_they_are_not_asked_for(decomposed: bool) -> None:
    program = torch.export.export(Writes(), (torch.ones(3),))
    if decomposed:
        program = program.run_decompositions({})
    names = [value.name for value in to_onnx(program).outputs]
    assert sorted(names[1:]) == ["count_mutated", "x_mutated"]
    alone = to_onnx(program, options=ExportOptions(mutated_outputs=False))
    assert [value.name for value in alone.outputs] == names[:1]
    torch.testing.assert_close(next(iter(alone.run({"x": torch.ones(3)}).values())), torch.full((3,), 5.0))
