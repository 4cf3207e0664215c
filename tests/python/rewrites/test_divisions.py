"""Divisions of sizes by `torch.div`, which are tensors in eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from control_flow_program import Programs, check, up
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from exportguard import torch_export_patches
from exportguard.rewrites import runtime

PROGRAMS = Programs()
EVEN = ((up(4),), (up(6),), (up(8),))


@PROGRAMS.add(EVEN)
class HalvesByTruncation(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        half = torch.div(x.shape[0], 2, rounding_mode="trunc")
        return x.view(half, 2, 4) + half


@PROGRAMS.add(EVEN)
class HalvesRoundedDown(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.view(torch.div(x.shape[0], 2, rounding_mode="floor"), 2, 4)


@PROGRAMS.add(EVEN)
class OfTensors(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.div(x, 0.3, rounding_mode="floor") if x.sum() > 0 else x


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_division_is_what_it_is_in_eager_mode(program: type[torch.nn.Module]) -> None:
    check(program)


class Chunks(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return LongformerSelfAttention._chunk(x.transpose(0, 1), 2)


def test_it_is_found_where_the_export_stops() -> None:
    axes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    with torch_export_patches(rewrite="auto"):
        program = torch.export.export(Chunks(), (torch.randn(12, 2, 3),), dynamic_shapes=axes, strict=False)
    for shape in [(12, 2, 3), (20, 3, 3), (8, 2, 3)]:
        x = torch.randn(shape)
        assert torch.equal(program.module()(x), Chunks()(x))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_numbers_and_tensors_are_left_to_torch(mode: str) -> None:
    assert torch.equal(runtime.div(-7, 2, rounding_mode=mode), torch.div(-7, 2, rounding_mode=mode))
    x = torch.tensor([-7, 7])
    assert torch.equal(runtime.div(x, 2, rounding_mode=mode), torch.div(x, 2, rounding_mode=mode))
