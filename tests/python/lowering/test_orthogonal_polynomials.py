from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check

NAMES = [
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]


@pytest.mark.parametrize("name", NAMES)
def test_polynomials_of_every_degree(name: str, check: Check) -> None:
    function = getattr(torch.special, name)
    x = torch.linspace(0.05, 0.95, 7, dtype=torch.float64).unsqueeze(1)
    degrees = torch.tensor([0.0, 1, 2, 3, 7, -1])
    check(function, [x, degrees], others=[[x[:2], degrees[:3]], [x[:1], degrees[:1]]])


def test_a_number_as_the_degree(check: Check) -> None:
    check(lambda x: torch.special.legendre_polynomial_p(x, 4), [torch.linspace(-1, 1, 9)])
