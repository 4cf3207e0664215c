from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

from exportguard.errors import LoweringError

if TYPE_CHECKING:
    from conftest import Check

REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


def scores(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def probabilities(*shape: int) -> torch.Tensor:
    return torch.rand(shape)


def signs(*shape: int) -> torch.Tensor:
    return torch.where(torch.rand(shape) > 0.5, 1.0, -1.0)


CASES: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "mse": (functional.mse_loss, [scores(2, 3), scores(2, 3)]),
    "l1": (functional.l1_loss, [scores(2, 3), scores(2, 3)]),
    "smooth l1": (functional.smooth_l1_loss, [scores(2, 3), scores(2, 3)]),
    "smooth l1 of beta 0": (
        lambda x, y, **k: functional.smooth_l1_loss(x, y, beta=0.0, **k),
        [scores(2, 3), scores(2, 3)],
    ),
    "huber": (lambda x, y, **k: functional.huber_loss(x, y, delta=0.5, **k), [scores(2, 3), scores(2, 3)]),
    "binary cross entropy at 0 and 1": (
        functional.binary_cross_entropy,
        [torch.tensor([0.0, 1, 0.5, 0.3]), torch.tensor([1.0, 0, 0, 0.7])],
    ),
    "weighted binary cross entropy": (
        functional.binary_cross_entropy,
        [probabilities(2, 3), probabilities(2, 3), probabilities(3)],
    ),
    "binary cross entropy of large logits": (
        functional.binary_cross_entropy_with_logits,
        [scores(2, 3) * 50, probabilities(2, 3)],
    ),
    "binary cross entropy with two weights": (
        lambda x, y, w, p, **k: functional.binary_cross_entropy_with_logits(x, y, w, pos_weight=p, **k),
        [scores(2, 3), probabilities(2, 3), probabilities(3), probabilities(3)],
    ),
    "kl with zeros": (functional.kl_div, [scores(2, 3), torch.tensor([[0.0, 0.5, 0.5], [1, 0, 0]])]),
    "kl of logarithms": (lambda x, y, **k: functional.kl_div(x, y, log_target=True, **k), [scores(2, 3), scores(2, 3)]),
    "poisson": (functional.poisson_nll_loss, [scores(2, 3), probabilities(2, 3) * 5]),
    "poisson in full": (
        lambda x, y, **k: functional.poisson_nll_loss(x, y, log_input=False, full=True, **k),
        [probabilities(2, 3), probabilities(2, 3) * 5],
    ),
    "soft margin": (functional.soft_margin_loss, [scores(2, 3), signs(2, 3)]),
    "hinge embedding": (functional.hinge_embedding_loss, [scores(2, 3), signs(2, 3)]),
    "margin ranking": (
        lambda a, b, y, **k: functional.margin_ranking_loss(a, b, y, margin=0.3, **k),
        [scores(2, 3), scores(2, 3), signs(2, 3)],
    ),
    "triplet margin": (
        lambda a, b, c, **k: functional.triplet_margin_loss(a, b, c, swap=True, **k),
        [scores(2, 3), scores(2, 3), scores(2, 3)],
    ),
    "cosine embedding": (
        lambda a, b, y, **k: functional.cosine_embedding_loss(a, b, y, margin=0.1, **k),
        [scores(2, 3), scores(2, 3), torch.tensor([1, -1])],
    ),
}


@REDUCTIONS
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_losses(case: tuple[Any, list[torch.Tensor]], reduction: str, check: Check) -> None:
    function, inputs = case
    check(lambda *tensors: function(*tensors, reduction=reduction), inputs)


def test_pairwise_distance(check: Check) -> None:
    check(
        lambda x, y: (functional.pairwise_distance(x, y), functional.pairwise_distance(x, y, 1, keepdim=True)),
        [scores(2, 3), scores(2, 3)],
    )


CLASSES = torch.tensor([0, -100, 2, 1])
CLASSIFICATION: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "nll": (functional.nll_loss, [scores(4, 3), CLASSES]),
    "nll of images": (functional.nll_loss, [scores(2, 3, 4), torch.tensor([[0, 1, 2, 2], [1, 0, 0, 1]])]),
    "nll of one sample": (functional.nll_loss, [scores(3), torch.tensor(1)]),
    "nll with weights": (
        lambda x, y, w, **k: functional.nll_loss(x, y, w, ignore_index=1, **k),
        [scores(4, 3), torch.tensor([0, 1, 2, 1]), probabilities(3)],
    ),
    "cross entropy": (functional.cross_entropy, [scores(4, 3), CLASSES]),
    "cross entropy of one sample": (functional.cross_entropy, [scores(3), torch.tensor(2)]),
    "smoothed cross entropy": (
        lambda x, y, **k: functional.cross_entropy(x, y, label_smoothing=0.1, **k),
        [scores(4, 3), CLASSES],
    ),
    "smoothed and weighted cross entropy": (
        lambda x, y, w, **k: functional.cross_entropy(x, y, w, label_smoothing=0.1, **k),
        [scores(4, 3, 2), torch.tensor([[0, 1], [-100, 2], [2, 2], [1, 0]]), probabilities(3)],
    ),
    "cross entropy with probabilities": (
        lambda x, y, w, **k: functional.cross_entropy(x, y, w, label_smoothing=0.1, **k),
        [scores(4, 3, 2), torch.softmax(scores(4, 3, 2), 1), probabilities(3)],
    ),
    "multi margin": (functional.multi_margin_loss, [scores(4, 3), torch.tensor([0, 1, 2, 1])]),
    "squared multi margin with weights": (
        lambda x, y, w, **k: functional.multi_margin_loss(x, y, 2, 0.5, w, **k),
        [scores(4, 3), torch.tensor([0, 1, 2, 1]), probabilities(3)],
    ),
    "multi margin of one sample": (functional.multi_margin_loss, [scores(3), torch.tensor(1)]),
    "multi label margin": (
        functional.multilabel_margin_loss,
        [scores(2, 4), torch.tensor([[3, 0, -1, 1], [0, 1, 2, 3]])],
    ),
    "multi label margin of one sample": (functional.multilabel_margin_loss, [scores(4), torch.tensor([3, 0, -1, 1])]),
    "multi label soft margin": (
        functional.multilabel_soft_margin_loss,
        [scores(2, 3), torch.tensor([[1.0, 0, 1], [0, 0, 1]])],
    ),
}


@REDUCTIONS
@pytest.mark.parametrize("case", CLASSIFICATION.values(), ids=CLASSIFICATION)
def test_classification_losses(case: tuple[Any, list[torch.Tensor]], reduction: str, check: Check) -> None:
    function, inputs = case
    check(lambda *tensors: function(*tensors, reduction=reduction), inputs)


def test_cross_entropy_over_dynamic_batches(check: Check) -> None:
    check(
        lambda x, y: functional.cross_entropy(x.view(-1, 5), y.view(-1)),
        [scores(2, 3, 5), torch.tensor([[0, 1, 2], [3, 4, 0]])],
        others=[[scores(1, 4, 5), torch.tensor([[4, 3, 2, 1]])]],
    )


def test_cross_entropy_in_float16(check: Check) -> None:
    check(functional.cross_entropy, [scores(4, 3).half(), CLASSES])


@REDUCTIONS
def test_cross_entropy_of_a_linear_layer(reduction: str, check: Check) -> None:
    check(
        lambda x, w, y: functional.linear_cross_entropy(x, w, y, reduction=reduction),
        [scores(4, 5), scores(3, 5), torch.tensor([0, 1, 2, 1])],
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32], ids=str)
def test_whole_numbers_wrap_around_before_they_are_distances(dtype: torch.dtype, check: Check) -> None:
    x, y, z = (torch.randint(0, torch.iinfo(dtype).max, (3, 4)).to(dtype) for _ in range(3))
    signs = torch.tensor([1, -1, 1])
    check(
        lambda x, y, z, s: (
            functional.pairwise_distance(x, y),
            functional.triplet_margin_loss(x, y, z, swap=True),
            functional.cosine_embedding_loss(x, y, s, reduction="none"),
        ),
        [x, y, z, signs],
    )


@pytest.mark.parametrize("loss", [functional.multi_margin_loss, functional.multilabel_margin_loss])
def test_a_margin_of_nan_costs_nothing(loss: Any, check: Check) -> None:
    x = torch.tensor([[0.5, float("nan"), 2.0], [float("inf"), 0.1, float("inf")], [1.0, 2.0, 3.0]])
    target = torch.tensor([0, 1, 2]) if loss is functional.multi_margin_loss else torch.tensor([[0, -1, 1]] * 3)
    check(lambda x, target: loss(x, target, reduction="none"), [x, target])


@pytest.mark.parametrize("target", [torch.float32, torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_a_target_between_the_signs_is_of_neither(dtype: torch.dtype, target: torch.dtype, check: Check) -> None:
    """Fractions of a target beside whole numbers are not cut to one of the signs."""
    x = torch.tensor([3, -2, 0, 5, 1, 4]).to(dtype)
    y = torch.tensor([1.0, -1.0, 1.7, -1.3, 0.2, -0.9]).to(target)
    check(lambda x, y: functional.hinge_embedding_loss(x, y, 1.5, reduction="none"), [x, y])


@pytest.mark.parametrize("loss", [functional.huber_loss, functional.soft_margin_loss])
def test_a_loss_that_a_trace_gives_another_dtype_is_refused(loss: Any, check: Check) -> None:
    """torch 2.13: the kernels write into a tensor like the input, their shape functions promote."""
    check(loss, [scores(3, 4).double(), scores(3, 4)])
    with pytest.raises(LoweringError, match="in the dtype of the input"):
        check(loss, [scores(3, 4), scores(3, 4).double()])
