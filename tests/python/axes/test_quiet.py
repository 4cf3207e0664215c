"""What is found out on the way to a right program is no news to the user."""

from __future__ import annotations

import logging

import pytest
import torch

from exportguard import to_onnx


class Pairs(torch.nn.Module):
    """Traced once for each way that its sizes may take, and tried where the trace does not hold."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3)
        if x.sum() > 0:
            for row in x[:2]:
                total = total + row
        for row in x:
            for other in x[:2]:
                total = total + row * other
        return total


def test_a_program_that_is_right_at_every_size_warns_of_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        model = to_onnx(Pairs().eval(), (torch.rand(4, 3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    assert "Traceback" not in capfd.readouterr().err
    assert not [entry.getMessage() for entry in caplog.records if entry.name.startswith(("exportguard", "torch"))]
    for rows in (1, 2, 5):
        x = torch.rand(rows, 3)
        torch.testing.assert_close(model.run({"x": x})["output_0"], Pairs()(x))
