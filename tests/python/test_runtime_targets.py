"""What a target runs is data: its tables are those of the installed runtime, and no lowering knows one by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from called import CalledWithAll
from exportguard import ExportOptions, InvalidArgumentError, OnnxModel, _core, load, to_onnx

ROOT = Path(__file__).parents[2]
LOWERING = (ROOT / "src" / "lowering", ROOT / "include" / "exportguard" / "lowering")
OPSETS = range(18, 26)
OF_RUNTIME = {
    "float": "f32",
    "double": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign[:1] or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def knows_a_runtime(text: str) -> bool:
    """Whether a source names a runtime, or a target, rather than what it needs."""
    return re.search(r"onnxruntime|Target::k|OnnxRuntime", text, re.IGNORECASE) is not None


def test_no_lowering_knows_a_runtime() -> None:
    sources = [path for folder in LOWERING for path in folder.rglob("*") if path.suffix in (".h", ".cpp")]
    tables = {path for path in sources if path.parent.name == "targets" or path.stem.startswith("target")}
    assert len(sources) - len(tables) > 100
    # The default of the options is the one choice.
    others = {path for path in sources if path not in tables and path.name != "lower.h"}
    assert [str(path) for path in others if knows_a_runtime(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "line",
    ["// onnxruntime's kernel fails then", "if (ctx.target() == Target::kOnnxRuntimeCpu) return x;"],
)
def test_a_lowering_that_knows_a_runtime_is_found(line: str) -> None:
    assert knows_a_runtime(line)


def registered(op: str, opset: int) -> set[str]:
    """The dtypes of an operator's first operand that the installed CPU provider registers a kernel for."""
    found: set[str] = set()
    for kernel in runtime.get_all_opkernel_def():
        first, last = kernel.version_range
        if kernel.op_name == op and kernel.domain == "" and first <= opset <= last and "CPU" in kernel.provider:
            constraint = kernel.type_constraints.get(_first_type(op, opset), [])
            found.update(OF_RUNTIME.get(name.removeprefix("tensor(").removesuffix(")"), "") for name in constraint)
    return found - {""}


def _first_type(op: str, opset: int) -> str:
    return str(onnx.defs.get_schema(op, opset, "").inputs[0].type_str)


def operators(target: str) -> list[str]:
    return sorted(op for op in _core.target_kernels(target) if ":" not in op)


@pytest.mark.parametrize("op", operators("onnxruntime-cpu"))
def test_the_kernels_of_the_cpu_are_those_of_the_installed_runtime(op: str) -> None:
    """Also where an operator is newer than an opset, or is made of others by the runtime: a session says it then."""
    claimed = set(_core.target_kernels("onnxruntime-cpu")[op]) - {"f16", "bf16"}  # which a session widens by itself
    for opset in OPSETS:
        try:
            schema = onnx.defs.get_schema(op, opset, "")
        except onnx.defs.SchemaError:
            continue
        has_kernel = registered(op, opset)
        if has_kernel and not schema.has_function:
            assert claimed <= has_kernel, f"opset {opset}: no kernel for {claimed - has_kernel}"


def test_what_cuda_does_not_run_the_cpu_runs() -> None:
    cpu, cuda = (_core.target_kernels(target) for target in ("onnxruntime-cpu", "onnxruntime-cuda"))
    assert cpu.keys() == cuda.keys()
    assert all(set(cpu[op]) <= set(cuda[op]) for op in cpu)
    assert "f64" in cuda["Conv"]
    assert "f64" not in cpu["Conv"]


def test_the_standard_has_no_table() -> None:
    assert _core.target_kernels("onnx") == {}


# ---------------------------------------------------------------------------------------------------- models


X = torch.tensor([[1.5, -2.0, 0.25], [0.5, 4.0, -1.0]])
#: Where targets differ, with how many nodes fewer the standard needs at least.
DIFFERENT: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]] = {
    "gelu of doubles": (torch.nn.functional.gelu, (X.double(),), 1),
    "hardswish of doubles": (torch.nn.functional.hardswish, (X.double(),), 1),
    "convolution of doubles": (lambda x, w: torch.nn.functional.conv1d(x, w), (X.double()[None], X.double()[None]), 1),
    "largest int64": (torch.maximum, (torch.tensor([2**60 + 1]), torch.tensor([2**60])), 1),
    "sum of int64": (lambda x: x.sum(0), (torch.tensor([2**60, 1, 3]),), 0),
    "matrix times vector": (lambda x, y: x.T @ y, (X, torch.ones(2)), 1),
    "cumulative product": (lambda x: x.cumprod(0), (X,), 0),
    "continued, cut": (lambda x: torch.nn.functional.pad(x[None], (-1, 2), mode="replicate"), (X,), 0),
    "adaptive mean": (lambda x: torch.nn.functional.adaptive_avg_pool1d(x, 2), (X,), 0),
    "uniform": (lambda x: torch.rand_like(x) * 0 + x, (X,), 3),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_model_for_the_standard_is_plain_and_right_where_everything_runs(name: str) -> None:
    function, inputs, fewer = DIFFERENT[name]
    expected = function(*inputs)
    plain, adapted = (
        to_onnx(CalledWithAll(function), inputs, options=ExportOptions(target=target), optimize=False)
        for target in ("onnx", "onnxruntime-cpu")
    )
    assert adapted.node_count - plain.node_count >= fewer
    for model in (plain, adapted):
        assert_same(expected, model, inputs, "evaluator")
    assert_same(expected, adapted, inputs, "onnxruntime")


def assert_same(expected: torch.Tensor, model: OnnxModel, inputs: Sequence[torch.Tensor], runner: Any) -> None:
    feeds = dict(zip([value.name for value in model.inputs], inputs, strict=True))
    (got,) = model.run(feeds, runner=runner).values()
    torch.testing.assert_close(torch.as_tensor(got), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["onnx", "onnxruntime-cpu", "onnxruntime-cuda"])
def test_every_target_gives_a_model_that_the_checker_takes(target: Any, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    to_onnx(CalledWithAll(torch.erf), (X.double(),), options=ExportOptions(target=target), output=file)
    onnx.checker.check_model(str(file), full_check=True)
    assert load(file).node_count >= 1


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="target must be 'onnx' or 'onnxruntime-cpu'"):
        ExportOptions(target="tensorrt")  # type: ignore[arg-type]


def test_the_runtime_runs_what_its_table_says(tmp_path: Path) -> None:
    """A model of doubles with operators that have a kernel and with those that have none."""
    file = tmp_path / "model.onnx"
    to_onnx(CalledWithAll(lambda x: torch.tan(x) + torch.exp(x)), (X.double(),), output=file)
    session = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: X.double().numpy()})
    assert got.dtype == np.float64
