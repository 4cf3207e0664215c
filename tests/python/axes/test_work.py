"""How much a program computes at other sizes, and sizes of less work that show the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim, export
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from exportguard import to_onnx
from exportguard.axes.work import Work

MODULES: dict[str, Callable[[], torch.nn.Module]] = {
    "linear": lambda: torch.nn.Linear(12, 5),
    "products": lambda: Products(),
    "convolutions": lambda: torch.nn.Sequential(
        torch.nn.Conv1d(12, 6, 3, padding=1, groups=3), torch.nn.ConvTranspose1d(6, 4, 4, stride=2, groups=2)
    ),
    "attention": lambda: Attention(),
}


class Products(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(x.new_ones(1), x @ x.transpose(1, 2), x)


class Attention(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (3, 4)).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize("name", MODULES)
def test_products_are_those_that_torch_counts(name: str) -> None:
    module, channels = MODULES[name]().eval(), 12
    axes = {0: Dim.AUTO} if name == "convolutions" else {0: Dim.AUTO, 1: Dim.AUTO}
    program = export(module, (torch.randn(2, channels, 12),), dynamic_shapes=(axes,))
    (given,) = (node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs)
    symbols = {axis: given.meta["val"].shape[axis].node.expr for axis in axes}
    for sizes in ((2, 12), (3, 7), (5, 20)):
        x = torch.randn(*(sizes[axis] if axis in axes else channels for axis in range(2)), 12)
        # Its other kernels count nothing.
        with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
            module(x)
        products = Work(program.graph.nodes).products({symbol: sizes[axis] for axis, symbol in symbols.items()})
        assert 2 * products == counted.get_total_flops() > 0


SEEN: list[int] = []


class LargeBatches(torch.nn.Module):
    """Another way for batches of 64 and more, as upsampling in diffusers has it; most of the work is between pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting():
            SEEN.append(x.numel() if x.shape[0] >= 64 else 0)
        x = x.contiguous() if x.shape[0] >= 64 else x
        pixels = self.conv(x).flatten(2)
        return pixels @ (pixels.transpose(1, 2) @ pixels).softmax(-1)


def test_what_a_large_size_shows_is_shown_beside_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exportguard.axes.trial.AFFORDABLE_PRODUCTS", 2**26)
    SEEN.clear()
    axes = ({0: "batch", 2: "height", 3: "width"},)
    onnx = to_onnx(LargeBatches().eval(), (torch.randn(2, 8, 16, 16),), dynamic_shapes=axes)
    assert all(axis.kept for axis in onnx.axes)
    assert 0 < max(SEEN) < 64 * 8 * 16 * 16


def test_large_pictures_are_run_with_their_data_where_that_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """To run a model without its data takes as long as its operators are many, whatever they compute."""

    def without_data(*_: object) -> bool:
        raise AssertionError("it is little work")

    monkeypatch.setattr("exportguard.axes.model_run.ModelRun.refuses_without_data", without_data)
    SEEN.clear()
    axes = ({0: "batch", 2: "height", 3: "width"},)
    onnx = to_onnx(LargeBatches().eval(), (torch.randn(2, 8, 16, 16),), dynamic_shapes=axes)
    assert all(axis.kept for axis in onnx.axes)
    assert max(SEEN) > 0
