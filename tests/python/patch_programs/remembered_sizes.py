"""Sizes that are compared again and again."""

from __future__ import annotations

from unittest.mock import patch

from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from exportguard import torch_export_patches


def compared_once() -> None:
    env, create = ShapeEnv(), ShapeEnv._create_fx_call_function
    symbol = env.create_symbol(3, ConstantSource("size"), DimDynamic.DYNAMIC)
    size = env.create_symintnode(symbol, hint=3, source=ConstantSource("size"))
    with (
        torch_export_patches(),
        patch.object(ShapeEnv, "_create_fx_call_function", autospec=True, side_effect=create) as worked_out,
    ):
        answers = [size >= 3 for _ in range(5)]
    assert len({str(answer.node.expr) for answer in answers}) == 1
    assert len({id(answer.node) for answer in answers}) == 5
    worked_out.assert_called_once()


PROGRAMS = {"comparisons of sizes": compared_once}
