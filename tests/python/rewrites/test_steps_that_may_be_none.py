"""Loops that have no steps at some sizes: what Python makes of them there, for each kind of range and of use."""

from __future__ import annotations

import itertools
import linecache
import types

import pytest
import torch
from control_flow_program import up

from exportguard import AxisError, to_onnx
from exportguard.axes.bound import Kind

#: Ranges with no numbers at 0 rows, at 1 and at 2, and one that goes down.
SPANS = (
    "range(1, len(x))",
    "range(len(x) - 2)",
    "range(2, x.shape[0])",
    "range(len(x) - 1, 0, -2)",
)

#: What is made of the numbers; the last of each is returned.
USES = {
    "sum of numbers": "out = sum([x[i].sum() * i for i in S]) + x.sum()",
    "sum beside a row": "out = sum([x[i] * i for i in S]) + x.sum(0)",
    "length": "rows = [x[i] for i in S]\nout = len(rows)",
    "length of a list that a loop fills": "rows = []\nfor i in S:\n    rows.append(x[i])\nout = x.sum(0) * len(rows)",
    "mean": "rows = [x[i].sum() for i in S]\nout = sum(rows) / max(len(rows), 1) + x.sum()",
    "test of a list": "rows = [x[i] for i in S]\nout = torch.stack(rows).sum(0) if rows else x.sum(0)",
    "last element": "rows = [x[i] for i in S]\nout = rows[-1] if len(rows) else x.sum(0)",
    "greatest": "out = max((x[i].sum() for i in S), default=torch.tensor(0.0)) + x.sum()",
    "any": "out = x.sum(0) + 1 if any(x[i].sum() > 1 for i in S) else x.sum(0)",
    "rows behind others": "out = torch.stack([x.sum(0), *[x[i] * 2 for i in S]])",
    "carried": "out = x.sum(0)\nfor i in S:\n    out = out * 0.5 + x[i]",
    "last number": "k = -1\nfor k in S:\n    pass\nout = x.sum() * k",
    "steps within steps": "out = x.sum(0)\nfor i in S:\n    for j in range(i + 1, len(x)):\n        out += x[i] * x[j]",
    "size of a new tensor": "rows = [x[i].sum() for i in S]\nout = torch.zeros(len(rows)) + 1",
}

#: What is of another kind without steps, a number in the place of a row, so that no file holds both.
KINDS = {"sum alone": "out = sum([x[i] * i for i in S])"}


def _model(use: str, span: str) -> torch.nn.Module:
    body = "\n".join(f"        {line}" for line in use.replace("in S", f"in {span}").splitlines())
    source = f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n{body}\n        return out\n"
    name = f"/steps/{abs(hash(source))}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = types.ModuleType("steps_that_may_be_none")
    exec(compile(source, name, "exec"), vars(module))
    model: torch.nn.Module = module.Model()
    return model.eval()


def _require_equal(model: torch.nn.Module) -> None:
    onnx = to_onnx(model, (up(4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    none_is_told = any(bound.kind == Kind.NONE for axis in onnx.axes for bound in axis.bounds)
    for rows in range(1 if none_is_told else 0, 8):
        for x in (up(rows), up(rows, -1)):
            try:
                expected = torch.as_tensor(model(x))
            except (IndexError, RuntimeError):
                continue
            (found,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(torch.as_tensor(found), expected, check_dtype=False)


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("use", USES)
def test_each_use_of_steps_that_may_be_none_is_equal(use: str, span: str) -> None:
    _require_equal(_model(USES[use], span))


@pytest.mark.parametrize(("use", "span"), [*itertools.product(KINDS, SPANS)])
def test_what_is_of_another_kind_without_steps_is_refused(use: str, span: str) -> None:
    with pytest.raises(AxisError, match=r"the model returns a (int|tensor of rank 1) at some sizes"):
        _require_equal(_model(KINDS[use], span))


def test_what_is_of_another_kind_at_no_rows_alone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    _require_equal(_model(KINDS["sum alone"], "range(len(x))"))
    assert "rows >= 1: no name asks for a size of 0" in caplog.text
