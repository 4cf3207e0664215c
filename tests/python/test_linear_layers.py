"""The value of a linear layer in a trace looks as torch's would, and what eager mode refuses is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from exportguard import ExportError, ExportGuardError, to_onnx, torch_export_patches

#: What a layer is given, of some rows.
VIEWS: dict[str, Callable[[int], torch.Tensor]] = {
    "vector": lambda rows: torch.rand(4),
    "matrix": lambda rows: torch.rand(rows, 4),
    "batch": lambda rows: torch.rand(rows, 3, 4),
    "batches": lambda rows: torch.rand(2, rows, 3, 4),
    "turned": lambda rows: torch.rand(3, rows, 4).transpose(0, 1),
    "columns": lambda rows: torch.rand(rows, 3, 8)[..., ::2],
    "expanded": lambda rows: torch.rand(1, 4).expand(rows, 4)[:, None],
}


class Calls(nn.Module):
    """A layer whose bias is of another size."""

    def __init__(self, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(5, 4)), nn.Parameter(bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Gives(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def numbers(sizes: Sequence[Any]) -> list[int]:
    """Sizes of the example."""
    return [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("view", VIEWS)
def test_the_value_of_a_layer_looks_as_it_does_in_eager_mode(view: str, dtype: torch.dtype, bias: bool) -> None:
    model, x = Gives(nn.Linear(4, 5, bias=bias).to(dtype)).eval(), VIEWS[view](6).to(dtype)
    axes = None if view == "vector" else {x.shape.index(6): Dim.DYNAMIC}
    with torch_export_patches(), torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=(axes,), strict=False)
        eager = model(x)
    traced = next(node.meta["val"] for node in program.graph.nodes if node.name == "linear")
    assert numbers(traced.shape) == [*eager.shape]
    assert numbers(traced.stride()) == [*eager.stride()]
    assert traced.dtype == eager.dtype
    for rows in () if view == "vector" else (1, 7):
        other = VIEWS[view](rows).to(dtype)
        torch.testing.assert_close(program.module()(other), model(other))


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Linear(4, 5), torch.rand(2, 3)),
        (nn.Linear(4, 5).half(), torch.rand(2, 4)),
        (nn.Linear(4, 5), torch.ones(2, 4, dtype=torch.int64)),
        (Calls(torch.rand(3)), torch.rand(2, 4)),
        (Calls(torch.rand(5).double()), torch.rand(2, 4)),
    ],
)
def test_what_eager_mode_refuses_is_refused(layer: nn.Module, x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError):
        layer(x)
    with pytest.raises((ExportError, ExportGuardError)):
        to_onnx(Gives(layer).eval(), (x,), dynamic_shapes=({0: "rows"},))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_a_model_that_asks_whether_the_value_is_a_view_has_the_answer_of_eager_mode(bias: bool, rank: int) -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 5, bias=bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            return y * (2 if y._is_view() else 3)

    model, x = Asks().eval(), torch.rand(*[3] * (rank - 1), 4)
    onnx = to_onnx(model, (x,), dynamic_shapes=({0: "rows"},))
    other = torch.rand(5, *[3] * (rank - 2), 4)
    (got,) = onnx.run({"x": other}).values()
    with torch.no_grad():
        torch.testing.assert_close(got, model(other))
