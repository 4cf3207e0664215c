"""Blocks that look equal and are not give the model that tracing everything gives, and it is right at other sizes."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from unequal_blocks import BLOCKS, DEPTH, NOT_RUN, Model, inputs

from exportguard import ExportOptions, to_onnx

SHAPES = ({0: "batch", 1: "seq"}, [{}] * DEPTH)


def made(name: str) -> Model:
    torch.manual_seed(0)
    return Model(*BLOCKS[name])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", BLOCKS)
def test_the_model_is_that_of_tracing_everything(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = made(name)
    with caplog.at_level(logging.WARNING, logger="exportguard"):
        converted = to_onnx(
            model,
            inputs(2, 12),
            dynamic_shapes=SHAPES,
            on_fixed_axis="warn",  # some of them ask how large an axis is
            options=ExportOptions(repeats="verify", mutated_outputs=False),
        )
    assert "could not be traced once" not in caplog.text

    for batch, sequence in () if name in NOT_RUN else ((3, 14), (1, 11)):
        x, caches = inputs(batch, sequence)
        feeds = dict(
            zip([value.name for value in converted.inputs], [x.clone(), *map(torch.clone, caches)], strict=False)
        )
        with torch.no_grad():
            expected = copy.deepcopy(model)(x, caches)
        for got, want in zip(converted.run(feeds).values(), expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
