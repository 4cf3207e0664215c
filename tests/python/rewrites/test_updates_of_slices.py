"""Slices that the steps of a loop change by `|=`, `//=` and the other operators of assignments."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from exportguard import ExportGuardError, to_onnx

_SOURCE = """
import torch

class Updating(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        z = {start}
        y = {start}[0]
        for i in range(n):
            {statement}
        return y, z
"""

#: By the dtype: what is changed, and what it is changed by.
_VALUES = {
    "float": ("x * 2 + 3", "(x + 1)"),
    "int": ("(x * 9).long() + 3", "((x * 3).long() + 1)"),
    "bool": ("x > 0.5", "(x > 0.4)"),
}

#: The operators of each dtype that has them in eager mode.
_OPERATORS = {
    "float": ("+", "-", "*", "/", "//", "%", "**"),
    "int": ("+", "-", "*", "//", "%", "**", "|", "&", "^", "<<", ">>"),
    "bool": ("+", "*", "|", "&", "^"),
}

_STATEMENTS = {
    "the rest": "y[i + 1:] {operator}= {by}[i, i + 1:]",
    "the beginning": "y[:i] {operator}= {by}[i, :i]",
    "a part of a row": "z[i, i + 1:] {operator}= {by}[i, i + 1:]",
    "columns": "z[:, i + 1:] {operator}= {by}[:, i + 1:]",
    "rows by one row": "z[i + 1:] {operator}= {by}[i]",
    "behind a test of data": "if x[i, i] > 0.5: y[i + 1:] {operator}= {by}[i, i + 1:]",
}

#: Those that torch writes in ways of their own, which each statement has.
_SOME = [("float", "+"), ("float", "%"), ("int", "//"), ("bool", "|")]

_CASES = [
    *(("the rest", kind, operator) for kind, operators in _OPERATORS.items() for operator in operators),
    *((statement, *case) for statement in _STATEMENTS if statement != "the rest" for case in _SOME),
]


def _model(folder: Path, statement: str, kind: str, operator: str, by: str | None = None) -> torch.nn.Module:
    start, own = _VALUES[kind]
    text = _SOURCE.format(start=f"({start})", statement=statement.format(operator=operator, by=by or own))
    path = folder / "updating.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location("updating", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: torch.nn.Module = module.Updating()
    return model


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("statement", "kind", "operator"), _CASES)
def test_each_operator_of_an_assignment(statement: str, kind: str, operator: str, tmp_path: Path) -> None:
    model = _model(tmp_path, _STATEMENTS[statement], kind, operator)
    onnx = to_onnx(model, (torch.rand(5, 5),), dynamic_shapes=({0: "n", 1: "n"},), rewrite="auto")
    for size in (1, 2, 7):
        x = torch.rand(size, size)
        for got, wanted in zip(onnx.run({"x": x}).values(), model(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(("kind", "operator"), [("int", "**"), ("int", "//"), ("bool", "|")])
def test_what_would_give_another_dtype_is_refused_as_in_eager_mode(kind: str, operator: str, tmp_path: Path) -> None:
    by = "x" if kind == "int" else "(x * 3).long()"
    model = _model(tmp_path, _STATEMENTS["the rest"], kind, operator, by)
    with pytest.raises(RuntimeError, match="can't be cast"):
        model(torch.rand(5, 5))
    with pytest.raises((ExportGuardError, RuntimeError), match="can't be cast"):
        to_onnx(model, (torch.rand(5, 5),), dynamic_shapes=({0: "n", 1: "n"},), rewrite="auto")
