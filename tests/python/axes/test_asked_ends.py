"""A `Dim` with ends, or of multiples: a file stops at sizes that were not asked for where the model asks for them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from random_programs import model_of
from torch.export import Dim

from exportguard import OnnxModel, to_onnx
from exportguard.errors import AxisError

#: Tests of one size, with what was asked for where they have one answer, and an example.
TOLD: dict[str, tuple[Any, int]] = {
    "n > 4": (Dim("n", min=5), 8),
    "n >= 9": (Dim("n", min=9, max=40), 12),
    "n <= 6": (Dim("n", max=6), 4),
    "2 * n < 21": (Dim("n", max=10), 4),
    "n // 4 >= 2": (Dim("n", min=8), 9),
    "not 5 < n < 12": (Dim("n", min=12, max=30), 14),
    "n % 4 == 0": (4 * Dim("n"), 8),
    "n % 4 == 1": (4 * Dim("n") + 1, 9),
    "n % 6 != 2": (3 * Dim("n", max=9), 9),
    "n >= 4": (4 * Dim("n"), 8),
    "n < 50": (8 * Dim("n", max=6), 16),
}
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 21, 24, 33, 48, 56)
_SOURCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        n = x.shape[1]
        return {body}
"""


def exported(body: str, asked: Any, size: int, **options: Any) -> tuple[torch.nn.Module, OnnxModel]:
    model = model_of(_SOURCE.format(body=body), "/asked ends.py")
    return model, to_onnx(model, (torch.randn(2, size),), dynamic_shapes=({1: asked},), **options)


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("test", TOLD)
@pytest.mark.thinned(1)
def test_a_file_is_right_at_what_was_asked_for_and_stops_elsewhere(test: str, rewrite: Any) -> None:
    asked, size = TOLD[test]
    model, file = exported(f"x * 2 if {test} else x.sin() + 1", asked, size, rewrite=rewrite)
    assert all(axis.kept for axis in file.axes)
    for n in SIZES:
        x = torch.randn(2, n)
        is_asked = _is_asked(asked, n)
        try:
            (got,) = file.run({"x": x}).values()
        except RuntimeError:
            assert not is_asked, n
            continue
        torch.testing.assert_close(got, model(x), msg=f"at {n}")


def _is_asked(asked: Any, size: int) -> bool:
    root = getattr(asked, "root", None)
    if root is None:
        return bool(asked.min <= size and (not isinstance(asked.max, int) or size <= asked.max))
    counts = itertools.takewhile(lambda n: asked.fn(n) <= size, itertools.count(max(root.min, 1)))
    return any(asked.fn(n) == size and (not isinstance(root.max, int) or n <= root.max) for n in counts)


@pytest.mark.parametrize("body", ["x * 2", "x[:, : n // 2]", "x.sum(1) / n"])
def test_ends_that_no_test_needs_leave_no_node(body: str) -> None:
    _, file = exported(body, Dim("n", min=3, max=40), 8)
    assert "Reshape" not in file.text()
    assert file.run({"x": torch.ones(2, 50)})


def test_two_sizes_that_are_equal_wherever_the_model_runs_have_their_own_reason() -> None:
    model = model_of(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, y):\n"
        "        return (x + y) * 2 if x.shape[0] == y.shape[0] else x.sum() + y.sum()\n",
        "/asked ends of two.py",
    )
    shapes: Any = ({0: Dim("a", min=2, max=9)}, {0: Dim("b", min=2, max=9)})
    with pytest.raises(AxisError, match="does something else"):
        to_onnx(model, (torch.ones(4), torch.ones(4)), dynamic_shapes=shapes)
