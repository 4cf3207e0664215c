from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats

if TYPE_CHECKING:
    from conftest import Check

CASES: dict[str, Case] = {
    "qr": (torch.linalg.qr, [floats(2, 4, 3)], [[floats(1, 2, 5)], [floats(3, 3, 3)]]),
    "complete": (lambda x: torch.linalg.qr(x, mode="complete"), [floats(4, 3)], [[floats(2, 5)]]),
    "r alone": (lambda x: torch.linalg.qr(x, mode="r").R, [floats(3, 4)], []),
    "torch.qr": (lambda x: torch.qr(x, some=False), [floats(4, 2)], []),
    "geqrf": (torch.geqrf, [floats(4, 3)], []),
    "zero columns": (torch.linalg.qr, [torch.zeros(3, 2)], []),
    "householder_product": (lambda x: torch.linalg.householder_product(*torch.geqrf(x)), [floats(2, 4, 3)], []),
    "ormqr": (
        lambda x, c: [
            torch.ormqr(*torch.geqrf(x), c if left else c.mT, left=left, transpose=transpose)
            for left in (True, False)
            for transpose in (True, False)
        ],
        [floats(4, 3), floats(4, 2)],
        [],
    ),
    "matrix_exp": (torch.linalg.matrix_exp, [floats(2, 3, 3)], [[floats(1, 4, 4)], [floats(3, 3, 3) * 4]]),
    "matrix_exp of zero": (torch.matrix_exp, [torch.zeros(2, 2)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)
