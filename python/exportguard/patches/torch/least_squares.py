"""`torch.linalg.lstsq`, whose results beside the solution have sizes that depend on data: here, by singular values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from exportguard.declaration.patch import Patch, needed_without_a_shape
from exportguard.errors import ExportError

# Without annotations in torch 2.11 to 2.13.
_sym_max: Callable[..., Any] = torch.sym_max


@dataclass(frozen=True)
class Solved:
    """The solution; what torch returns beside it has other sizes for a matrix of lower rank, which a program cannot
    say."""

    solution: torch.Tensor

    def __getitem__(self, place: int) -> torch.Tensor:
        return self.solution if place == 0 else self._refuse()

    @property
    def residuals(self) -> torch.Tensor:
        self._refuse()

    @property
    def rank(self) -> torch.Tensor:
        self._refuse()

    @property
    def singular_values(self) -> torch.Tensor:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ExportError(
            "the sizes of what torch.linalg.lstsq returns beside the solution depend on data: read `.solution` alone, "
            "and compute (a @ solution - b).square().sum(-2), torch.linalg.matrix_rank or torch.linalg.svdvals where "
            "you need them"
        )


def _least_solution(a: torch.Tensor, b: torch.Tensor, tolerance: float | None) -> torch.Tensor:
    """[..., unknowns, systems]: directions with singular values below the tolerance, which is relative to the greatest
    one, take no part. The default is torch's."""
    left, values, right = torch.linalg.svd(a, full_matrices=False)
    longest: Any = _sym_max(a.shape[-2], a.shape[-1])
    relative = torch.finfo(a.dtype).eps * longest if tolerance is None else tolerance
    counts = values > relative * values.amax(-1, keepdim=True)
    factors = torch.where(counts, values.reciprocal(), 0).unsqueeze(-1)
    solution: torch.Tensor = right.mH @ (factors * (left.mH @ b))
    return solution


def by_singular_values(original: Callable[..., Any]) -> Callable[..., Any]:
    """`lstsq` while a program is made: of all solutions the least one, as from torch's default driver."""

    @functools.wraps(original)
    def lstsq(
        A: torch.Tensor,  # noqa: N803 - torch's
        B: torch.Tensor,  # noqa: N803
        rcond: float | None = None,
        *,
        driver: str | None = None,
    ) -> Any:
        if not torch.compiler.is_exporting():
            return original(A, B, rcond=rcond, driver=driver)
        are_vectors = B.ndim == 1 or (B.ndim == A.ndim - 1 and A.ndim > 2)
        columns = B.unsqueeze(-1) if are_vectors else B
        solution = _least_solution(A, columns, rcond)
        return Solved(solution.squeeze(-1) if are_vectors else solution)

    return lstsq


PATCHES = (
    Patch(
        name="least squares",
        kind="torch",
        target="torch.linalg.lstsq",
        reason="lstsq stops a trace: residuals and ranks of a matrix have sizes that depend on data",
        upstream="https://github.com/pytorch/pytorch/issues/114353",
        probe=lambda: needed_without_a_shape(torch.ops.aten.linalg_lstsq.default, "what lstsq returns"),
        replace=by_singular_values,
    ),
)
