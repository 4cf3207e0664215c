"""Features that are split into pictures and joined again stay one tensor, with its rows whatever their number is."""

from __future__ import annotations

import ast

import pytest
import torch

from called import CalledWithTwo
from exportguard import to_onnx
from exportguard.patches.transformers.picture_parts import Joined, parts_of, squeezed_to_split


def test_what_is_squeezed_to_be_split_is_named() -> None:
    tree = Joined().visit(ast.parse("out.parts = torch.split(out.features.squeeze(0), sizes)"))
    assert ast.unparse(tree) == "out.parts = parts_of(squeezed_to_split(out.features), sizes)"
    tree = Joined().visit(ast.parse("parts = torch.split(features.squeeze(1), sizes, dim=0)"))
    assert ast.unparse(tree) == "parts = parts_of(features.squeeze(1), sizes, dim=0)"


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (1, 1), (1, 2, 3), (2, 2, 3), (1,), ()], ids=str)
def test_it_is_squeezed_in_eager(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    assert torch.equal(squeezed_to_split(x), x.squeeze(0))


def test_rows_that_data_count_stay_rows_in_a_file() -> None:
    def joined(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return torch.cat([*parts_of(squeezed_to_split(x[chosen]), chosen.sum()[None])]) * 2

    example = (torch.randn(5, 3), torch.tensor([True, False, True, True, False]))
    onnx = to_onnx(CalledWithTwo(joined).eval(), example, dynamic_shapes=({0: "rows"}, {0: "rows"}))
    for chosen in ([True, True, False], [False, False, True], [False, False]):
        x, mask = torch.randn(len(chosen), 3), torch.tensor(chosen)
        (found,) = onnx.run({"x": x, "y": mask}).values()
        torch.testing.assert_close(found, x[mask] * 2)
