from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, integers

if TYPE_CHECKING:
    from conftest import Check

pad = torch.nn.functional.pad

CASES: dict[str, Case] = {
    "with zeros and with a number": (
        lambda x: (pad(x, (1, 2)), pad(x, (1, 0, 0, 2), value=3.0), pad(x, (-1, 1)), pad(x, (0, 0))),
        [floats(2, 3, 4)],
        [[floats(1, 0, 4)]],
    ),
    "as wide as another is long": (
        lambda x, y: pad(x, (0, y.shape[0])),
        [floats(2, 3), floats(4)],
        [[floats(2, 3), floats(1)], [floats(2, 3), floats(0)]],
    ),
    "up to the length of another": (
        lambda x, y: pad(x, (0, y.shape[0] - x.shape[1])),
        [floats(2, 3), floats(4)],
        [[floats(2, 4), floats(4)], [floats(2, 3), floats(6)]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.float16])
def test_of_every_dtype(dtype: torch.dtype, check: Check) -> None:
    check(lambda x: pad(x, (1, 2), value=1), [integers(2, 3, high=2).to(dtype)])


MODES = pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])


@MODES
def test_one_axis(mode: str, check: Check) -> None:
    check(
        lambda x: (pad(x, (1, 2), mode), pad(x, (2, 0), mode)),
        [floats(2, 3, 4)],
        others=[[floats(1, 3, 5)], [floats(0, 3, 4)]],
    )


@MODES
def test_two_and_three_axes(mode: str, check: Check) -> None:
    check(
        lambda x, y: (pad(x, (1, 2, 2, 1), mode), pad(y, (1, 2, 2, 1, 1, 0), mode)),
        [floats(2, 3, 4, 5), floats(2, 3, 4, 5, 3)],
        others=[[floats(1, 3, 5, 5), floats(2, 3, 4, 5, 3)]],
    )


@MODES
def test_a_negative_margin_cuts(mode: str, check: Check) -> None:
    check(lambda x: (pad(x, (-1, 2), mode), pad(x, (1, -2), mode)), [floats(2, 3, 4)])


@MODES
@pytest.mark.parametrize("margins", [(1, -1), (-1, 1), (2, -3), (-4, 1), (-2, -1), (1, -1, -1, 2)], ids=str)
@pytest.mark.parametrize("opset", [18, None])
def test_a_negative_margin_beside_a_positive_one(
    mode: str, margins: tuple[int, ...], opset: int | None, check: Check
) -> None:
    shape = [3] * (len(margins) // 2)
    check(lambda x: pad(x, margins, mode), [floats(*shape, 7, 6)], others=[[floats(*shape, 9, 8)]], opset=opset)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_of_two_elements_one_is_cut(mode: str, check: Check) -> None:
    check(lambda x: pad(x, (1, -1), mode), [floats(2, 5)], others=[[floats(3, 2)]])


@MODES
@pytest.mark.parametrize("opset", [18, None])
def test_margins_that_are_negative_at_some_sizes(mode: str, opset: int | None, check: Check) -> None:
    check(
        lambda x, y: (pad(x, (1, y.shape[0] - x.shape[1]), mode), pad(x, (y.shape[0] - x.shape[1], 2), mode)),
        [floats(2, 6), floats(8)],
        others=[[floats(3, 6), floats(4)], [floats(3, 7), floats(6)], [floats(2, 5), floats(5)]],
        opset=opset,
    )


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_behind_a_transpose(mode: str, check: Check) -> None:
    """onnxruntime moves the Transpose past the Pad."""
    check(lambda x: pad(x.transpose(1, 2), (1, 2), mode), [floats(2, 3, 4)], others=[[floats(1, 4, 3)]])
