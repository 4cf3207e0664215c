"""An export leaves nothing in its inputs: torch marks their dynamic axes, also where it stops behind that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from called import Called
from exportguard import ExportGuardError, to_onnx

MODELS: dict[str, Callable[[torch.Tensor], Any]] = {
    "exported": lambda x: x * 2,
    "stopped": lambda x: x * len({*x.shape}),
    "refused": lambda x: x[x[:, 0] > 0].squeeze(),
    "of a fixed axis": lambda x: x * torch.ones(3, 1),
}


@pytest.mark.parametrize("axis", ["rows", Dim("rows"), Dim.AUTO, Dim.DYNAMIC], ids=["name", "dim", "auto", "dynamic"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_inputs_hold_what_they_held(model: Callable[[torch.Tensor], Any], axis: Any) -> None:
    x = torch.randn(3, 4)
    x.mine = "kept"  # type: ignore[attr-defined]
    torch._dynamo.mark_static(x, 1)
    before = dict(vars(x))
    try:
        to_onnx(Called(model).eval(), (x,), dynamic_shapes=({0: axis},))
    except ExportGuardError:
        assert model is not MODELS["exported"]
    assert vars(x) == before
