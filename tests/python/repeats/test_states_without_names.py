"""Layers whose states have axes without names give the model that tracing everything gives, right at other sizes."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from states_without_names import DEPTH, LENGTHS, MODELS, Model, inputs
from torch.export import Dim
from torch.utils import _pytree as pytree

from exportguard import ExportOptions, to_onnx
from exportguard.request import ExportRequest
from exportguard.tracing import exported_module

AXES = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
SHAPES = (AXES, [(AXES, AXES)] * DEPTH)


def made(name: str) -> Model:
    torch.manual_seed(0)
    return Model(MODELS[name]).eval()


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_that_of_tracing_everything(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = made(name)
    with caplog.at_level(logging.WARNING, logger="exportguard"):
        converted = to_onnx(
            model,
            inputs(2, 3, [5] * DEPTH),
            dynamic_shapes=SHAPES,
            on_fixed_axis="warn",
            options=ExportOptions(repeats="verify", mutated_outputs=False),
        )
    assert "could not be traced once" not in caplog.text

    lengths = LENGTHS.get(name, [7] * DEPTH)
    for batch, sequence in ((3, 4), (1, 6)):
        given = inputs(batch, sequence, lengths)
        feeds = zip([value.name for value in converted.inputs], pytree.tree_leaves(given), strict=True)
        with torch.no_grad():
            expected = copy.deepcopy(model)(*copy.deepcopy(given))
        for got, want in zip(converted.run(dict(feeds)).values(), expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_what_comes_behind_the_states_is_replayed() -> None:
    request = ExportRequest.of(
        made("attends"), inputs(2, 3, [5] * DEPTH), None, dynamic_shapes=SHAPES, options=ExportOptions()
    )
    (counts,) = exported_module(request).counts
    assert counts.markers == DEPTH - 1  # the end of each layer
    assert counts.replayed > counts.recorded
