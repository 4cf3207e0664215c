from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional

from exportguard.errors import LoweringError

if TYPE_CHECKING:
    from conftest import Check

OPSETS = (18, 22, 25)

LAYERS = {
    "layer_norm": nn.LayerNorm(4),
    "layer_norm over two axes": nn.LayerNorm((3, 4)),
    "layer_norm without weights": nn.LayerNorm(4, elementwise_affine=False),
    "layer_norm without bias": nn.LayerNorm(4, bias=False),
    "rms_norm": nn.RMSNorm(4),
    "rms_norm without weights": nn.RMSNorm((3, 4), eps=1e-6, elementwise_affine=False),
}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_norms_of_the_last_axes(layer: nn.Module, opset: int, check: Check) -> None:
    check(layer, [torch.randn(2, 3, 4)], others=[[torch.randn(1, 3, 4)], [torch.randn(0, 3, 4)]], opset=opset)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("layer", [nn.LayerNorm(4), nn.RMSNorm(4)], ids=("layer_norm", "rms_norm"))
def test_norms_of_other_floats(layer: nn.Module, dtype: torch.dtype, opset: int, check: Check) -> None:
    large = torch.randn(2, 3, 4, dtype=dtype) * 200  # the squares do not fit float16
    check(layer.to(dtype), [large], opset=opset)


def test_native_layer_norm_gives_its_statistics(check: Check) -> None:
    check(
        lambda x, w, b: torch.native_layer_norm(x, (4,), w, b, 1e-5),
        [torch.randn(2, 3, 4), torch.rand(4), torch.rand(4)],
    )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 3), (2, 6, 3, 4)], ids=str)
@pytest.mark.parametrize("affine", [True, False], ids=("weights", "no weights"))
def test_group_norm(shape: tuple[int, ...], affine: bool, opset: int, check: Check) -> None:
    check(nn.GroupNorm(2, 6, affine=affine), [torch.randn(shape)], opset=opset)


def test_group_norm_over_dynamic_images(check: Check) -> None:
    check(nn.GroupNorm(2, 6), [torch.randn(2, 6, 3, 4)], others=[[torch.randn(1, 6, 1, 5)]])


def test_group_norm_in_float64(check: Check) -> None:
    check(nn.GroupNorm(2, 6).double(), [torch.randn(2, 6, 3, dtype=torch.float64)])


def test_native_group_norm_gives_its_statistics(check: Check) -> None:
    check(
        lambda x, w, b: torch.native_group_norm(x, w, b, 2, 6, 12, 3, 1e-5),
        [torch.randn(2, 6, 3, 4), torch.rand(6), torch.rand(6)],
    )


INSTANCE_NORMS = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}


@pytest.mark.parametrize("spatial", INSTANCE_NORMS)
def test_instance_norm(spatial: int, check: Check) -> None:
    check(INSTANCE_NORMS[spatial](3, affine=True), [torch.randn(2, 3, *[4] * spatial)])


@pytest.mark.parametrize("spatial", INSTANCE_NORMS)
def test_instance_norm_with_running_statistics(spatial: int, check: Check) -> None:
    layer = INSTANCE_NORMS[spatial](3, track_running_stats=True)
    x = torch.randn(2, 3, *[4] * spatial)
    layer(x)
    check(layer, [x])


def test_cosine_similarity(check: Check) -> None:
    check(functional.cosine_similarity, [torch.randn(2, 3, 4), torch.randn(2, 3, 4)])


@pytest.mark.parametrize("axis", [0, -1])
def test_cosine_similarity_of_tensors_that_broadcast(axis: int, check: Check) -> None:
    check(lambda a, b: functional.cosine_similarity(a, b, dim=axis), [torch.randn(1, 4), torch.randn(3, 4)])


def test_normalize_and_local_response_norm(check: Check) -> None:
    check(lambda x: (functional.normalize(x, dim=1), functional.local_response_norm(x, 3)), [torch.randn(2, 5, 4, 4)])


@pytest.mark.parametrize("order", [0.5, 1, 2, float("inf")], ids=str)
def test_renorm(order: float, check: Check) -> None:
    check(lambda x: torch.renorm(x, order, 1, 1.0), [torch.randn(3, 4, 2)])


def test_weight_norm(check: Check) -> None:
    check(torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), [torch.randn(2, 3)])
    check(torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 2), dim=2), [torch.randn(2, 3, 5)])


def test_a_norm_over_no_axis_is_refused(check: Check) -> None:
    """`rms_norm` takes none, and the operator that it is made of gives something else."""
    with pytest.raises(LoweringError, match="must have an axis"):
        check(lambda x, w: torch.ops.aten._fused_rms_norm(x, [], w, 0.5)[0], [torch.ones(2, 3), torch.tensor(2.0)])


@pytest.mark.parametrize("p", [0, 1, 2, 3])
def test_a_vector_has_norms_over_no_axis(p: int, check: Check) -> None:
    """A reduction over an empty list of axes goes over all of them."""
    check(
        lambda v, g: (torch.norm_except_dim(v, p, 0), torch.norm_except_dim(v, p, -1), torch._weight_norm(v, g, 0)),
        [torch.tensor([3.0, -4, 0.5]), torch.tensor([1.0, 2, 3])],
    )


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 2])
def test_norms_of_all_axes_but_one_that_is_counted_from_the_end(axis: int, check: Check) -> None:
    check(lambda v: torch.norm_except_dim(v, 2, axis), [torch.arange(24.0).reshape(2, 3, 4)])
