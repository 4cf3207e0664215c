"""Choices among equal values: torch leaves them open, ONNX takes the lowest index; a comparison knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from exportguard import validate_module
from exportguard.validation import validate
from exportguard.validation.own_module import ModuleCase
from exportguard.validation.ties import lowest_index_first


class PlacesOfBest(torch.nn.Module):
    """The places of the best, which are ties where a value stands twice."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.topk(3, largest=False).indices


def _some_values(seed: int) -> torch.Tensor:
    return torch.randint(0, 5, (4, 40), generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("largest", [True, False])
def test_the_lowest_index_is_taken_and_the_values_are_those_of_torch(seed: int, largest: bool) -> None:
    values = _some_values(seed)
    with lowest_index_first() as mode:
        best, places = values.topk(6, largest=largest)
    assert mode.had_ties
    assert torch.equal(best, values.topk(6, largest=largest).values)
    for row, place in zip(values, places, strict=True):
        order = sorted(range(len(row)), key=lambda i: (-row[i] if largest else row[i], i))
        assert place.tolist() == order[:6]


def test_values_that_differ_are_no_ties() -> None:
    values = torch.randperm(40).float()
    with lowest_index_first() as mode:
        places = values.topk(6).indices
        order = values.argsort()
    assert not mode.had_ties
    assert torch.equal(places, values.topk(6).indices)
    assert torch.equal(order, values.argsort())


def test_another_choice_among_equal_values_agrees_and_is_told() -> None:
    report = validate_module(PlacesOfBest().eval(), (_some_values(0),), ({0: "batch"},))
    assert report.ok, report
    assert any(one.ties for one in report.sets)


def test_inputs_that_a_choice_made_are_the_same_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a cache that the model left behind is, which chose among equal values for it."""
    made = ModuleCase.inputs

    def inputs(case: ModuleCase, sizes: Mapping[str, int]) -> dict[str, Any]:
        chosen = torch.zeros(40).topk(3, largest=False).indices
        return {"scores": made(case, sizes)["scores"].roll(int(chosen[0]), 1)}

    monkeypatch.setattr(ModuleCase, "inputs", inputs)
    report = validate_module(PlacesOfBest().eval(), (_some_values(0),), ({0: "batch"},))
    assert report.ok, report
    assert any(one.ties for one in report.sets)


def test_what_is_wrong_without_ties_stays_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate.OrtSession, "run", lambda self, feeds: [torch.full((4, 3), 7)])
    report = validate_module(PlacesOfBest().eval(), (torch.rand(4, 40),), None)
    assert not report.ok
    assert not any(one.ties for one in report.sets)
