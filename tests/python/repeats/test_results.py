"""Results of fake kernels that are known are not computed again, and are tensors of their own all the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from exportguard import ExportOptions, to_onnx, torch_export_patches
from exportguard.repeats.results import Results


class Norms(nn.Module):
    """No modules that repeat, and calls that do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.norm(x))

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the kernel of each operator was asked, those within other kernels left out."""
    counts: Counter[str] = Counter()
    result = Results.result

    def counting(self: Any, mode: Any, func: Any, args: Any, kwargs: Any, compute: Any) -> Any:
        is_outermost = not self._is_computing

        def counted() -> Any:
            counts[func.overloadpacket.__name__] += is_outermost
            return compute()

        return result(self, mode, func, args, kwargs, counted)

    monkeypatch.setattr(Results, "result", counting)
    return counts


def exported(model: nn.Module, *inputs: torch.Tensor) -> torch.export.ExportedProgram:
    shapes = tuple({0: Dim.DYNAMIC} for _ in inputs)
    with torch_export_patches(), torch.no_grad():
        return torch.export.export(model.eval(), inputs, dynamic_shapes=shapes, strict=False)


def test_alike_calls_ask_their_kernel_once_and_have_values_of_their_own(computed: Counter[str]) -> None:
    program = exported(Norms(), torch.rand(3, 4))
    assert {name: computed[name] for name in ("pow", "mean", "rsqrt")} == {"pow": 1, "mean": 1, "rsqrt": 1}
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "call_function"]
    assert len(values) == 10
    assert len({value.untyped_storage()._cdata for value in values}) == 10
    for at in range(5):
        assert values[at].shape == values[at + 5].shape
        assert values[at].stride() == values[at + 5].stride()
        assert values[at].dtype == values[at + 5].dtype
    x = torch.rand(7, 4)
    torch.testing.assert_close(program.module()(x), Norms()(x))


class OtherLooks(nn.Module):
    """One operator on what looks otherwise: another dtype, other strides, another size, another number."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        looks = [x, x.half(), x.T, x[:, :2], x[None]]
        return [*(torch.relu(look) for look in looks), *(x.add(number) for number in (1, 1.0, 2, True))]


def test_what_looks_otherwise_is_asked_for(computed: Counter[str]) -> None:
    program = exported(OtherLooks(), torch.rand(3, 4))
    assert computed["relu"] == 5
    assert computed["add"] == 4
    for rows in (1, 6):
        x = torch.rand(rows, 4)
        for got, expected in zip(program.module()(x), OtherLooks()(x), strict=True):
            torch.testing.assert_close(got, expected)


class CountsTwice(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = x.nonzero()
        x = x - 1
        return first, x.nonzero()


def test_sizes_that_data_decides_are_new_ones_each_time() -> None:
    program = exported(CountsTwice(), torch.tensor([0.0, 1.0, 2.0]))
    sizes = [node.meta["val"].shape[0].node.expr for node in program.graph.nodes if "nonzero" in node.name]
    assert len({*sizes}) == 2
    onnx = to_onnx(CountsTwice(), (torch.tensor([0.0, 1.0, 2.0]),), dynamic_shapes=({0: "n"},))
    x = torch.tensor([0.0, 1.0, 1.0, 3.0])
    for got, expected in zip(onnx.run({"x": x}).values(), CountsTwice()(x), strict=True):
        torch.testing.assert_close(got, expected)


class WritesInto(nn.Module):
    """Two results that look alike, of which one is written."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        one, other = x * 2, x * 2
        row = one[0]
        one.add_(1)
        return one, other, row


def test_a_write_changes_the_result_that_is_written_alone() -> None:
    for repeats in ("trace once", "verify"):
        options = ExportOptions(repeats=repeats)  # type: ignore[arg-type]
        onnx = to_onnx(WritesInto(), (torch.rand(3, 4),), dynamic_shapes=({0: "n"},), options=options)
        x = torch.rand(5, 4)
        for got, expected in zip(onnx.run({"x": x}).values(), WritesInto()(x), strict=True):
            torch.testing.assert_close(got, expected)
