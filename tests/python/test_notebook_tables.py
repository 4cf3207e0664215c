"""What notebooks show of a model and of its validation."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import torch

import exportguard
from exportguard.notebook_tables import bars


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2


def cells(page: str) -> list[str]:
    """The text of every cell; fails for what is no tree of elements."""
    return [
        "".join(cell.itertext()).strip() for cell in ElementTree.fromstring(page).iter() if cell.tag in ("td", "th")
    ]


def test_a_model_shows_its_values_axes_and_operators() -> None:
    model = exportguard.to_onnx(Doubled().eval(), (torch.zeros(3, 4),), dynamic_shapes=({0: "batch"},))
    shown = cells(model._repr_html_())
    assert "batch × 4" in shown
    assert {"Relu", "Mul"} <= set(shown)
    assert "kept" in shown


def test_a_validation_shows_every_comparison() -> None:
    report = exportguard.validate_module(Doubled().eval(), {"x": torch.randn(3, 4)}, {"x": {0: "batch"}})
    shown = cells(report._repr_html_())
    assert shown.count("agrees") == sum(len(one.outputs) for one in report.sets)
    first = report.sets[0]
    report.sets[0] = replace(first, outputs=[replace(first.outputs[0], problem="<b> is no number & no text")])
    assert "<b> is no number & no text" in cells(report._repr_html_())


def test_bars_are_as_long_as_their_sizes_tell() -> None:
    shown = bars("seconds", {"short": 1.0, "long": 4.0, "none": 0.0})
    assert shown.index("long") < shown.index("short") < shown.index("none")
    assert [part.partition("em")[0] for part in shown.split("width: ")[1:]] == ["12.00", "3.00", "0.00"]
    assert bars("seconds", {}) == ""
