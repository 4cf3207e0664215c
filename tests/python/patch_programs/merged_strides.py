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


class AsManyAsCounted(torch.nn.Module):
    """Rows of a number that data give, of which long ones are changed, cut, or made anew."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = torch.arange(8).view(2, 4, 1) * torch.ones(int(x.sum()))
        if rows.size(2) > 5:
            changed, cut = rows * 2, rows[:, :, :3].contiguous()
        else:
            changed, cut = rows + 1, rows
        return changed, changed - rows, cut


def merges_what_data_count() -> None:
    model = AsManyAsCounted().eval()
    made = to_onnx(model, (torch.tensor([1, 2, 1]),), dynamic_shapes=({0: "counts"},), rewrite="auto")
    for counts in ([1], [1, 4], [2, 2, 2], [3, 3, 3, 4]):
        x = torch.tensor(counts)
        for got, want in zip(made.run({"x": x}).values(), model(x), strict=True):
            torch.testing.assert_close(got, want)


class JoinsAxes(torch.nn.Module):
    """A view of two axes as one, left as it is or changed."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = x.view(-1, 3).clone()
        if mask.sum() > 3:
            return rows
        return rows + 1


def merges_views() -> None:
    model, axes = JoinsAxes().eval(), ({0: "batch", 1: "rows"}, {0: "count"})
    made = to_onnx(model, (torch.randn(2, 5, 3), torch.ones(4)), dynamic_shapes=axes, rewrite="auto")
    for batch, rows, count in ((2, 5, 4), (1, 1, 2), (3, 1, 4), (1, 7, 1)):
        inputs = torch.randn(batch, rows, 3), torch.ones(count)
        (got,) = made.run(dict(zip(("x", "mask"), inputs, strict=True))).values()
        torch.testing.assert_close(got, model(*inputs))


def merges_all() -> None:
    merges_what_is_dense()
    merges_what_data_count()
    merges_views()


PROGRAMS = {"dense results of branches": merges_all}
