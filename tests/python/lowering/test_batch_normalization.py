from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from called import CalledWithAll
from exportguard import to_onnx

if TYPE_CHECKING:
    from conftest import Check

LAYERS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def trained(layer: nn.Module, *shape: int) -> nn.Module:
    layer(torch.randn(shape) * 2 + 1)
    return layer


@pytest.mark.parametrize("spatial", LAYERS)
def test_batch_norm_with_running_statistics(spatial: int, check: Check) -> None:
    rest = [4] * (spatial - 1)
    layer = trained(LAYERS[spatial](3), 2, 3, 4, *rest)
    check(layer, [torch.randn(2, 3, 4, *rest)], others=[[torch.randn(1, 3, 7, *rest)]])


@pytest.mark.parametrize("spatial", LAYERS)
def test_batch_norm_with_statistics_of_the_batch(spatial: int, check: Check) -> None:
    check(LAYERS[spatial](3, track_running_stats=False), [torch.randn(2, 3, *[4] * spatial)])


def test_batch_norm_of_vectors_without_weights(check: Check) -> None:
    check(trained(nn.BatchNorm1d(3, affine=False), 4, 3), [torch.randn(4, 3)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_batch_norm_of_other_floats(dtype: torch.dtype, check: Check) -> None:
    check(nn.BatchNorm2d(3).to(dtype), [torch.randn(2, 3, 4, 4, dtype=dtype)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_batch_norm_in_training_gives_the_new_running_statistics(dtype: torch.dtype, check: Check) -> None:
    weight, bias, mean, variance = (torch.rand(3) for _ in range(4))

    def trained(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moved, spread = mean.clone(), variance.clone()
        y = nn.functional.batch_norm(x, moved, spread, weight, bias, training=True)
        return y, moved, spread

    check(trained, [torch.randn(2, 3, 4).to(dtype)], others=[[torch.randn(5, 3, 6).to(dtype)]])


def test_native_batch_norm_moves_the_running_statistics(check: Check) -> None:
    native = torch.ops.aten._native_batch_norm_legit_functional.default
    check(
        lambda x, w, b, m, v: native(x, w, b, m, v, True, 0.1, 1e-5),
        [torch.randn(2, 3, 4), torch.rand(3), torch.rand(3), torch.rand(3), torch.rand(3)],
    )


@pytest.mark.parametrize("training", [True, False])
def test_a_single_axis_that_is_empty_stays_as_it_is(training: bool) -> None:
    """What `batch_norm` gives back, and what the native operator of its program would refuse."""

    def function(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return nn.functional.batch_norm(x, mean.clone(), variance.clone(), training=training)

    given = torch.zeros(0), torch.zeros(0), torch.ones(0)
    model = to_onnx(torch.export.export(CalledWithAll(function), given))
    (got,) = model.run({value.name: x for value, x in zip(model.inputs, given, strict=True)}).values()
    assert got.shape == function(*given).shape == (0,)
