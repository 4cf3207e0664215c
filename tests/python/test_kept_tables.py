"""Tables that a model makes once and keeps outside of itself: what a trace made of them stays nowhere."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import kept_tables
from exportguard import to_onnx
from exportguard.axes.model_run import ModelRun
from exportguard.inputs import CallInputs
from exportguard.rewrites.kept_tables import KeptTables
from kept_tables import KeepsATable

PLACES = [name for name in vars(kept_tables) if name.startswith("in_a")]


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("name", PLACES)
def test_nothing_of_a_trace_is_kept(name: str, rewrite: Any) -> None:
    tables = importlib.reload(kept_tables)  # with nothing kept yet
    model = tables.KeepsATable(getattr(tables, name)).eval()
    onnx = to_onnx(model, (torch.ones(2, 4),), dynamic_shapes=({0: "rows"},), rewrite=rewrite)
    expected = torch.ones(3, 4) + torch.arange(4) * 0.5
    (got,) = onnx.run({"x": torch.ones(3, 4)}).values()
    torch.testing.assert_close(torch.as_tensor(got), expected)
    result = model(torch.ones(3, 4))
    assert type(result) is torch.Tensor
    torch.testing.assert_close(result, expected)


def test_what_was_kept_before_stays() -> None:
    before = kept_tables.in_a_dict(7)
    to_onnx(KeepsATable(kept_tables.in_a_dict).eval(), (torch.ones(2, 4),), dynamic_shapes=({0: "rows"},))
    assert kept_tables.TABLES[7] is before


@pytest.mark.parametrize("name", PLACES)
def test_nothing_of_a_run_without_data_is_kept(name: str) -> None:
    """Of sizes that are too large to be computed."""
    tables = importlib.reload(kept_tables)
    model = tables.KeepsATable(getattr(tables, name)).eval()
    call = CallInputs((torch.ones(2, 4),), {})
    assert not ModelRun(model, call).refuses_sizes(lambda: call)
    assert type(model(torch.ones(2, 4))) is torch.Tensor


@pytest.mark.parametrize("name", ["in_a_cache", "in_a_wrapped_cache"])
def test_a_cache_that_was_cleared_in_between_is_cleared_again(name: str) -> None:
    """Which counts from 0 on again, and has as many misses as when the outer of two traces began."""
    tables = importlib.reload(kept_tables)
    table = getattr(tables, name)
    table(4)
    outer, inner = KeptTables([tables]), KeptTables([tables])
    for kept, count in ((inner, 5), (outer, 4)):
        with FakeTensorMode():
            table(count)
        kept.restore()
    assert type(table(4)) is torch.Tensor
