from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from tensors import floats

if TYPE_CHECKING:
    from conftest import Check

NAN = float("nan")
MANY = torch.tensor([0.0, 0.3, 0.5, 1.0])
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")
OPTIONS: dict[str, dict[str, Any]] = {
    "along an axis": {"q": MANY, "dim": 1},
    "kept": {"q": MANY, "dim": 0, "keepdim": True},
    "one": {"q": 0.4, "dim": -1},
    "one, kept": {"q": 0.4, "dim": 1, "keepdim": True},
    "of all": {"q": MANY},
    "of all, kept": {"q": MANY, "keepdim": True},
    **{f"interpolated, {name}": {"q": MANY, "dim": 1, "interpolation": name} for name in INTERPOLATIONS},
}


def with_nan(*sizes: int) -> torch.Tensor:
    x = floats(*sizes)
    x[0, 0] = NAN
    return x


@pytest.mark.parametrize("name", OPTIONS)
def test_of_any_number_of_elements(name: str, check: Check) -> None:
    options = OPTIONS[name]
    others = [[floats(4, 2)], [with_nan(3, 7)], [floats(1, 1)], [torch.full((2, 3), NAN)]]
    check(lambda x: torch.quantile(x, **options), [floats(3, 5)], others=others)
    check(lambda x: torch.nanquantile(x, **options), [floats(3, 5)], others=others)


def test_float64(check: Check) -> None:
    check(lambda x: torch.quantile(x, MANY.double(), dim=0), [floats(5, 2).double()], others=[[floats(4, 3).double()]])
