"""onnxruntime on torch tensors of every dtype."""

from __future__ import annotations

import onnx
import pytest
import torch
from onnx import helper

from exportguard.errors import InvalidArgumentError
from exportguard.runners.onnxruntime import _ELEMENT_TYPES, OrtSession, SessionOptions

RUNNABLE = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.bool,
    torch.float8_e4m3fn,
)


def identity(dtype: torch.dtype) -> bytes:
    values = [helper.make_tensor_value_info(name, _ELEMENT_TYPES[dtype], ["n", 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
    opset = [helper.make_opsetid("", 22)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opset, ir_version=10)
    return model.SerializeToString()


@pytest.mark.parametrize("dtype", RUNNABLE, ids=str)
@pytest.mark.parametrize("rows", [2, 0], ids=["filled", "empty"])
def test_tensors_pass_unchanged(dtype: torch.dtype, rows: int) -> None:
    x = (torch.arange(rows * 3).reshape(rows, 3) % 2).to(dtype)
    (y,) = OrtSession(identity(dtype)).run({"x": x})
    assert y.dtype == dtype
    assert y.shape == x.shape
    assert torch.equal(y.float(), x.float())


def test_a_tensor_that_is_not_contiguous_is_read_in_its_order() -> None:
    x = torch.arange(6.0).reshape(3, 2).t()
    (y,) = OrtSession(identity(torch.float32)).run({"x": x})
    assert torch.equal(y, x)


def test_a_missing_input_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="inputs are x; missing: x, unknown: z"):
        OrtSession(identity(torch.float32)).run({"z": torch.zeros(1, 3)})


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_dtype_that_onnx_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"input x is of dtype torch\.complex32, which ONNX does not have"):
        OrtSession(identity(torch.float32)).run({"x": torch.zeros(1, 3, dtype=torch.complex32)})


def test_a_device_without_a_provider_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidArgumentError, match=r"cannot run on xpu.*install onnxruntime-gpu or pass device cpu"):
        OrtSession(identity(torch.float32), SessionOptions(device="xpu"))
