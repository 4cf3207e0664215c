"""The node tests of the onnx package, run in the evaluator: what they are, what passes, and why the rest does not."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy
import onnx
import torch
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from exportguard import _core
from exportguard.runners.evaluator import EvaluatorSession

# Domains of training and of classical machine learning: not what the evaluator is for.
OTHER_DOMAINS = ("ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview")
REASONS = {
    "domain": "the operator is of a domain for training, classical machine learning or previews",
    "newer": "the operator is first in opset 27, beyond what is supported",
    "image": "ImageDecoder reads image files",
    "random": "random numbers, which ONNX does not fix",
    "old": "Scan of opset 8, which had batches, below what is supported",
    "float16": "the expected numbers were accumulated in float16; one unit in the last place apart",
    "scalars": "onnx's comparison takes no tensors of rank 0 in a sequence",
    "length": "the expected corners are those of a length that is no whole number, unlike torch and onnxruntime",
    "noise": "what should be 0 is expected to be the noise of another Fourier transform",
}
BY_NAME = {
    "image": ("test_image_decoder",),
    "random": ("test_bernoulli", "test_training_dropout"),
    "old": ("test_scan_sum",),
    "float16": ("test_attention_4d_causal_fp16", "test_attention_4d_fp16"),
    "scalars": ("test_loop16_seq_none",),
    "length": (
        "test_resize_downsample_scales_cubic_align_corners",
        "test_resize_downsample_scales_linear_align_corners",
    ),
    "noise": ("test_dft_inverse",),
}
NEWER = ("CausalConvWithState", "LinearAttention", "SwiGLU")

# Stored in torch under another name; a view of the same bits.
BITS = {
    numpy.dtype(ml_dtypes.bfloat16): (numpy.int16, torch.bfloat16),
    numpy.dtype(ml_dtypes.float8_e4m3fn): (numpy.uint8, torch.float8_e4m3fn),
    numpy.dtype(ml_dtypes.float8_e4m3fnuz): (numpy.uint8, torch.float8_e4m3fnuz),
    numpy.dtype(ml_dtypes.float8_e5m2): (numpy.uint8, torch.float8_e5m2),
    numpy.dtype(ml_dtypes.float8_e5m2fnuz): (numpy.uint8, torch.float8_e5m2fnuz),
    numpy.dtype(ml_dtypes.float8_e8m0fnu): (numpy.uint8, torch.float8_e8m0fnu),
}
# One element to an 8-bit integer.
SMALL = {
    numpy.dtype(ml_dtypes.int4): numpy.int8,
    numpy.dtype(ml_dtypes.uint4): numpy.uint8,
    numpy.dtype(ml_dtypes.int2): numpy.int8,
    numpy.dtype(ml_dtypes.uint2): numpy.uint8,
}
FLOAT4 = numpy.dtype(ml_dtypes.float4_e2m1fn)
SMALL_NAMES = {"i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2}


@dataclass(frozen=True)
class Outcome:
    """What became of one test: its reason if it is not one to pass, else an error or nothing."""

    name: str
    reason: str = ""
    error: str = ""


def cases() -> dict[str, TestCase]:
    """All node tests by name; making them prints and warns a lot."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return {case.name: case for case in sorted(found, key=lambda case: case.name)}


def outcomes(
    all_cases: dict[str, TestCase], changed: Callable[[bytes], bytes | _core.Model] = lambda model: model
) -> Iterator[Outcome]:
    """Runs each test that the evaluator is for, on what `changed` makes of its model."""
    for name, case in all_cases.items():
        reason = reason_to_leave_out(case)
        yield Outcome(name, reason=reason) if reason else Outcome(name, error=error_of(case, changed))


def reason_to_leave_out(case: TestCase) -> str:
    """A key of `REASONS`, or nothing."""
    if any(opset.domain in OTHER_DOMAINS for opset in case.model.opset_import):
        return "domain"
    if any(node.op_type in NEWER and not node.domain for node in case.model.graph.node):
        return "newer"
    return next((reason for reason, starts in BY_NAME.items() if case.name.startswith(starts)), "")


def error_of(case: TestCase, changed: Callable[[bytes], bytes | _core.Model] = lambda model: model) -> str:
    """What is wrong, or nothing."""
    try:
        data = changed(case.model.SerializeToString())
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    for inputs, outputs in case.data_sets:
        feeds = {value.name: as_array(given) for value, given in zip(case.model.graph.input, inputs, strict=False)}
        try:
            expected, got = fixed_by_onnx(case, feeds, [as_array(one) for one in outputs], evaluate(data, feeds))
            Runner.assert_similar_outputs(expected, got, case.rtol, case.atol)
        except (Exception, AssertionError) as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


def fixed_by_onnx(
    case: TestCase, feeds: dict[str, Any], expected: list[Any], got: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Both without what ONNX leaves open: floats beyond the range of a small integer that they are cast to.

    The expected numbers are those of ml_dtypes there, which wraps around in 0.6 and gives 0 from 0.7 on.
    """
    given = next(iter(feeds.values()), None)
    if not case.name.startswith(("test_cast_", "test_castlike_")) or expected[0].dtype not in SMALL:
        return expected, got
    bounds = ml_dtypes.iinfo(expected[0].dtype)
    within = (given.astype(numpy.float32) >= bounds.min) & (given.astype(numpy.float32) <= bounds.max)
    return [one[within] for one in expected], [one[within] for one in got if one.shape == within.shape]


def evaluate(model: bytes | _core.Model, inputs: dict[str, Any]) -> list[Any]:
    """Runs a model on arrays, lists of them, and None; what the evaluators of other benchmarks are called with."""
    session = EvaluatorSession(model)
    feeds = {name: to_value(inputs.get(name)) for name in session.input_names}
    types = [dtype for _, _, dtype, _ in session._core.outputs]
    return [from_value(value, dtype) for value, dtype in zip(session.run(feeds), types, strict=True)]


def as_array(value: Any) -> Any:
    """Some cases hold protos, or numbers where the model has tensors of rank 0."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return numpy.asarray(value) if isinstance(value, numpy.generic) else value


def to_value(value: Any) -> Any:
    """An array as a tensor."""
    if value is None or isinstance(value, Sequence):
        return value if value is None else [to_value(item) for item in value]
    array = numpy.asarray(value)
    if array.dtype == object or array.dtype.kind in "US":
        return _core.Strings([as_text(text) for text in array.reshape(-1).tolist()], list(array.shape))
    return to_tensor(array)


def as_text(value: Any) -> str:
    """Strings of ONNX are bytes in some arrays."""
    return value.decode() if isinstance(value, bytes) else str(value)


def to_tensor(array: Any) -> torch.Tensor:
    """Of the same bits, or with one element to a byte."""
    array = numpy.array(array, order="C")
    if array.dtype in BITS:
        bits, dtype = BITS[array.dtype]
        return torch.from_numpy(array.view(bits)).view(dtype)
    if array.dtype == FLOAT4:
        return torch.from_numpy(array.view(numpy.uint8))
    return torch.from_numpy(array.astype(SMALL[array.dtype]) if array.dtype in SMALL else array)


def from_value(value: Any, dtype: str) -> Any:
    """The inverse; `dtype` is what the model says of the output."""
    if value is None or isinstance(value, list):
        return value if value is None else [from_value(item, dtype) for item in value]
    if isinstance(value, _core.Strings):
        return numpy.array(value.elements, dtype=object).reshape(value.shape)
    return from_tensor(value.contiguous(), dtype)


def from_tensor(tensor: torch.Tensor, dtype: str) -> Any:
    """An array of the model's dtype."""
    for array_dtype, (bits, torch_dtype) in BITS.items():
        if tensor.dtype == torch_dtype:
            same_size = torch.int16 if bits is numpy.int16 else torch.uint8
            return tensor.view(same_size).numpy().view(array_dtype)
    if dtype == "f4e2m1":
        return tensor.numpy().view(FLOAT4)
    return tensor.numpy().astype(SMALL_NAMES[dtype]) if dtype in SMALL_NAMES else tensor.numpy()
