"""Standard deviations of large and small numbers, and output paddings of transposed convolutions beyond the stride."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from exportguard import to_onnx
from exportguard.onnx_model import Runner

SPREADS: Mapping[str, Callable[[Tensor], object]] = {
    "of an axis": lambda x: x.std(1),
    "of all": lambda x: x.std(),
    "uncorrected": lambda x: x.std(1, unbiased=False, keepdim=True),
    "corrected by two": lambda x: torch.std(x, dim=(0, 1), correction=2),
    "with the mean": lambda x: torch.std_mean(x, dim=1),
}


class Spread(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> object:
        return SPREADS[self.name](x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", SPREADS)
def test_a_deviation_is_in_range_where_its_square_is_not(name: str, dtype: torch.dtype) -> None:
    model = Spread(name).eval()
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 2.0, 8.0, 1.0]])
    onnx = to_onnx(model, (x.to(dtype),))
    scales = (1.0, 4e3, 1e-3) if dtype == torch.float16 else (1.0, 1e20, 1e30, 1e-25)
    for scale in scales:
        given = (x * scale).to(dtype)
        expected = model(given)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for got, wanted in zip(onnx.run({"x": given}).values(), expected, strict=True):
            assert torch.isfinite(wanted).all()
            torch.testing.assert_close(
                got / scale, wanted / scale, rtol=1e-2 if dtype != torch.float32 else 1e-5, atol=0
            )


#: stride, dilation, padding and output padding, which torch wants below the greater of the first two.
PADDINGS = [
    case for case in itertools.product((1, 2), (1, 2, 4), (0, 1, 3), range(4)) if case[3] < max(case[0], case[1])
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("runner", ["onnxruntime", "evaluator"])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(("stride", "dilation", "padding", "output_padding"), PADDINGS)
def test_an_output_padding_beyond_the_stride(
    stride: int, dilation: int, padding: int, output_padding: int, has_bias: bool, runner: Runner
) -> None:
    model = nn.ConvTranspose1d(2, 4, 3, stride, padding, output_padding, 2, has_bias, dilation).eval()
    onnx = to_onnx(model, (torch.randn(1, 2, 9),), dynamic_shapes=({0: "batch", 2: "length"},))
    for batch, length in ((1, 9), (2, 12)):
        x = torch.randn(batch, 2, length)
        torch.testing.assert_close(onnx.run({"input": x}, runner)["output_0"], model(x), rtol=1e-4, atol=1e-5)
