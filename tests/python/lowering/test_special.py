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
