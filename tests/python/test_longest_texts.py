"""Cuts under a test of sizes: made without the test where the axes are one, and left alone elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from exportguard import to_onnx
from exportguard.patches.transformers.longest_texts import CutAtMost, are_one_size
from exportguard.runners.onnxruntime import OrtSession
from exportguard.source.editing import rewrite
from exportguard.source.errors import RewriteError
from unchecked import WITHOUT_CHECKS

_changed = rewrite(CutAtMost, are_one_size=are_one_size, least=torch.sym_min)


def both_are_cut(ids: torch.Tensor, other: torch.Tensor) -> Any:
    longest = 4
    squares = ids[:, None] + ids[:, :, None]
    if squares.shape[1] > longest:
        squares = squares[:, :longest, :longest]
        ids = ids[:, :longest]
    return squares * ids[:, None] + other.sum()


def another_axis_is_cut(ids: torch.Tensor, other: torch.Tensor) -> Any:
    longest = 4
    if ids.shape[1] > longest:
        other = other[:, :longest]
    return ids.sum() + other


def more_is_done(ids: torch.Tensor, other: torch.Tensor) -> Any:
    longest = 4
    if ids.shape[1] > longest:
        ids = ids[:, :longest]
        other = other + 1
    return ids.sum() + other


class Calls(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, ids: torch.Tensor, other: torch.Tensor) -> Any:
        return self.function(ids, other)


@pytest.mark.parametrize("length", [3, 6])
def test_cuts_of_one_axis_are_right_for_every_length(length: int) -> None:
    shapes = ({1: Dim.DYNAMIC}, {1: Dim.DYNAMIC})
    example = (torch.rand(2, length), torch.rand(2, 5))
    program = torch.export.export(Calls(_changed(both_are_cut)), example, dynamic_shapes=shapes)
    session = OrtSession(to_onnx(program, options=WITHOUT_CHECKS).to_bytes())
    for size in (2, 3, 4, 5, 9):
        values = (torch.rand(2, size), torch.rand(2, 7))
        (got,) = session.run(dict(zip(session.input_names, values, strict=True)))
        torch.testing.assert_close(got, both_are_cut(*values))


@pytest.mark.parametrize("function", [another_axis_is_cut, both_are_cut])
@pytest.mark.parametrize("size", [2, 4, 5])
def test_eager_stays_as_it_is(function: Callable[..., Any], size: int) -> None:
    values = (torch.rand(2, size), torch.rand(2, 7))
    assert torch.equal(_changed(function)(*values), function(*values))


def test_another_axis_is_cut_by_the_test_alone() -> None:
    shapes = ({1: Dim.DYNAMIC}, {1: Dim.DYNAMIC})
    program = torch.export.export(
        Calls(_changed(another_axis_is_cut)), (torch.rand(2, 3), torch.rand(2, 7)), dynamic_shapes=shapes
    )
    values = torch.rand(2, 4), torch.rand(2, 6)
    torch.testing.assert_close(program.module()(*values), another_axis_is_cut(*values))


def test_a_branch_that_does_more_is_left_alone() -> None:
    with pytest.raises(RewriteError, match="does not contain what CutAtMost rewrites"):
        _changed(more_is_done)
