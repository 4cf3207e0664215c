"""Branches whose results are as long as a whole number of chunks, which may be none."""

from __future__ import annotations

import torch

from exportguard import to_onnx
from exportguard.runners.onnxruntime import OrtSession


class WholeChunks(torch.nn.Module):
    """Takes the rows of whole chunks, and marks those above 0 where there is anything below."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        whole = x[:, :, : x.shape[2] - x.shape[2] % 4].relu()
        if mask.sum() < mask.numel():
            whole = torch.where(whole > 0, whole, whole + 5.0)
        return whole * 2


def merges_what_is_dense() -> None:
    model, axes = WholeChunks().eval(), {"x": {0: "batch", 2: "rows"}, "mask": {0: "batch"}}
    made = to_onnx(model, (torch.randn(2, 3, 9), torch.ones(2, 5)), dynamic_shapes=axes, rewrite="auto")
    session = OrtSession(made.to_bytes())
    for batch, rows, filled in ((2, 9, 1.0), (3, 14, 0.0), (1, 4, 1.0)):
        inputs = torch.randn(batch, 3, rows), torch.full((batch, 5), filled)
        (got,) = session.run(dict(zip(session.input_names, inputs, strict=True)))
        torch.testing.assert_close(got, model(*inputs))


PROGRAMS = {"dense results of branches": merges_what_is_dense}
