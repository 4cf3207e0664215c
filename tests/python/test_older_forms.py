"""Files of older opsets, in which attributes are what operands are now: shapes, folding and the evaluator know both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper, numpy_helper, shape_inference

import exportguard

#: An operator, the opset of its file, the shape of its operand, its attributes, and how many outputs it has.
Case = tuple[str, int, Sequence[int], Mapping[str, Any], int]

REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]

CASES: dict[str, Case] = {
    **{f"Reduce{name} without axes": (f"Reduce{name}", 11, (2, 3, 4), {"axes": [0, -1], "keepdims": 0}, 1)
       for name in REDUCTIONS},
    **{f"Reduce{name} that keeps axes": (f"Reduce{name}", 12, (2, 3, 4), {"axes": [1]}, 1) for name in REDUCTIONS},
    "all axes": ("ReduceMax", 12, (2, 3), {"keepdims": 0}, 1),
    "the last opset of means": ("ReduceMean", 17, (2, 3, 4, 5), {"axes": [2, 3], "keepdims": 0}, 1),
    "one of two squeezed": ("Squeeze", 11, (2, 1, 3, 1), {"axes": [1]}, 1),
    "one from the end": ("Squeeze", 12, (1, 3, 1), {"axes": [-1]}, 1),
    "all squeezed": ("Squeeze", 11, (2, 1, 3, 1), {}, 1),
    "axes put in": ("Unsqueeze", 11, (2, 3), {"axes": [0, 2]}, 1),
    "pieces of other sizes": ("Split", 11, (6, 2), {"split": [1, 5], "axis": 0}, 2),
    "equal pieces": ("Split", 11, (6, 2), {}, 3),
    "a part": ("Slice", 9, (4, 5), {"starts": [1, 0], "ends": [2, -1]}, 1),
    "a border": ("Pad", 10, (2, 2), {"pads": [1, 0, 0, 1], "value": 7.0}, 1),
    "bounds": ("Clip", 10, (3, 3), {"min": -0.1, "max": 0.2}, 1),
    "the largest": ("TopK", 9, (3, 4), {"k": 2}, 2),
    "a matrix of rows": ("Softmax", 11, (2, 3, 4), {}, 1),
}  # fmt: skip


def file_of(case: Case, is_constant: bool) -> bytes:
    """The node on an input, or on a constant with an input added to what it gives."""
    operator, opset, shape, attributes, outputs = case
    names = [f"y{number}" for number in range(outputs)]
    values = np.random.default_rng(0).random(shape).astype(np.float32) + 0.5
    nodes = [helper.make_node(operator, ["x"], [f"{name}_own" for name in names], **attributes)]
    nodes += [helper.make_node("Identity", [f"{name}_own"], [name]) for name in names]
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)]
    graph = helper.make_graph(
        nodes,
        "older",
        [] if is_constant else given,
        [helper.make_empty_tensor_value_info(name) for name in names],
        [numpy_helper.from_array(values, "x")] if is_constant else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return shape_inference.infer_shapes(model, strict_mode=True).SerializeToString()


def run(data: bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def require_equal(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_inferred_is_what_comes_out(case: Case) -> None:
    data = file_of(case, is_constant=False)
    expected = run(data, {"x": np.ones(case[2], np.float32)})
    model = exportguard.load(data)
    model.infer_types()
    for value, result in zip(model.outputs, expected, strict=True):
        if value.shape is not None:
            assert len(value.shape) == result.ndim
            known = [
                (size, true) for size, true in zip(value.shape, result.shape, strict=True) if isinstance(size, int)
            ]
            assert all(size == true for size, true in known)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_optimized_and_evaluated_it_gives_the_same(case: Case) -> None:
    x = np.random.default_rng(1).random(case[2]).astype(np.float32) + 0.5
    for is_constant, feeds in ((False, {"x": x}), (True, {})):
        data = file_of(case, is_constant)
        expected = run(data, feeds)
        model = exportguard.load(data)
        evaluated = model.run({name: torch.from_numpy(value) for name, value in feeds.items()}, runner="evaluator")
        require_equal([value.numpy() for value in evaluated.values()], expected)
        model.optimize()
        require_equal(run(model.to_bytes(), feeds), expected)
