"""What a refusal says of torch's own words: no places in memory, and who asked."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from exportguard import ExportGuardError, to_onnx
from exportguard.export_errors import without_addresses

#: Operators that need a number of data for how many results they have, or for how long these are.
ASKING: dict[str, Callable[[Tensor], Tensor]] = {
    "split": lambda r: r.split(2)[0],
    "chunk": lambda r: r.chunk(2)[0],
    "unbind": lambda r: r.unbind(0)[0],
}

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|<class 'torch\.Sym")


class OfRows(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.function(x[mask])


@pytest.mark.parametrize("name", ASKING)
def test_an_operator_that_asks_is_told_apart_from_python_code(name: str) -> None:
    x = torch.randn(9, 4)
    with pytest.raises(ExportGuardError, match="an operator asks here for a size that tensor data decide") as caught:
        to_onnx(OfRows(ASKING[name]).eval(), (x, x[:, 0] > -1), dynamic_shapes=({0: "n"}, {0: "n"}), rewrite="auto")
    assert _ADDRESS.search(str(caught.value)) is None


def test_python_code_that_asks_is_told_as_such() -> None:
    class Compares(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + (1 if (int(x.sum()), 1) < (2, 3) else 2)

    with pytest.raises(ExportGuardError, match="Python itself decides on tensor data here"):
        to_onnx(Compares().eval(), (torch.ones(3),), rewrite="auto")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "u3 (<class 'torch.SymInt'>, 139846)is not tracked with proxy for "
            "<torch.fx.experimental.proxy_tensor._ModuleStackTracer object at 0x7f12abcd>",
            "u3 is not tracked with proxy for torch.fx.experimental.proxy_tensor._ModuleStackTracer",
        ),
        ("<function f at 0x7f12abcd> is not safe", "<function f> is not safe"),
        ("s0 + u1 (<class 'torch.SymFloat'>, 7) is not tracked", "s0 + u1 is not tracked"),
        ("Found <class 'set'> in output", "Found <class 'set'> in output"),
    ],
)
def test_places_in_memory_are_left_out(said: str, told: str) -> None:
    assert without_addresses(said) == told
