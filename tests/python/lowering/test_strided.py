from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import floats

if TYPE_CHECKING:
    from conftest import Check


def test_as_strided_reads_positions_of_the_memory(check: Check) -> None:
    check(lambda x: (x.as_strided((2, 3), (1, 2)), x.as_strided((3,), (2,), 1)), [floats(3, 4)])


def test_as_strided_scatter_writes_to_them(check: Check) -> None:
    check(lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (1, 2)), [floats(3, 4), floats(2, 2)])


def test_strides_of_a_view_are_refused(check: Check) -> None:
    with pytest.raises(Exception, match="the strides are those of a view"):
        check(lambda x: x.t().as_strided((2, 3), (1, 2)), [floats(3, 4)])
