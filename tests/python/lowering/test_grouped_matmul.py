from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import transformers.integrations.moe  # noqa: F401

if TYPE_CHECKING:
    from conftest import Check


@pytest.mark.parametrize("ends", [[2, 2, 4], [0, 5, 5], [0, 0, 0]], ids=str)
def test_each_group_of_rows_has_its_own_matrix(ends: list[int], check: Check) -> None:
    weight = torch.rand(3, 4, 6)
    check(
        torch.ops.transformers.grouped_mm_fallback.default,
        [torch.rand(5, 4), weight, torch.tensor(ends, dtype=torch.int32)],
        others=[[torch.rand(7, 4), weight, torch.tensor([1, 6, 7], dtype=torch.int32)]],
    )
