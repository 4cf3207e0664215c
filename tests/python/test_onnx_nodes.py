"""The onnx package's own node tests pass in the evaluator, all of them that it is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import onnx
import pytest
import torch
from onnx.backend.test.case.test_case import TestCase

import exportguard
from exportguard import _core
from node_tests import cases, outcomes


@pytest.fixture(scope="module")
def node_tests() -> Mapping[str, TestCase]:
    return cases()


def test_they_pass(node_tests: dict[str, TestCase]) -> None:
    results = list(outcomes(node_tests))
    failed = {result.name: result.error for result in results if result.error}
    assert not failed
    assert sum(not result.reason for result in results) > 1700


@pytest.mark.parametrize("target", ["portable", "onnxruntime"])
def test_they_pass_when_they_are_optimized(node_tests: dict[str, TestCase], target: str) -> None:
    applied = Counter[str]()

    def optimized(data: bytes) -> _core.Model:
        model = _core.from_bytes(data)
        done = _core.optimize(model, target=target)
        applied.update({name: times for name, times, *_ in done["patterns"]})
        return model

    failed = {result.name: result.error for result in outcomes(node_tests, optimized) if result.error}
    assert not failed
    assert applied["rms_norm"] > 0
    assert applied["constant_folded"] > 100


def test_their_models_read_back_as_they_were_written(node_tests: dict[str, TestCase]) -> None:
    for name, case in node_tests.items():
        if not all(output.type.WhichOneof("value") == "tensor_type" for output in case.model.graph.output):
            continue
        if not any(opset.domain in ("", "ai.onnx") for opset in case.model.opset_import):
            continue
        model = exportguard.load(case.model.SerializeToString())
        written = exportguard.load(model.to_bytes())
        again = exportguard.load(written.to_bytes())
        assert again.to_bytes() == written.to_bytes(), name
        assert written.node_count == len(onnx.load_from_string(model.to_bytes()).graph.node), name


def test_a_session_refuses_inputs_that_it_does_not_have() -> None:
    model = exportguard.load(
        _core.to_bytes(_core.Model.parse("opset 22\ngraph(%x: f32[n]):\n  %y: f32[n] = Neg(%x)\n  return (%y)"))
    )
    with pytest.raises(exportguard.InvalidArgumentError, match="missing: x, unknown: z"):
        model.run({"z": None}, runner="evaluator")
    with pytest.raises(exportguard.InvalidArgumentError, match="runner must be 'onnxruntime' or 'evaluator'"):
        model.run({"x": torch.ones(2)}, runner="other")
