"""One fixture, `check`: a function, exported and converted, gives in onnxruntime what it gives in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
import pytest
import torch

from called import CalledWithAll
from exportguard import _core
from exportguard.errors import ExportGuardError
from exportguard.runners.evaluator import EvaluatorSession

Function = Callable[..., Any]
Numbers = Callable[[torch.dtype], torch.Tensor]

# relative and absolute
TOLERANCES = {
    torch.float16: (2e-3, 2e-3),
    torch.float32: (2e-5, 2e-6),
    torch.float64: (1e-6, 1e-7),  # onnxruntime computes some functions of float64 in float32
}


class Check(Protocol):
    """Exports `function` with `inputs`, converts, and compares with eager on `inputs` and on each of `others`.

    Axes that have another size in `others` are dynamic, unless `dynamic_shapes` says, for each input, which.
    """

    def __call__(
        self,
        function: Function,
        inputs: Sequence[Any],
        dynamic_shapes: Sequence[Any] | None = None,
        others: Sequence[Sequence[Any]] = (),
        opset: int | None = None,
    ) -> None: ...


def varying_axes(inputs: Sequence[Any], others: Sequence[Sequence[Any]]) -> list[Any]:
    return [
        {
            axis: torch.export.Dim.DYNAMIC
            for axis, size in enumerate(value.shape)
            if any(other[position].shape[axis] != size for other in others)
        }
        if isinstance(value, torch.Tensor)
        else None
        for position, value in enumerate(inputs)
    ]


def export(function: Function, inputs: Sequence[Any], dynamic_shapes: Sequence[Any]) -> torch.export.ExportedProgram:
    module = function if isinstance(function, torch.nn.Module) else CalledWithAll(function)
    shapes = tuple(dynamic_shapes) if module is function else (tuple(dynamic_shapes),)
    return torch.export.export(module.eval(), tuple(inputs), dynamic_shapes=shapes, strict=False)


def functional(program: torch.export.ExportedProgram) -> _core.Model:
    model = _core.import_program(program)
    _core.functionalize(model)
    return model


def lowered(program: torch.export.ExportedProgram, opset: int | None) -> bytes:
    model = functional(program)
    _core.lower(model, **({} if opset is None else {"opset": opset}))
    return _core.to_bytes(model)


def convert(function: Function, inputs: Sequence[Any], dynamic_shapes: Sequence[Any], opset: int | None) -> bytes:
    return lowered(export(function, inputs, dynamic_shapes), opset)


def eager(function: Function, inputs: Sequence[Any]) -> list[torch.Tensor]:
    copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    leaves = torch.utils._pytree.tree_leaves(function(*copies))
    return [leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in leaves if leaf is not None]


def run(session: ort.InferenceSession, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    names = [value.name for value in session.get_inputs()]
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    assert len(names) == len(tensors), f"the model has inputs {names}, the function takes {len(tensors)} tensors"
    feed = {name: tensor.detach().numpy() for name, tensor in zip(names, tensors, strict=True)}
    return [np.asarray(array) for array in session.run(None, feed)]


def assert_same(expected: torch.Tensor, got: np.ndarray[Any, Any], where: str) -> None:
    actual = torch.from_numpy(got.copy())
    assert actual.dtype == expected.dtype, f"{where}: dtype {actual.dtype}, eager has {expected.dtype}"
    assert actual.shape == expected.shape, f"{where}: shape {tuple(actual.shape)}, eager has {tuple(expected.shape)}"
    relative, absolute = TOLERANCES.get(expected.dtype, (0.0, 0.0))
    torch.testing.assert_close(
        actual, expected, rtol=relative, atol=absolute, equal_nan=True, msg=lambda text: f"{where}: {text}"
    )


def check_function(
    function: Function,
    inputs: Sequence[Any],
    dynamic_shapes: Sequence[Any] | None = None,
    others: Sequence[Sequence[Any]] = (),
    opset: int | None = None,
) -> None:
    shapes = varying_axes(inputs, others) if dynamic_shapes is None else dynamic_shapes
    program = export(function, inputs, shapes)
    model = lowered(program, opset)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    evaluators = {"onnx": EvaluatorSession(model), "torch": EvaluatorSession(functional(program))}
    for feed in [inputs, *others]:
        expected = eager(function, feed)
        assert_all_same(expected, run(session, feed), feed, "onnxruntime")
        for level, evaluator in evaluators.items():
            try:
                got = evaluate(evaluator, feed)
            except ExportGuardError:
                # The program may be wrong about itself: torch 2.13 takes the size of what masked_select gives for that
                # of its first operand, and asserts it, although the mask may broadcast it.
                if level == "torch" and not takes(program, feed):
                    continue
                raise
            assert_all_same(expected, got, feed, f"evaluator, operators of {level}")


def takes(program: torch.export.ExportedProgram, feed: Sequence[Any]) -> bool:
    """Whether what torch.export returned runs on the inputs in eager torch."""
    try:
        program.module()(*feed)
    except RuntimeError:
        return False
    return True


def evaluate(session: EvaluatorSession, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    tensors = [value.detach() for value in inputs if isinstance(value, torch.Tensor)]
    results = session.run(dict(zip(session.input_names, tensors, strict=True)))
    return [result.resolve_conj().resolve_neg().numpy() for result in results]


def assert_all_same(
    expected: Sequence[torch.Tensor], got: Sequence[np.ndarray[Any, Any]], feed: Sequence[Any], runner: str
) -> None:
    assert len(got) == len(expected), f"{runner}: {len(got)} outputs, eager has {len(expected)}"
    sizes = [tuple(value.shape) for value in feed if isinstance(value, torch.Tensor)]
    for i, (reference, array) in enumerate(zip(expected, got, strict=True)):
        assert_same(reference, array, f"{runner}: output {i} of {len(got)}, inputs of shapes {sizes}")


@pytest.fixture
def check() -> Check:
    return check_function


SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0]
ORDINARY = [0.25, -0.25, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 3.7, -3.7, 10.0, -10.0, 60.3, -60.3, 1e-4, -1e-4]


def sample_numbers(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.tensor(SPECIAL + ORDINARY, dtype=dtype)
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    return torch.tensor(
        [0, 1, 2, 3, 7, 100] if not dtype.is_signed else [0, 1, -1, 2, -2, 7, -7, 100, -100], dtype=dtype
    )


@pytest.fixture
def numbers() -> Numbers:
    """Numbers of a dtype, NaN, infinities and both zeros among them."""
    return sample_numbers
