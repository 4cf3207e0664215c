"""Slices that end at a number beyond a size of 1, which torch takes for granted: it traces with sizes from 2 up."""

from __future__ import annotations

import pytest
import torch

from exportguard import AxisError, to_onnx


class CountsTheRows(torch.nn.Module):
    def forward(self, x):
        return x.sum(0) * len(x[:2])


class CountsTheLastRows(torch.nn.Module):
    def forward(self, x):
        return x.sum(0) * x[-2:].shape[0]


class GoesThroughThem(torch.nn.Module):
    def forward(self, x):
        h = torch.zeros(4)
        for row in x[:2]:
            h = torch.tanh(h + row)
        return h


class OnlySlices(torch.nn.Module):
    def forward(self, x):
        return x[:2].sum(0) + x[-2:].mean(0)


@pytest.mark.parametrize("cls", [CountsTheRows, GoesThroughThem], ids=lambda cls: cls.__name__)
def test_a_size_at_which_the_program_differs_is_refused(cls: type[torch.nn.Module]) -> None:
    with pytest.raises(AxisError, match="rows >= 2"):
        to_onnx(cls(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},))


@pytest.mark.parametrize("cls", [CountsTheRows, GoesThroughThem], ids=lambda cls: cls.__name__)
def test_what_counts_the_rows_of_a_slice_is_right_at_every_size_where_it_is_rewritten(
    cls: type[torch.nn.Module],
) -> None:
    onnx = to_onnx(cls(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (1, 2, 5):
        x = torch.arange(rows * 4.0).reshape(rows, 4)
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, cls()(x))


@pytest.mark.parametrize("cls", [OnlySlices, CountsTheLastRows], ids=lambda cls: cls.__name__)
def test_a_slice_whose_size_is_asked_again_when_the_file_runs_is_right(cls: type[torch.nn.Module]) -> None:
    onnx = to_onnx(cls(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},))
    for rows in (1, 2, 5):
        x = torch.arange(rows * 4.0).reshape(rows, 4)
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, cls()(x))
