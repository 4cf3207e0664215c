"""What eager refuses when it runs, and torch's shape functions let pass, is no file that runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from called import CalledWithTwo
from exportguard import LoweringError, to_onnx

FLOATS = torch.randn(3, 3)
OTHERS = [torch.int64, torch.float16, torch.float64, torch.bool]

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

PRODUCTS: dict[str, Function] = {
    "linear": lambda x, y: functional.linear(x, y),
    "biased": lambda x, y: functional.linear(x, x, y[0]),
    "matmul": lambda x, y: x @ y,
    "mm": lambda x, y: torch.mm(x, y),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "addmm": lambda x, y: torch.addmm(y, x, x),
    "layer_norm": lambda x, y: functional.layer_norm(x, (3,), y[0]),
    "batch_norm": lambda x, y: functional.batch_norm(x, y[0], y[1]),
    "softmax": lambda x, y: y.softmax(-1) + x,
}


def refuses(function: Function, y: torch.Tensor) -> bool:
    try:
        function(FLOATS, y)
    except (RuntimeError, NotImplementedError):
        return True
    return False


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_model_that_eager_refuses_is_refused(name: str, dtype: torch.dtype) -> None:
    function, y = PRODUCTS[name], FLOATS.to(dtype)
    if not refuses(function, y):
        to_onnx(CalledWithTwo(function).eval(), (FLOATS, y)).run({"x": FLOATS, "y": y})
        return
    with pytest.raises(Exception, match=r"torch refuses|torch.export stopped"):
        to_onnx(CalledWithTwo(function).eval(), (FLOATS, y))


def test_the_error_names_the_line_the_dtypes_and_the_remedy() -> None:
    expected = (
        r"cannot lower aten.linear.default \(0, .*\): torch refuses operands of i64 and f32 when it runs; convert"
    )
    with pytest.raises(LoweringError, match=expected):
        to_onnx(torch.nn.Sequential(torch.nn.Linear(3, 3)).eval(), (torch.ones(2, 3, dtype=torch.int64),))
