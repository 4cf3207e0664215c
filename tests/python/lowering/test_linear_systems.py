from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats

from exportguard.errors import LoweringError

if TYPE_CHECKING:
    from conftest import Check

linalg = torch.linalg


def positive(*sizes: int) -> torch.Tensor:
    """Symmetric matrices with positive eigenvalues."""
    x = floats(*sizes)
    return x @ x.mT + torch.eye(sizes[-1])


# The first column has no pivot in the first row.
SWAPPED = torch.tensor([[0.0, 2, 1], [4, 1, -3], [-4, 5, 2]])
CASES: dict[str, Case] = {
    "det": (linalg.det, [floats(2, 4, 4)], [[floats(3, 2, 2)], [floats(0, 3, 3)]]),
    "det of a permutation": (linalg.det, [SWAPPED], []),
    "det of a singular matrix": (linalg.det, [torch.ones(3, 3)], []),
    "slogdet": (lambda x: (linalg.slogdet(x), x.logdet()), [floats(3, 3, 3)], [[floats(2, 4, 4)]]),
    "inv": (linalg.inv, [floats(2, 4, 4)], [[floats(3, 2, 2)], [floats(1, 1, 1)]]),
    "inv_ex": (linalg.inv_ex, [SWAPPED], []),
    "inv of float64": (linalg.inv, [floats(5, 5).double()], []),
    "inv of an empty matrix": (linalg.inv, [floats(0, 0)], []),
    "solve": (linalg.solve, [floats(2, 3, 3), floats(2, 3, 4)], [[floats(5, 2, 2), floats(5, 2, 1)]]),
    "solve a vector": (linalg.solve, [floats(3, 3), floats(3)], []),
    "solve vectors": (linalg.solve, [floats(2, 3, 3), floats(2, 3)], []),
    "solve on the right": (lambda a, b: linalg.solve(a, b, left=False), [floats(3, 3), floats(4, 3)], []),
    "solve one matrix many times": (linalg.solve, [floats(3, 3), floats(4, 3, 2)], []),
    "solve_ex": (linalg.solve_ex, [SWAPPED, floats(3, 2)], []),
    "lu": (linalg.lu, [floats(2, 4, 3)], [[floats(1, 2, 5)]]),
    "lu_factor": (linalg.lu_factor, [floats(2, 3, 4)], []),
    "lu_solve": (
        lambda a, b: (
            linalg.lu_solve(*linalg.lu_factor(a), b),
            linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True),
            linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False),
        ),
        [floats(2, 3, 3), floats(2, 3, 2)],
        [],
    ),
    "lu_unpack": (lambda a: torch.lu_unpack(*linalg.lu_factor(a)), [floats(4, 3)], []),
    "solve_triangular": (
        lambda a, b: (
            linalg.solve_triangular(a, b, upper=True),
            linalg.solve_triangular(a, b, upper=False, unitriangular=True),
            linalg.solve_triangular(a, b.mT, upper=True, left=False),
        ),
        [positive(2, 3, 3), floats(2, 3, 4)],
        [[positive(1, 4, 4), floats(1, 4, 1)]],
    ),
    "triangular_solve": (
        lambda b, a: (torch.triangular_solve(b, a), torch.triangular_solve(b, a, upper=False, transpose=True)),
        [floats(3, 2), positive(3, 3)],
        [],
    ),
    "cholesky": (
        lambda x: (linalg.cholesky(x), linalg.cholesky(x, upper=True), linalg.cholesky_ex(x)),
        [positive(2, 4, 4)],
        [[positive(3, 2, 2)]],
    ),
    "cholesky of one half": (lambda x: linalg.cholesky(x.tril()), [positive(3, 3)], []),
    "where cholesky stops": (lambda x: linalg.cholesky_ex(x).info, [torch.diag(torch.tensor([1.0, -1, 2]))], []),
    "cholesky_solve": (lambda b, x: torch.cholesky_solve(b, linalg.cholesky(x)), [floats(3, 2), positive(3, 3)], []),
    "cholesky_inverse": (lambda x: torch.cholesky_inverse(x, upper=True), [positive(3, 3)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


def test_a_large_system_is_as_exact_as_eager(check: Check) -> None:
    x = floats(60, 60).double()
    check(lambda a, b: a @ torch.linalg.solve(a, b), [x, floats(60, 3).double()])


@pytest.mark.parametrize("place", range(9))
def test_a_nan_of_a_matrix_is_not_lost_among_its_pivots(place: int, check: Check) -> None:
    matrix = torch.tensor([[4.0, 1, 2], [1, 5, 3], [2, 3, 6]])
    matrix.view(-1)[place] = float("nan")
    check(lambda a: (torch.linalg.det(a), torch.linalg.inv(a), torch.linalg.solve(a, torch.ones(3))), [matrix])


@pytest.mark.parametrize("name", ["_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"])
def test_factors_that_depend_on_memory_are_refused(name: str, check: Check) -> None:
    operator = getattr(torch.ops.aten, name).default
    others = (floats(3, 3),) if name == "_linalg_solve_ex" else ()
    with pytest.raises(LoweringError, match="lies in memory"):
        check(lambda *given: operator(*given), [floats(3, 3), *others])
