from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

from called import CalledWithAll
from exportguard import to_onnx
from exportguard.errors import LoweringError

if TYPE_CHECKING:
    from conftest import Check

CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
RANKS = (1, 2, 3)

OPTIONS = {
    "stride": {"stride": 2, "padding": 1},
    "dilation": {"dilation": 2},
    "same": {"padding": "same", "dilation": 2},
    "valid": {"padding": "valid"},
}


def image(spatial: int, batch: int = 2, first: int = 7) -> torch.Tensor:
    return torch.randn(batch, 4, *([first] + [6] * (spatial - 1)))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("spatial", RANKS)
def test_convolution(spatial: int, options: dict[str, object], check: Check) -> None:
    weight, bias = torch.randn(6, 2, *[3] * spatial), torch.randn(6)
    check(
        lambda x, w, b: CONVOLUTIONS[spatial](x, w, b, groups=2, **options),
        [image(spatial), weight, bias],
        others=[[image(spatial, 1, 9), weight, bias]],
    )


@pytest.mark.parametrize("spatial", RANKS)
def test_same_padding_of_an_even_kernel_is_longer_at_the_end(spatial: int, check: Check) -> None:
    check(lambda x, w: CONVOLUTIONS[spatial](x, w, padding="same"), [image(spatial), torch.randn(3, 4, *[2] * spatial)])


@pytest.mark.parametrize("spatial", RANKS)
def test_convolution_without_a_batch(spatial: int, check: Check) -> None:
    check(CONVOLUTIONS[spatial], [image(spatial)[0], torch.randn(3, 4, *[3] * spatial), torch.randn(3)])


@pytest.mark.parametrize("spatial", RANKS)
def test_transposed_convolution(spatial: int, check: Check) -> None:
    weight, bias = torch.randn(4, 3, *[3] * spatial), torch.randn(6)
    check(
        lambda x, w, b: TRANSPOSED[spatial](x, w, b, stride=2, padding=1, output_padding=1, groups=2),
        [image(spatial), weight, bias],
        others=[[image(spatial, 1, 9), weight, bias]],
    )


@pytest.mark.parametrize("spatial", RANKS)
def test_transposed_convolution_with_dilation_and_without_a_batch(spatial: int, check: Check) -> None:
    check(
        lambda x, w: TRANSPOSED[spatial](x, w, dilation=2, groups=2),
        [image(spatial)[0], torch.randn(4, 3, *[3] * spatial)],
    )


@pytest.mark.parametrize("spatial", RANKS)
def test_transposed_convolution_with_more_output_padding_than_stride(spatial: int, check: Check) -> None:
    check(
        lambda x, w: TRANSPOSED[spatial](x, w, stride=2, padding=3, output_padding=3, dilation=4),
        [image(spatial), torch.randn(4, 3, *[4] * spatial)],
    )


@pytest.mark.parametrize(("stride", "dilation"), [(2, 1), (3, 1), (2, 3)])
@pytest.mark.parametrize("layer", [torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d], ids=lambda cls: cls.__name__)
def test_a_transposed_convolution_to_a_size_that_was_there(
    layer: type[torch.nn.ConvTranspose2d], stride: int, dilation: int
) -> None:
    """As a decoder goes back to the size of what its encoder had."""

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = layer(2, 3, 3, stride, padding=1, dilation=dilation)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = x[..., ::stride] if x.dim() == 3 else x[..., ::stride, ::stride]
            return self.up(kept, output_size=[size + 2 * dilation - 2 for size in x.shape[2:]])

    axes = range(2, 3 if layer is torch.nn.ConvTranspose1d else 4)
    model = Decoder().eval()
    onnx = to_onnx(
        model, (torch.randn(2, 2, *(8 for _ in axes)),), dynamic_shapes=({axis: f"a{axis}" for axis in axes},)
    )
    for size in (1, 2, 5, 6, 7, 12, 13):
        x = torch.randn(2, 2, *(size + i for i in range(len(axes))))
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, model(x))


def test_convolution_in_float64(check: Check) -> None:
    x = torch.randint(-4, 4, (1, 2, 5, 5)).double()  # onnxruntime convolves in float32: small whole numbers stay exact
    check(functional.conv2d, [x, torch.randint(-4, 4, (3, 2, 3, 3)).double()])


def test_convolution_with_time_first(check: Check) -> None:
    check(lambda x, w, b: torch.conv_tbc(x, w, b, 1), [torch.randn(5, 2, 3), torch.randn(3, 3, 4), torch.randn(4)])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_convolutions_of_integers(dtype: torch.dtype, check: Check) -> None:
    """ONNX's convolutions take floats alone."""
    x = torch.arange(2 * 4 * 7).reshape(2, 4, 7).to(dtype)
    weight = torch.arange(4 * 2 * 3).reshape(4, 2, 3).to(dtype)
    check(lambda x, w: functional.conv1d(x, w, None, 2, 1, 1, 2), [x, weight], others=[[x[:1, :, :5], weight]])


def test_a_transposed_convolution_of_integers(check: Check) -> None:
    x = torch.arange(2 * 4 * 7).reshape(2, 4, 7)
    weight = torch.arange(4 * 2 * 3).reshape(4, 2, 3)
    check(lambda x, w: functional.conv_transpose1d(x, w, None, 2, 1), [x, weight], others=[[x[:1, :, :5], weight]])


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_weight_for_each_sample(samples: int, is_transposed: bool, check: Check) -> None:
    """The samples of a batch of any size as the groups of one sample: modulated convolutions."""

    def modulated(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        samples = x.reshape(1, batch * channels, height, width)
        if is_transposed:
            whole = weight.transpose(1, 2).reshape(batch * channels, -1, 3, 3)
            found = functional.conv_transpose2d(samples, whole, bias.reshape(-1), 2, 1, 1, batch)
        else:
            found = functional.conv2d(samples, weight.reshape(-1, channels, 3, 3), bias.reshape(-1), 1, 1, 1, batch)
        return found.reshape(batch, -1, *found.shape[2:])

    def given(samples: int, size: int) -> list[torch.Tensor]:
        return [torch.randn(samples, 4, size, 6), torch.randn(samples, 5, 4, 3, 3), torch.randn(samples, 5)]

    check(modulated, given(2, 5), others=[given(samples, 7)])


def test_as_many_groups_as_a_size_of_several_samples(check: Check) -> None:
    def depthwise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.conv1d(x, weight, groups=x.shape[1])

    given = [torch.randn(2, 4, 9), torch.randn(8, 1, 3)]
    check(depthwise, given, others=[[torch.randn(3, 5, 6), torch.randn(10, 1, 3)]])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("spatial", RANKS)
def test_a_convolution_of_no_channels_stops(spatial: int, transposed: bool) -> None:
    convolve = (TRANSPOSED if transposed else CONVOLUTIONS)[spatial]
    module = CalledWithAll(lambda x, w: convolve(x, w, padding=1))
    space, kernel = [5] * spatial, [2] * spatial

    def example(channels: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight = [channels, 4] if transposed else [4, channels]
        return torch.randn(2, channels, *space), torch.randn(*weight, *kernel)

    shapes = ({1: "channels"}, {0 if transposed else 1: "channels"})
    model = to_onnx(module, example(3), dynamic_shapes=(shapes,))
    names = [value.name for value in model.inputs]
    for channels in (3, 1, 5):
        (got,) = model.run(dict(zip(names, example(channels), strict=True))).values()
        assert got.shape[:2] == (2, 4)
    with pytest.raises(Exception, match="indices element out of data bounds"):
        model.run(dict(zip(names, example(0), strict=True)))


def test_a_convolution_without_a_channel_is_refused() -> None:
    x, weight = torch.randn(2, 0, 5), torch.randn(4, 0, 2)
    with pytest.raises(LoweringError, match="a convolution of no channels"):
        to_onnx(CalledWithAll(lambda x, w: functional.conv1d(x, w)), (x, weight))
