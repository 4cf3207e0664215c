"""An entry of a list, a dict or an object is called in messages as the model's code calls it."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from exportguard import AxisError, RewriteError, to_onnx


class OfADict(torch.nn.Module):
    def forward(self, x):
        state = {"h": x[0]}
        for row in x:
            state["h"] = (state["h"] + row)[None]
        return state["h"]


class OfAList(torch.nn.Module):
    def forward(self, x):
        rows = [x[0]]
        for row in x:
            rows[0] = (rows[0] + row)[None]
        return rows[0]


class OfAFilledList(torch.nn.Module):
    def forward(self, x):
        rows = []
        rows.append(x[0])
        for row in x:
            if row.sum() > 0:
                rows[0] = rows[0] > 0
        return rows[0]


class OfAnAttributesList(torch.nn.Module):
    """No variable is the list."""

    def __init__(self):
        super().__init__()
        self.kept = [torch.zeros(3)]

    def forward(self, x):
        self.kept[0] = x[0]
        for row in x:
            self.kept[0] = (self.kept[0] + row)[None]
        return self.kept[0]


class OfAnother(torch.nn.Module):
    """The list of a function that another one calls."""

    def put(self, rows, row):
        rows[0] = (rows[0] + row)[None]

    def forward(self, x):
        outer = [x[0]]
        for row in x:
            self.put(outer, row)
        return outer[0]


class OfADictWithAnOrder(torch.nn.Module):
    def forward(self, x):
        state = OrderedDict(h=x[0])
        if x.sum() > 0:
            state["h"] = x[0] > 0
        return state["h"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (OfADict, "`state['h']`"),
        (OfAList, "`rows[0]`"),
        (OfAFilledList, "`rows[0]`"),
        (OfAnAttributesList, "`list[0]`"),
        (OfAnother, "`outer[0]`"),
        (OfADictWithAnOrder, "`state['h']`"),
    ],
)
def test_an_entry_is_called_by_its_variable(model: type[torch.nn.Module], name: str) -> None:
    with pytest.raises((RewriteError, AxisError)) as raised:
        to_onnx(model().eval(), args=(torch.randn(4, 3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    assert name in str(raised.value)
