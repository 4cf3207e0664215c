"""Strides are those of the memory: a tensor in another order than that of its elements is refused, not misread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

from exportguard import LoweringError, to_onnx
from exportguard.runners.onnxruntime import OrtSession


class Strided(torch.nn.Module):
    def __init__(self, prepare: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.prepare = prepare

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.prepare(x).as_strided((2, 3), (1, 2))


@pytest.mark.parametrize("prepare", [lambda x: x.t().unflatten(0, (2, 3)), lambda x: x[:, ::2].unflatten(1, (1, -1))])
def test_a_view_of_a_view_is_refused(prepare: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(LoweringError, match=r"(?s)the strides are those of a view.*as_strided\(\(2, 3\)"):
        to_onnx(Strided(prepare), (torch.randn(4, 6),))


@pytest.mark.parametrize("prepare", [lambda x: x.t().reshape(-1), lambda x: x.t().contiguous(), lambda x: x[1:]])
def test_a_copy_and_the_rows_of_a_tensor_are_read(prepare: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model = Strided(lambda x: prepare(x) + 1)
    onnx = to_onnx(model, (torch.randn(4, 6),), dynamic_shapes=({0: Dim.DYNAMIC},))
    session = OrtSession(onnx.to_bytes())
    for rows in (4, 3, 7):
        x = torch.randn(rows, 6)
        assert torch.equal(session.run({session.input_names[0]: x})[0], model(x))


class StridedFrom(torch.nn.Module):
    """Reads at an offset that counts from where the memory begins."""

    def __init__(self, prepare: Callable[[torch.Tensor], torch.Tensor], offset: int | None) -> None:
        super().__init__()
        self.prepare, self.offset = prepare, offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.prepare(x).as_strided((2, 2), (1, 2), self.offset)


@pytest.mark.parametrize(
    "part", [lambda x: x[1:].view(-1), lambda x: x.unbind(0)[1].view(2, 3), lambda x: x.split(2)[1].flatten()]
)
@pytest.mark.parametrize("offset", [0, 7])
def test_an_offset_into_a_part_of_a_tensor_is_refused(
    part: Callable[[torch.Tensor], torch.Tensor], offset: int
) -> None:
    with pytest.raises(LoweringError, match=r"(?s)storage_offset counts from.*clone\(\)"):
        to_onnx(StridedFrom(part, offset).eval(), (torch.randn(4, 6),))


@pytest.mark.parametrize(
    ("part", "offset"),
    [(lambda x: x[1:].view(-1), None), (lambda x: x[1:] * 2, 3), (lambda x: x[:2].view(-1), 3), (lambda x: x, 5)],
)
def test_an_offset_into_memory_of_its_own_is_read(
    part: Callable[[torch.Tensor], torch.Tensor], offset: int | None
) -> None:
    model, x = StridedFrom(part, offset).eval(), torch.randn(4, 6)
    session = OrtSession(to_onnx(model, (x,)).to_bytes())
    assert torch.equal(session.run({session.input_names[0]: x})[0], model(x))
