"""Layers that a library or a habit made unequal give the model that tracing everything gives, right at other sizes."""

from __future__ import annotations

import copy
import logging

import computing_blocks
import handed_blocks
import indexed_blocks
import kept_blocks
import pytest
import torch
import varied_blocks
import wrapped_blocks
from stacks import inputs

from exportguard import ExportOptions, to_onnx

MODULES = (wrapped_blocks, computing_blocks, indexed_blocks, handed_blocks, kept_blocks, varied_blocks)
MODELS = {name: make for module in MODULES for name, make in module.MODELS.items()}


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_that_of_tracing_everything(name: str, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with caplog.at_level(logging.WARNING, logger="exportguard"):
        converted = to_onnx(
            model,
            (inputs(2, 12),),
            dynamic_shapes=({0: "batch", 1: "seq"},),
            options=ExportOptions(repeats="verify", mutated_outputs=False),
        )
    assert "could not be traced once" not in caplog.text

    for batch, sequence in ((3, 15), (1, 10)):
        x = inputs(batch, sequence)
        with torch.no_grad():
            expected = copy.deepcopy(model)(x.clone())
        expected = expected if isinstance(expected, tuple) else (expected,)
        got = converted.run({converted.inputs[0].name: x.clone()}).values()
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
