"""A refusal tells where an operator stands; where nothing is known of that, it has no empty place for it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from exportguard import _core, to_onnx
from exportguard.errors import ExportGuardError

#: A pair of parentheses with nothing in it, and a colon with nothing behind it but the lines below.
EMPTY = re.compile(r"\(\s*\)|: ?(;|$)|\(\s*[,;]")


def operators() -> list[str]:
    names = (name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return sorted(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names)


def refusal(operator: str, dtype: str) -> str:
    """What is said of the operator over one tensor, of which nobody knows where it stands."""
    text = f"graph(%x: {dtype}[2,3]):\n  %y: f32[2,3] = {operator}(%x)\n  return (%y)"
    try:
        _core.lower(_core.Model.parse(text))
    except ExportGuardError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("dtype", ["f32", "c64", "i64"])
def test_no_refusal_of_an_operator_has_an_empty_place(dtype: str) -> None:
    told = {operator: refusal(operator, dtype) for operator in operators()}
    refused = {operator: text for operator, text in told.items() if text}
    assert len(refused) > 1000
    lines = {operator: text.split("without a lowering:\n")[-1].splitlines() for operator, text in refused.items()}
    assert {operator: found for operator, found in lines.items() if any(map(EMPTY.search, found))} == {}


REFUSED = {
    "no rule": ("torch.linalg.eig(x)", torch.randn(3, 3)),
    "a dtype": ("torch.nn.functional.linear(x, torch.ones(2, 3))", torch.ones(4, 3, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_without_a_file_is_refused_without_an_empty_place(name: str) -> None:
    code, x = REFUSED[name]
    scope: dict[str, Any] = {"torch": torch}
    exec(f"class Model(torch.nn.Module):\n    def forward(self, x):\n        return {code}\n", scope)
    with pytest.raises(ExportGuardError) as caught:
        to_onnx(scope["Model"]().eval(), (x,))
    assert not [line for line in str(caught.value).splitlines() if re.search(r"\(\s*\)|\(\s*[,;]| at  ", line)]
