"""Slices that end at a number beyond a size of 1, which torch takes for granted: it traces with sizes from 2 up."""

from __future__ import annotations

import pytest
import torch
from random_programs import model_of

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


def _moved(x):
    y = torch.zeros_like(x)
    y[:, 1:] = x[:, :-1]
    z = x.clone()
    z[:, -2:] *= 2
    return y + z


def _moved_far(x):
    y = torch.zeros_like(x)
    y[:, 3:] = x[:, :-3]
    z = x.clone()
    z[:, :4] = 1
    z[:, -5:] += 1
    return y + z


@pytest.mark.parametrize("write", [_moved, _moved_far], ids=lambda f: f.__name__)
def test_what_a_write_before_asks_of_more_columns_leaves_the_end_of_a_slice_open(write) -> None:
    model = Writes(write)
    onnx = to_onnx(model, (torch.randn(2, 12),), dynamic_shapes=({0: "rows", 1: "columns"},))
    for columns in (1, 2, 3, 4, 5, 6, 12):
        x = torch.randn(3, columns)
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, model(x))


#: What asks torch whether there are two rows before a slice does.
ASKING_FIRST = {
    "a mask": "x[x[:, 0] > 0].sum()",
    "rows that a loop collects": "self.collected(x)",
    "another layout": "x.t().contiguous().view(-1).sum()",
    "a part": "x[1:].sum()",
    "columns": "x[:, :1].t().reshape(-1).sum()",
    "a sum": "(x.t() @ x).sum()",
}

SLICES = {
    "a loop": "for row in x[:2]:\n            y = torch.tanh(y + row)",
    "from the end": "for row in x[-2:]:\n            y = torch.tanh(y + row)",
    "a loop within a loop": "for a in x:\n            for b in x[:2]:\n                if (a * b).sum() > 4:\n"
    "                    return a - b + y",
    "the number of its rows": "y = y * len(x[:2])",
    "its rows unbound": "y = torch.stack(x[:2].unbind(0)).sum(0) + y",
}

_ASKED = """
import torch


class Model(torch.nn.Module):
    def collected(self, x):
        rows = [x.sum(0)]
        for row in x:
            if row.max() > row.mean() * 2:
                rows.append(row)
        return torch.stack(rows).sum()

    def forward(self, x):
        y = x.sum(0) + {asking}
        {slice}
        return y
"""


@pytest.mark.parametrize("slice_", SLICES)
@pytest.mark.parametrize("asking", ASKING_FIRST)
def test_a_slice_asks_once_more_what_an_operator_asked_before(asking: str, slice_: str) -> None:
    source = _ASKED.format(asking=ASKING_FIRST[asking], slice=SLICES[slice_])
    model = model_of(source, f"/slices/{asking} {slice_}.py").eval()
    onnx = to_onnx(model, (torch.randn(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (3, 1, 2, 5):
        x = torch.randn(rows, 4) * 2
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, model(x))
