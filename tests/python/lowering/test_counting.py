from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, indices

if TYPE_CHECKING:
    from conftest import Check

CASES: dict[str, Case] = {
    "bincount": (lambda x: (x.bincount(), x.bincount(minlength=8)), [indices(1, 3, 1)], [[indices(9, 0, 0)]]),
    "bincount of nothing": (lambda x: x.bincount(minlength=2), [indices()], []),
    "bincount of weights": (
        lambda x, w: (x.bincount(w), x.bincount(w.double())),
        [indices(1, 3, 1), floats(3)],
        [],
    ),
    "histc": (lambda x: (x.histc(5), x.histc(4, -1, 1), x.histc(3, 1, 1)), [floats(20)], []),
    "histc of equal numbers": (lambda x: x.histc(5), [torch.tensor([2.0, 2.0])], []),
    "histogram": (lambda x: torch.histogram(x, 5), [floats(20)], []),
    "histogram of one number": (lambda x: torch.histogram(x, 2), [floats()], []),
    "histogram as a density in a range": (
        lambda x, w: torch.histogram(x, 5, range=(-1.0, 1.0), weight=w, density=True),
        [floats(20), floats(20).abs()],
        [],
    ),
    "histogram between edges": (torch.histogram, [floats(20), torch.tensor([-1.0, 0.0, 0.5, 2.0])], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)
