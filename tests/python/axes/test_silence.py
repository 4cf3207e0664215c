"""What torch says of a trial that an operator refuses is not printed: it is an answer, and no error of the user's."""

from __future__ import annotations

import logging

import pytest
import torch

from exportguard import to_onnx


class Chooses(torch.nn.Module):
    """Takes the least of what a mask leaves, which is asked for its shape where the mask leaves nothing."""

    def forward(self, x):
        kept = x[x.sum(1) > 0]
        if len(kept) > 0:
            return kept[kept.sum(1).argmin()]
        return x[0]


@pytest.mark.parametrize("data", [torch.ones(4, 3), -torch.ones(4, 3)])
def test_a_branch_that_no_data_lead_into_is_looked_at_in_silence(data, caplog) -> None:
    with caplog.at_level(logging.ERROR, logger="torch._subclasses.fake_tensor"):
        onnx = to_onnx(Chooses().eval(), (data,), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert not caplog.records
    for rows in (1, 2, 5):
        x = torch.randn(rows, 3)
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, Chooses()(x))
