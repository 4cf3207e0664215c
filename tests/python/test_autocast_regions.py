"""Programs of models within torch.autocast: a strict trace records other dtypes than the model computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from exportguard import ExportOptions, ProgramError, to_onnx

#: What autocast converts (lower precision), what it widens, and what it leaves alone.
CONVERTED: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": lambda x, w: torch.nn.functional.linear(x, w),
    "matmul": lambda x, w: x @ w + 1,
    "attention": lambda x, w: torch.nn.functional.scaled_dot_product_attention(x[None], w[None], w[None])[0],
    "a convolution": lambda x, w: torch.nn.functional.conv1d(x[None], w[:, :, None])[0],
}
LEFT: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a sum": lambda x, w: x + w,
    "a norm": lambda x, w: torch.nn.functional.layer_norm(x, (4,)),
    "a softmax": lambda x, w: torch.softmax(x * 2, -1),
}


class Autocast(nn.Module):
    def __init__(self, name: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.name, self.dtype = name, dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return {**CONVERTED, **LEFT}[self.name](x, self.weight)


def model_of(name: str, dtype: torch.dtype) -> Autocast:
    torch.manual_seed(0)
    return Autocast(name, dtype).eval()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CONVERTED)
def test_what_a_strict_trace_does_not_record_is_refused(name: str, dtype: torch.dtype) -> None:
    model, x = model_of(name, dtype), torch.randn(4, 4)
    with pytest.raises(ProgramError, match=r"computes torch\.b?float16.*strict=False"):
        to_onnx(torch.export.export(model, (x,), strict=True))
    with pytest.raises(ProgramError, match="strict=False"):
        to_onnx(model, (x,), options=ExportOptions(strict=True))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", LEFT)
def test_what_autocast_leaves_alone_is_right(name: str, strict: bool) -> None:
    model, x = model_of(name, torch.bfloat16), torch.randn(4, 4)
    got = to_onnx(torch.export.export(model, (x,), strict=strict)).run({"x": x})["output_0"]
    torch.testing.assert_close(got, model(x))


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made: Tensor = torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))
            return made


def test_a_region_around_a_branch_is_told() -> None:
    with pytest.raises(ProgramError, match="within the branches"):
        to_onnx(Branches().eval(), (torch.ones(2, 2),))


@pytest.mark.parametrize("name", CONVERTED)
def test_other_traces_are_right(name: str) -> None:
    model, x = model_of(name, torch.bfloat16), torch.randn(4, 4)
    got = to_onnx(torch.export.export(model, (x,), strict=False)).run({"x": x})["output_0"]
    torch.testing.assert_close(got, model(x), rtol=2e-2, atol=2e-2)
