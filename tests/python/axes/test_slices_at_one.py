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


def _filled(x):
    y = x.clone()
    y[-2:] = 0
    return y


def _added(x):
    y = x.clone()
    y[:, -3:] += 1
    return y


def _copied(x):
    y = x.clone()
    y[-3:] = x[:3]
    return y


def _copied_at_the_head(x):
    y = x.clone()
    y[:4] = x[-4:]
    return y


def _zeroed(x):
    y = x * 2
    y[:, -2:].zero_()
    y[:3].mul_(2)
    return y


class Writes(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("write", [_filled, _added, _copied, _copied_at_the_head, _zeroed], ids=lambda f: f.__name__)
def test_a_write_to_the_end_of_a_short_axis_is_right(write) -> None:
    model = Writes(write)
    shapes = ({0: "rows", 1: "columns"},)
    onnx = to_onnx(model, (torch.randn(5, 6),), dynamic_shapes=shapes, rewrite="auto")
    for rows, columns in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 4), (4, 3), (5, 5), (7, 9)):
        x = torch.randn(rows, columns)
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, model(x))
