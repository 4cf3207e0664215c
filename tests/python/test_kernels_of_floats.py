"""Models in float64 and bfloat16, of which onnxruntime lacks kernels: the digits of eager, and files that it loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as runtime
from torch.nn import functional

from called import CalledWithAll
from exportguard import ExportOptions, to_onnx

Function = Callable[..., torch.Tensor]


def doubles(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(sizes)))


def with_weights(function: Callable[..., torch.Tensor], *shapes: Sequence[int], **options: Any) -> Function:
    """The function with further tensors of these shapes."""
    tensors = [doubles(*shape) for shape in shapes]
    return lambda x: function(x, *tensors, **options)


#: A factor that leaves short axes as long as they are is no factor there, in some modes.
SIZES: dict[str, dict[str, Any]] = {
    "a size": {"size": 5},
    "a factor": {"scale_factor": 1.3},
    "corners": {"scale_factor": 1.3, "align_corners": True},
}
IN_FLOAT64: dict[str, tuple[Function, Sequence[int]]] = {
    "conv1d": (with_weights(functional.conv1d, (6, 2, 3), (6,), stride=2, padding=3, groups=2), (2, 4, 9)),
    "conv2d": (with_weights(functional.conv2d, (5, 4, 3, 2), padding=(1, 0), dilation=(2, 1)), (2, 4, 7, 6)),
    "conv2d same": (with_weights(functional.conv2d, (4, 1, 4, 3), padding="same", groups=4), (2, 4, 7, 6)),
    "conv3d": (with_weights(functional.conv3d, (5, 4, 2, 3, 1), (5,), stride=(1, 2, 1)), (2, 4, 4, 7, 3)),
    "transposed 1": (
        with_weights(
            functional.conv_transpose1d,
            (4, 3, 3),
            (6,),
            stride=3,
            padding=1,
            output_padding=2,
            groups=2,
            dilation=2,
        ),
        (2, 4, 5),
    ),
    "transposed 2": (
        with_weights(functional.conv_transpose2d, (4, 3, 2, 3), stride=(2, 1), padding=(1, 4)),
        (2, 4, 5, 9),
    ),
    "average": (lambda x: functional.avg_pool2d(x, 3, 2, 1), (2, 4, 7, 8)),
    "average, ceil": (lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True), (2, 4, 8, 8)),
    "average, no padding": (
        lambda x: functional.avg_pool1d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (2, 4, 8),
    ),
    "average, divisor": (lambda x: functional.avg_pool2d(x, 2, divisor_override=3), (2, 4, 7, 8)),
    "powers": (lambda x: functional.lp_pool2d(x, 2, 2), (2, 4, 7, 8)),
    "fold": (
        lambda x: functional.fold(
            functional.unfold(x, (3, 2), padding=1, stride=(1, 2)), x.shape[2:], (3, 2), 1, 1, (1, 2)
        ),
        (2, 4, 6, 7),
    ),
    "a number of each product": (lambda x: torch.addmm(x, x, x.mT, alpha=0.2, beta=0.6), (4, 4)),
    "a product times a number": (lambda x: x @ x.mT * 0.3, (3, 4, 4)),
    "layer norm": (lambda x: functional.layer_norm(x * 1e-3, (4,)), (3, 4, 4)),
    "batch norm": (
        with_weights(lambda x, mean, scale: functional.batch_norm(x * 1e-3, mean, mean.square(), scale), (4,), (4,)),
        (3, 4, 4),
    ),
    "places of small numbers": (lambda x: (x * 1e-300).nonzero(), (3, 4, 4)),
    "adaptive": (lambda x: functional.adaptive_avg_pool2d(x, (3, 2)), (2, 4, 6, 7)),
    **{
        f"{mode}, {name}": (
            lambda x, mode=mode, options=options: functional.interpolate(x, mode=mode, **options),  # type: ignore[misc]
            (2, 4, *(3, 6, 3)[:spatial]),
        )
        for mode, spatial in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3))
        for name, options in SIZES.items()
    },
    "antialiased": (
        lambda x: functional.interpolate(x, scale_factor=0.4, mode="bicubic", antialias=True),
        (2, 4, 6, 7),
    ),
    "inverse power": (
        lambda x: torch.linalg.matrix_power(x + 9 * torch.eye(x.shape[-1], dtype=x.dtype), -3),
        (2, 4, 4),
    ),
}


@pytest.mark.parametrize("name", IN_FLOAT64)
def test_float64_is_computed_in_float64(name: str) -> None:
    function, sizes = IN_FLOAT64[name]
    is_square = sizes[-2:] == (4, 4)
    shape = {axis: f"axis{axis}" for axis in range(len(sizes)) if axis != 1 and not is_square}
    model = to_onnx(CalledWithAll(function).eval(), (doubles(*sizes),), dynamic_shapes=((shape,),) if shape else None)
    assert "f32" not in model.text()
    for added in (0, 1, 2, 5) if shape else (0,):
        x = doubles(*(size + (0 if axis == 1 else added) for axis, size in enumerate(sizes)))
        (got,) = model.run({model.inputs[0].name: x}).values()
        torch.testing.assert_close(got, function(x), rtol=1e-12, atol=1e-12)


def in_double(layer: torch.nn.Module) -> torch.nn.Module:
    return layer.double().eval()


torch.manual_seed(0)
RECURRENT: dict[str, torch.nn.Module] = {
    "lstm": in_double(torch.nn.LSTM(3, 5, 2, bidirectional=True)),
    "projected": in_double(torch.nn.LSTM(3, 5, proj_size=2, bidirectional=True)),
    "gru": in_double(torch.nn.GRU(3, 5, bidirectional=True, batch_first=True)),
    "rnn": in_double(torch.nn.RNN(3, 5, nonlinearity="relu", bias=False)),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_of_float64_are_computed_in_float64(name: str) -> None:
    layer = RECURRENT[name]
    model = to_onnx(layer, (doubles(4, 2, 3),), dynamic_shapes=({0: "first", 1: "second"},))
    assert "f32" not in model.text()
    for first, second in ((4, 2), (1, 1), (7, 3)):
        x = doubles(first, second, 3)
        got = model.run({model.inputs[0].name: x})
        for result, expected in zip(got.values(), torch.utils._pytree.tree_leaves(layer(x)), strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = in_double(torch.nn.GRU(3, 5, bidirectional=True))

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        steps, state = self.layer(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(steps)[0], state


def test_packed_sequences_of_float64_are_computed_in_float64() -> None:
    layer = Packed().eval()
    model = to_onnx(layer, (doubles(6, 3, 3), torch.tensor([4, 6, 2])))
    for lengths in (torch.tensor([4, 6, 2]), torch.tensor([6, 1, 5])):
        feed = dict(zip([value.name for value in model.inputs], (doubles(6, 3, 3), lengths), strict=True))
        for result, expected in zip(model.run(feed).values(), layer(*feed.values()), strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


def block(*layers: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*layers).to(torch.bfloat16).eval()


class Branching(torch.nn.Module):
    """Operators within a branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.tanh() * 2, lambda x: x.softmax(-1) + 1, (x,))


IN_BFLOAT16: dict[str, tuple[torch.nn.Module, Sequence[int]]] = {
    "layers": (block(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)), (2, 4)),
    "convolutions": (
        block(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        (2, 3, 8, 8),
    ),
    "attention": (block(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), (2, 5, 8)),
    "a branch": (Branching(), (2, 4)),
    "reductions at places": (
        CalledWithAll(
            lambda x: (
                x.new_zeros(3, 4).index_add(0, x[:, 0].argsort() % 3, x)
                + x.new_ones(3, 4).scatter_reduce(0, x.argsort(0) % 3, x + 1, "amax")
            )
        ),
        (2, 4),
    ),
    "moved values": (CalledWithAll(lambda x: torch.cat([x.flip(0), x[:, :1].expand(-1, 3)], 1).cumsum(1)), (2, 4)),
}


def bfloat16s(*sizes: int) -> torch.Tensor:
    return doubles(*sizes).to(torch.bfloat16)


@pytest.mark.parametrize("name", IN_BFLOAT16)
def test_what_has_no_kernel_in_bfloat16_is_computed_in_float32(name: str) -> None:
    model, sizes = IN_BFLOAT16[name]
    onnx = to_onnx(model, (bfloat16s(*sizes),), dynamic_shapes=({0: "batch"},) if name != "moved values" else None)
    assert {value.dtype for value in [*onnx.inputs, *onnx.outputs]} == {"bf16"}
    for batch in (2, 5) if name != "moved values" else (2,):
        x = bfloat16s(batch, *sizes[1:])
        (got,) = onnx.run({onnx.inputs[0].name: x}).values()
        torch.testing.assert_close(got, model(x), rtol=2e-2, atol=2e-2)


def test_another_target_has_bfloat16_as_the_model_has_it() -> None:
    model, sizes = IN_BFLOAT16["layers"]
    onnx = to_onnx(model, (bfloat16s(*sizes),), options=ExportOptions(target="onnx"))
    assert "f32" not in onnx.text()


def test_operators_that_move_bfloat16_have_kernels_in_the_installed_runtime() -> None:
    """Every other one is computed in float32, so that a kernel that is not there is the only fault."""

    def runs(name: str, letter: str) -> bool:
        return any(
            kernel.op_name == name and "CPU" in kernel.provider and "tensor(bfloat16)" in types
            for kernel in runtime.get_all_opkernel_def()
            for key, types in kernel.type_constraints.items()
            if key.startswith(letter)
        )

    moved: Any = (
        "Cast Concat Flatten Gather GatherElements GatherND Identity Reshape ScatterElements ScatterND Slice Split"
    )
    assert [name for name in moved.split() if not runs(name, "T")] == []
