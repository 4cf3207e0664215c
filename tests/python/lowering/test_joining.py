from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, integers, mask

if TYPE_CHECKING:
    from conftest import Check

STACKS = (torch.hstack, torch.vstack, torch.dstack, torch.column_stack)

CASES: dict[str, Case] = {
    "cat": (
        lambda x, y: torch.cat([x, y], 1),
        [floats(3, 4), floats(3, 2)],
        [[floats(1, 0), floats(1, 2)], [floats(0, 3), floats(0, 1)]],
    ),
    "cat leaves out an empty vector": (
        lambda x, y: torch.cat([x, y], 1),
        [floats(0), floats(3, 2)],
        [[floats(0), floats(1, 2)]],
    ),
    "cat of two dtypes": (lambda x, y: torch.cat([x, y], -1), [floats(3, 4), integers(3, 2)], []),
    "cat of bools": (lambda x, y: torch.cat([x, y]), [mask(3, 4), mask(2, 4)], []),
    "stack": (
        lambda x, y: (torch.stack([x, y]), torch.stack([x, y], -1), torch.stack([x, y.long()], 1)),
        [floats(3, 4), floats(3, 4)],
        [[floats(0, 4), floats(0, 4)]],
    ),
    "stack of numbers": (lambda x, y: torch.stack([x, y]), [floats(), floats()], []),
    "stacks of vectors": (
        lambda x, y: [stack([x, y]) for stack in STACKS],
        [floats(3), floats(3)],
        [[floats(1), floats(1)]],
    ),
    "stacks of matrices": (lambda x, y: [stack([x, y]) for stack in STACKS], [floats(3, 2), floats(3, 2)], []),
    "stacks of numbers": (lambda x, y: [stack([x, y]) for stack in STACKS], [floats(), floats()], []),
    "block_diag": (
        lambda x, y, z: torch.block_diag(x, y, z),
        [floats(3, 2), floats(2), floats()],
        [[floats(1, 2), floats(2), floats()]],
    ),
    "meshgrid": (
        lambda x, y: (torch.meshgrid(x, y, indexing="ij"), torch.meshgrid(x, y, indexing="xy")),
        [floats(3), floats(2)],
        [[floats(1), floats(2)], [floats(0), floats(2)]],
    ),
    "meshgrid of three": (
        lambda x, y, z: torch.meshgrid(x, y, z, indexing="xy"),
        [floats(3), floats(2), floats()],
        [],
    ),
    "cartesian_prod": (
        lambda x, y: (torch.cartesian_prod(x, y), torch.cartesian_prod(x)),
        [floats(3), floats(2)],
        [[floats(1), floats(2)]],
    ),
    "chunks joined": (lambda x, y: torch._chunk_cat([x, y], 0, 2), [floats(3, 4), floats(5, 4)], []),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)
