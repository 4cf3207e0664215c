"""What it means that a program with control flow is rewritten rightly: the same results as eager, on every path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard import to_onnx, torch_export_rewrite

Cases = Sequence[tuple[torch.Tensor, ...]]


def up(rows: int, scale: float = 1.0) -> torch.Tensor:
    """A float tensor of [rows, 4] whose numbers are all above zero, for a positive scale."""
    return torch.linspace(0.1, 1.0, rows * 4).reshape(rows, 4) * scale


#: Both sides of a test on the sign, with different numbers of rows; the first one is exported.
SIGNS: Cases = ((up(3),), (up(2, -1),), (up(5, 4),), (up(4, -9),))


class Programs(list[type[torch.nn.Module]]):
    """A table of modules, filled by a decorator."""

    def add(self, cases: Cases = SIGNS) -> Callable[[type[torch.nn.Module]], type[torch.nn.Module]]:
        def register(cls: type[torch.nn.Module]) -> type[torch.nn.Module]:
            cls.cases = cases  # type: ignore[assignment]
            self.append(cls)
            return cls

        return register


def exported(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], rewrite: Any = None
) -> torch.export.ExportedProgram:
    """The module, exported with its methods rewritten and the first axis of every input dynamic."""
    shapes = tuple({0: torch.export.Dim.DYNAMIC} if tensor.dim() else None for tensor in inputs)
    with torch_export_rewrite(rewrite if rewrite is not None else model):
        return torch.export.export(copy.deepcopy(model), inputs, dynamic_shapes=shapes, strict=False)


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(outputs)]


def _copies(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone() for tensor in inputs)


def _assert_equal(found: Any, expected: list[torch.Tensor]) -> None:
    tensors = _tensors(found)
    assert len(tensors) == len(expected)
    for a, b in zip(tensors, expected, strict=True):
        torch.testing.assert_close(a, b, check_dtype=False)


def check(cls: type[torch.nn.Module]) -> None:
    """Exports a program of the table and compares it with eager: as a module, and in onnxruntime."""
    torch.manual_seed(0)
    model = cls().eval()
    cases: Cases = cls.cases  # type: ignore[assignment]
    methods = dict(vars(cls))
    expected = [_tensors(copy.deepcopy(model)(*_copies(case))) for case in cases]
    with torch_export_rewrite(model):
        for case, outputs in zip(cases, expected, strict=True):  # rewritten code means the same in eager mode
            _assert_equal(copy.deepcopy(model)(*_copies(case)), outputs)
    program = exported(model, _copies(cases[0]))
    assert dict(vars(cls)) == methods
    for case, outputs in zip(cases, expected, strict=True):
        _assert_equal(program.module()(*_copies(case)), outputs)
    onnx = to_onnx(program)
    names = [value.name for value in onnx.inputs]
    for case, outputs in zip(cases, expected, strict=True):
        _assert_equal(list(onnx.run(dict(zip(names, case, strict=True))).values()), outputs)
