"""What a model writes into inputs, buffers and weights is compared, like what it returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exportguard import validate_module
from exportguard.runners.onnxruntime import OrtSession

WRITTEN = ("x_mutated", "table.weight_mutated", "count_mutated")


class Writes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.table = torch.nn.Embedding(6, 3, max_norm=1.0)

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.add_(self.count + 1)
        self.count.add_(x[0])
        result: torch.Tensor = x * 2 + self.table(i)
        return result


def report(dtype: torch.dtype = torch.float32) -> Any:
    example = torch.randn(2, 3, dtype=dtype), torch.tensor([1, 2])
    return validate_module(Writes().to(dtype).eval(), example, ({0: "batch"}, {0: "batch"}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_what_is_written_is_compared_on_every_set(dtype: torch.dtype) -> None:
    found = report(dtype)
    assert found.ok, found.failure or found.sets
    for one in found.sets:
        assert sorted(output.name for output in one.outputs[1:]) == sorted(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_wrongly_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = OrtSession.run

    def wrong(session: OrtSession, feeds: Any) -> list[torch.Tensor]:
        named = zip(session.output_names, run(session, feeds), strict=True)
        return [value + 1 if output == name else value for output, value in named]

    monkeypatch.setattr(OrtSession, "run", wrong)
    found = report()
    assert not found.ok
    for one in found.sets:
        assert [output.name for output in one.outputs if not output.agrees] == [name]


def test_an_output_that_is_missing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = OrtSession.run
    monkeypatch.setattr(OrtSession, "run", lambda session, feeds: run(session, feeds)[:-1])
    found = report()
    assert not found.ok
    assert "3 outputs instead of 4" in found.sets[0].outputs[0].problem
