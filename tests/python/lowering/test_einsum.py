from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from conftest import Check

EQUATIONS = {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "ij,jk": ((2, 3), (3, 4)),
    "bij,bjk->bik": ((2, 2, 3), (2, 3, 4)),
    "bhid,bhjd->bhij": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bhwc,hkc->bhwk": ((2, 3, 4, 5), (3, 6, 5)),
    "abc,cde->abde": ((2, 3, 4), (4, 2, 3)),
    "i,j->ij": ((2,), (3,)),
    "ij,ij->i": ((2, 3), (2, 3)),
    "ij,ij": ((2, 3), (2, 3)),
    "ii->i": ((3, 3),),
    "bii": ((2, 3, 3),),
    "ij->ji": ((2, 3),),
    "ij->": ((2, 3),),
    "...ij,...jk->...ik": ((2, 1, 3, 4), (5, 4, 2)),
    "i...,i...->...": ((2, 3), (2, 3)),
    "bn,anm,bm->ba": ((2, 3), (4, 3, 5), (2, 5)),
    "ij,kj->ik": ((2, 1), (3, 5)),
    "Ab,bC->AC": ((2, 3), (3, 4)),
    "b i d, b j d -> b i j": ((2, 3, 4), (2, 5, 4)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str, check: Check) -> None:
    check(lambda *inputs: torch.einsum(equation, *inputs), [torch.rand(shape) for shape in EQUATIONS[equation]])


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.float64], ids=str)
def test_einsum_of_other_dtypes(dtype: torch.dtype, check: Check) -> None:
    a, b = torch.tensor([[1, 2], [3, 4]], dtype=dtype), torch.tensor([[5, 6], [7, 8]], dtype=dtype)
    check(lambda a, b: torch.einsum("ij,jk->ik", a, b), [a, b])


@pytest.mark.parametrize(
    ("equation", "dtypes"),
    [
        ("i,j->ij", (torch.int64, torch.float32)),
        ("i,j->ij", (torch.float32, torch.int64)),
        ("i,j->ji", (torch.int32, torch.int64)),
        ("i,j->ij", (torch.bool, torch.float32)),
        ("i,j->ij", (torch.float16, torch.float32)),
        ("i,j->ij", (torch.float32, torch.float64)),
        ("bi,bj->bij", (torch.int64, torch.float32)),
        ("i,j->j", (torch.int64, torch.float32)),
        ("i,j,k->ijk", (torch.int64, torch.float32, torch.float64)),
        (",i->i", (torch.int64, torch.float32)),
    ],
    ids=str,
)
def test_einsum_without_a_sum_takes_operands_of_several_dtypes(
    equation: str, dtypes: tuple[torch.dtype, ...], check: Check
) -> None:
    """Positions times frequencies: what torch multiplies element by element, in the dtype that both have in common."""
    terms = equation.partition("->")[0].split(",")
    shapes = [tuple({"b": 2, "i": 3, "j": 4, "k": 5}[letter] for letter in term) for term in terms]
    operands = [(torch.rand(shape) * 9 - 4).to(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    check(lambda *inputs: torch.einsum(equation, *inputs), operands)


def test_einsum_over_dynamic_and_empty_axes(check: Check) -> None:
    def inputs(batch: int, rows: int, columns: int) -> list[torch.Tensor]:
        return [torch.rand(batch, 3, rows, 5), torch.rand(batch, 3, columns, 5)]

    check(
        lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b),
        inputs(2, 4, 6),
        others=[inputs(1, 1, 2), inputs(1, 1, 0)],
    )
