from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import floats

from called import CalledWithAll
from exportguard import LoweringError, to_onnx

if TYPE_CHECKING:
    from conftest import Check


def test_as_strided_reads_positions_of_the_memory(check: Check) -> None:
    check(lambda x: (x.as_strided((2, 3), (1, 2)), x.as_strided((3,), (2,), 1)), [floats(3, 4)])


def test_as_strided_scatter_writes_to_them(check: Check) -> None:
    check(lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (1, 2)), [floats(3, 4), floats(2, 2)])


def test_strides_of_a_view_are_refused() -> None:
    with pytest.raises(LoweringError, match="the strides are those of a view"):
        to_onnx(CalledWithAll(lambda x: x.t().as_strided((2, 3), (1, 2))), (floats(3, 4),))


def test_memory_in_order_is_read_whatever_made_it(check: Check) -> None:
    check(lambda x: x.t().contiguous().as_strided((2, 3), (1, 2)), [floats(3, 4)])
    check(lambda x: x[1:].clone().as_strided((2, 2), (1, 3), 1), [floats(3, 4)])
    check(lambda x: x.expand(3, 4).contiguous().as_strided((5,), (2,)), [floats(1, 4)])
    check(lambda x, i: x[i].as_strided((3, 2), (2, 1)), [floats(3, 4), torch.tensor([2, 0])])
