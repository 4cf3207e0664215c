"""Products of three operands, where a package is asked for their order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from called import Called
from exportguard import to_onnx


def _contract_path(equation: str, *operands: torch.Tensor, optimize: str) -> tuple[Sequence[tuple[int, ...]], str]:
    """As opt_einsum does: every size is a number."""
    sizes = [int(size) for operand in operands for size in operand.shape]
    return [(0, 1)] * (len(operands) - 1), f"{equation} of {sizes}, {optimize}"


def _weighted(x: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bn,nk,bk->bk", x, torch.ones(x.shape[1], 4) / 2, x[:, :1].expand(-1, 4))


def keeps_the_axes_of_three_operands() -> None:
    backend: Any = sys.modules["torch.backends.opt_einsum"]
    there = {"_opt_einsum": SimpleNamespace(contract_path=_contract_path), "enabled": True, "strategy": "auto"}
    with mock.patch.multiple(backend.m, is_available=lambda: True, **there):
        model = to_onnx(Called(_weighted).eval(), (torch.randn(3, 5),), dynamic_shapes=({0: "b", 1: "n"},))
        for sizes in ((3, 5), (1, 2), (4, 9), (2, 1)):
            x = torch.randn(sizes)
            (got,) = model.run({"x": x}).values()
            torch.testing.assert_close(got, _weighted(x), rtol=1e-5, atol=1e-6)


PROGRAMS = {"orders of einsum": keeps_the_axes_of_three_operands}
