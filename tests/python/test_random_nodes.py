"""The evaluator makes of random nodes what onnxruntime or onnx's reference make; `random_nodes.py` runs more."""

from __future__ import annotations

import numpy as np
import pytest

from node_draws import Node
from node_generator import RECIPES
from random_nodes import Answer, in_evaluator, verdict_of

CASES = 1200
CHUNK = 300


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_random_nodes_have_the_values_of_another_runtime(first: int) -> None:
    verdicts = {seed: verdict_of(seed)[0] for seed in range(first, first + CHUNK)}
    assert {seed: verdict.detail for seed, verdict in verdicts.items() if verdict.is_wrong} == {}
    assert sum(verdict.kind == "right" for verdict in verdicts.values()) > CHUNK * 0.8


@pytest.mark.parametrize("operator", RECIPES)
def test_every_operator_is_drawn_in_a_form_that_runs(operator: str) -> None:
    verdicts = [verdict_of(seed, operator)[0] for seed in range(12)]
    assert "right" in [verdict.kind for verdict in verdicts], verdicts
    assert not [verdict.detail for verdict in verdicts if verdict.is_wrong]


def ran(node: Node, opset: int = 22) -> Answer:
    return in_evaluator(node.model(opset).SerializeToString(), node)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Node("Sign", [np.float32([np.nan, -2, 0])]), np.float32([np.nan, -1, 0])),
        (Node("Gelu", [np.float32([np.inf, 0, np.nan])]), np.float32([np.inf, 0, np.nan])),
        (Node("Hardmax", [np.zeros((0, 2), np.float32)], {"axis": 0}), np.zeros((0, 2), np.float32)),
        (Node("HannWindow", [np.array(1)], {"periodic": 0}), np.float32([np.nan])),
        (Node("DynamicQuantizeLinear", [np.zeros((2,), np.float32)], {}, 3), np.uint8([0, 0])),
        (
            Node(
                "Resize",
                [np.float32([[[[3, 1, 2, 5, 4]]]]), None, None, np.array([1, 1, 1, 1])],
                {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"},
            ),
            np.float32([[[[3]]]]),
        ),
    ],
    ids=lambda value: value.op if isinstance(value, Node) else "",
)
def test_an_edge_has_the_value_that_onnx_names(node: Node, expected: np.ndarray) -> None:
    answer = ran(node)
    assert answer.outputs is not None, answer.error
    np.testing.assert_array_equal(answer.outputs[0], expected)


def test_zeros_are_quantized_with_a_scale() -> None:
    answer = ran(Node("DynamicQuantizeLinear", [np.zeros((2,), np.float32)], {}, 3))
    assert answer.outputs is not None
    assert answer.outputs[1] == 1.0
