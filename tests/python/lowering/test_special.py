from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check

FUNCTIONS = {
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfcx": torch.special.erfcx,
    "ndtr": torch.special.ndtr,
    "log_ndtr": torch.special.log_ndtr,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special(name: str, check: Check) -> None:
    wide = torch.linspace(-8, 12, 81) + 0.01
    check(FUNCTIONS[name], [wide], others=[[wide[::2]], [wide[:0]]])


@pytest.mark.parametrize("name", ["erf", "erfc", "ndtr", "log_ndtr", "lgamma", "digamma"])
def test_at_the_ends(name: str, check: Check) -> None:
    check(FUNCTIONS[name], [torch.tensor([float("nan"), float("inf"), 0.0, 1.0, 2.0, 1e10, 1e-10])])


def test_mvlgamma_and_zeta(check: Check) -> None:
    x = torch.linspace(1.6, 9, 20)
    check(lambda x: (torch.mvlgamma(x, 2), torch.special.zeta(x, 1.5), torch.special.zeta(2.0, x)), [x])


def test_of_integers(check: Check) -> None:
    check(lambda x: (torch.erf(x), torch.erfc(x), torch.lgamma(x)), [torch.tensor([1, 2, 5])])


@pytest.mark.parametrize("order", range(5))
def test_polygamma(order: int, check: Check) -> None:
    points = torch.cat([torch.linspace(-3.9, 9, 60), torch.tensor([1e-3, 50.0, 0.5])]).double()
    check(lambda x: torch.polygamma(order, x), [points], others=[[points[:0]]])


def test_incomplete_gamma(check: Check) -> None:
    a = torch.tensor([0.1, 0.5, 1, 2.5, 7, 30, 120]).double().unsqueeze(1)
    x = torch.tensor([0.0, 0.01, 0.5, 1, 3, 8, 29, 140, 400, float("inf")]).double()
    check(lambda a, x: (torch.special.gammainc(a, x), torch.special.gammaincc(a, x)), [a, x], others=[[a[:2], x[:3]]])


def test_polygamma_of_infinity(check: Check) -> None:
    points = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0])
    check(lambda x: torch.polygamma(1, x), [points])
