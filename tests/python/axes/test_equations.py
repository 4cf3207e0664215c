"""A size that follows from another by an equation, as that of a residual behind a stride, follows in a trial too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

from exportguard import AxisError, to_onnx


class Skips(torch.nn.Module):
    """Adds a residual of half the width, and goes back to the width that it was given."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv1d(2, 2, 3, stride=2, padding=1)
        self.factor = factor

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        y = self.convolution(x) + residual
        if x.shape[-1] % 2:
            return self.factor * torch.nn.functional.interpolate(y, size=x.shape[-1], mode="nearest") + x
        return torch.nn.functional.interpolate(y, scale_factor=2.0, mode="nearest") + x


class AsksTheResidual(Skips):
    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        y = self.convolution(x) + residual
        return y * 2 if residual.shape[-1] % 4 == 0 else y * 3


def inputs(width: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(2, 2, width), "residual": torch.randn(2, 2, (width - 1) // 2 + 1)}


ASKED = {"by a name": "half", "left to the export": Dim.AUTO}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
@pytest.mark.parametrize(("module", "condition"), [(Skips(2.0), "width % 2 == 0"), (AsksTheResidual(), " % 4 == 0")])
def test_what_a_model_does_beside_an_equation_is_not_taken_for_a_refusal(
    module: Skips, condition: str, asked: Any
) -> None:
    with pytest.raises(AxisError) as caught:
        to_onnx(module.eval(), kwargs=inputs(16), dynamic_shapes={"x": {2: "width"}, "residual": {2: asked}})
    assert condition in str(caught.value)
    assert "the program does something else than the model" in str(caught.value)


@pytest.mark.parametrize("rewrite", [(), "auto"])
def test_a_residual_of_half_the_width_is_added_at_every_width(rewrite: object) -> None:
    module = Skips().eval()
    shapes = {"x": {2: "width"}, "residual": {2: "half"}}
    model = to_onnx(module, kwargs=inputs(16), dynamic_shapes=shapes, rewrite=rewrite)
    bounds = {bound.condition for axis in model.axes for bound in axis.bounds if bound.kind.name == "OWN"}
    assert bounds == {"((width - 1) // 2) + 1 == half"}
    for width in (1, 2, 3, 15, 16, 17, 22):
        given = inputs(width)
        (got,) = model.run(given).values()
        torch.testing.assert_close(got, module(**given))
