"""`tensor.data` in a model: what it shows is computed from the tensor, and what is written to it is the tensor's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from exportguard import to_onnx


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.layer = torch.nn.Linear(3, 4)
        self.register_buffer("offsets", torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def written(_: Model, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.data.add_(1)
    y.data[..., 0] = 7
    return y


def seen(_: Model, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    shown = y.data
    y[0] = 5
    return shown, y


MODELS: dict[str, Callable[..., Any]] = {
    "an input": lambda _, x: x.data * 2,
    "an input that is returned": lambda _, x: (x.data, x + 1),
    "weights": lambda m, x: torch.nn.functional.linear(x, m.layer.weight.data, m.layer.bias.data),
    "a buffer": lambda m, x: x + m.offsets.data,
    "of a view": lambda _, x: x.T.data[:2].sum(1),
    "rounded straight through": lambda _, x: x + (x.round() - x).data,
    "written": written,
    "seen behind a write": seen,
}


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("name", MODELS)
def test_data_is_that_of_the_tensor(name: str, rewrite: object) -> None:
    torch.manual_seed(0)
    model = Model(MODELS[name]).eval()
    exported = to_onnx(model, (torch.randn(4, 3),), dynamic_shapes=({0: "rows"},), rewrite=rewrite)
    for x in (torch.randn(4, 3), -torch.rand(1, 3), torch.rand(7, 3)):
        expected = torch.utils._pytree.tree_leaves(model(x.clone()))
        for got, wanted in zip(exported.run({"x": x}).values(), expected, strict=True):
            torch.testing.assert_close(got, wanted.detach(), rtol=1e-5, atol=1e-6)
