from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats

if TYPE_CHECKING:
    from conftest import Check


def symmetric(*sizes: int) -> torch.Tensor:
    x = floats(*sizes)
    return x + x.mT


def rebuilt(x: torch.Tensor, full: bool) -> tuple[torch.Tensor, ...]:
    """What does not depend on the signs of the vectors."""
    u, s, vh = torch.linalg.svd(x, full_matrices=full)
    k = s.shape[-1]
    return u[..., :k] * s.unsqueeze(-2) @ vh[..., :k, :], s, u @ u.mT, u.mT @ u, vh @ vh.mT


def diagonalized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, vectors = torch.linalg.eigh(x)
    return values, vectors * values.unsqueeze(-2) @ vectors.mT, vectors.mT @ vectors


pinverse = torch.ops.aten.linalg_pinv.atol_rtol_tensor
RANK_ONE = torch.ones(4, 3)
CASES: dict[str, Case] = {
    "eigh": (diagonalized, [symmetric(2, 4, 4)], [[symmetric(3, 5, 5)], [symmetric(1, 2, 2)]]),
    "eigh of one half": (lambda x: torch.linalg.eigvalsh(x, UPLO="U"), [floats(4, 4)], []),
    "eigh of a diagonal": (diagonalized, [torch.diag(torch.tensor([3.0, -1, 2]))], []),
    "svd of tall matrices": (lambda x: rebuilt(x, False), [floats(2, 5, 3)], [[floats(1, 4, 2)]]),
    "svd of wide matrices": (lambda x: rebuilt(x, False), [floats(3, 5)], []),
    "full svd": (lambda x: rebuilt(x, True), [floats(5, 3)], []),
    "full svd of wide matrices": (lambda x: rebuilt(x, True), [floats(2, 3, 5)], []),
    "svd of rank one": (lambda x: rebuilt(x, True)[:2], [RANK_ONE], []),
    "svdvals": (torch.linalg.svdvals, [floats(3, 4)], []),
    "svd of an empty matrix": (lambda x: rebuilt(x, False), [floats(0, 3)], []),
    "pinv": (pinverse, [floats(2, 4, 3)], [[floats(1, 2, 6)]]),
    "pinv of rank one": (pinverse, [RANK_ONE], []),
    "pinv with tolerances": (
        lambda x: pinverse(x, atol=torch.tensor(0.5)),
        [torch.diag(torch.tensor([4.0, 0.1, 1]))],
        [],
    ),
    "pinv of what is greater than a share": (
        lambda x: (torch.linalg.pinv(x, rtol=0.3), torch.linalg.pinv(x, atol=0.5), torch.linalg.pinv(x, 0.3)),
        [torch.diag(torch.tensor([4.0, 0.1, 1]))],
        [],
    ),
    "pinv of what is greater than shares of a tensor": (
        lambda x, share: (torch.linalg.pinv(x, rtol=share), torch.linalg.pinv(x, share)),
        [floats(2, 4, 3), torch.tensor([0.5, 0.01])],
        [[floats(1, 2, 6), torch.tensor([0.9])]],
    ),
    "hermitian pinv of what is greater than a share": (
        lambda x: (torch.linalg.pinv(x, rtol=0.4, hermitian=True), torch.linalg.pinv(x, 0.4, True)),
        [symmetric(4, 4)],
        [],
    ),
    "pinverse": (lambda x: (torch.pinverse(x), torch.pinverse(x, 0.5)), [floats(4, 3)], [[floats(2, 6)]]),
    "hermitian pinv": (lambda x: pinverse(x, hermitian=True), [symmetric(4, 4)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("sizes", [(2,), (2, 2), ()])
def test_a_pseudo_inverse_for_each_bound(sizes: tuple[int, ...], check: Check) -> None:
    check(lambda x, bound: torch.linalg.pinv(x, rtol=bound), [floats(3, 2), floats(*sizes).abs() / 9])
