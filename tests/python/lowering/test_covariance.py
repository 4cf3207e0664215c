from __future__ import annotations

import pytest
import torch
from tensors import Case, floats, integers

from called import CalledWithAll
from exportguard import to_onnx

ROWS = [floats(3, 6), floats(3, 4)]
HEAVY = floats(6).abs()
COUNTS = integers(6, low=1, high=4)
CASES: dict[str, Case] = {
    "covariance": (torch.cov, ROWS[:1], [ROWS[1:]]),
    "of all columns": (lambda x: torch.cov(x, correction=0), ROWS[:1], [ROWS[1:]]),
    "weights": (lambda x, w: torch.cov(x, aweights=w), [ROWS[0], HEAVY], [[ROWS[1], HEAVY[:4]]]),
    "counts": (lambda x, n: torch.cov(x, fweights=n), [ROWS[0], COUNTS], [[ROWS[1], COUNTS[:4]]]),
    "both": (lambda x, n, w: torch.cov(x, fweights=n, aweights=w), [ROWS[0], COUNTS, HEAVY], []),
    "one variable": (torch.cov, [floats(6)], [[floats(4)]]),
    "correlation": (torch.corrcoef, ROWS[:1], [ROWS[1:]]),
}


@pytest.mark.parametrize("name", CASES)
def test_over_any_number_of_columns(name: str) -> None:
    function, inputs, others = CASES[name]
    shapes = [{x.ndim - 1: "columns"} for x in inputs]
    model = to_onnx(CalledWithAll(function), tuple(inputs), dynamic_shapes=(tuple(shapes),))
    for feed in (inputs, *others):
        (got,) = model.run(dict(zip([value.name for value in model.inputs], feed, strict=True))).values()
        torch.testing.assert_close(got, function(*feed), rtol=1e-5, atol=1e-6)
