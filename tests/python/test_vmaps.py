"""`torch.vmap` over a batch of any size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest
import torch

from called import CalledWithTwo
from exportguard import to_onnx

FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "one level": lambda x, y: torch.vmap(lambda a: (a * a.sum()).tanh())(x) + y,
    "two arguments": lambda x, y: torch.vmap(torch.dot)(x, y),
    "two levels": lambda x, y: torch.vmap(lambda a: torch.vmap(lambda b: (a - b).abs().sum())(y))(x),
    "another axis": lambda x, y: torch.vmap(lambda a, b: a @ b, in_dims=(1, 1), out_dims=0)(x, y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_of_any_size(name: str) -> None:
    function = FUNCTIONS[name]
    inputs = (torch.rand(3, 4), torch.rand(3, 4))
    model = to_onnx(CalledWithTwo(function).eval(), inputs, dynamic_shapes={"x": {0: "batch"}, "y": {0: "batch"}})
    session = ort.InferenceSession(model.to_bytes(), providers=["CPUExecutionProvider"])
    for batch in (3, 5, 2):
        x, y = torch.rand(batch, 4), torch.rand(batch, 4)
        found = session.run(None, {"x": x.numpy(), "y": y.numpy()})
        np.testing.assert_allclose(found[0], function(x, y).numpy(), rtol=1e-5, atol=1e-6)
