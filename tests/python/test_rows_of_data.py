"""Operators on rows that tensor data count are equal to eager mode for none of them, one, and many."""

from __future__ import annotations

import pytest
import torch

from exportguard import ExportError, to_onnx
from patch_programs.rows_of_data import ASKING, COMPOSITES, OF_PICTURES, OfChosen, drawn, is_right

FUNCTIONS = {**COMPOSITES, **ASKING, **OF_PICTURES}

#: Whose number of results, or of which operand is broadcast, tensor data decide.
LEFT = {
    "parts of two rows": lambda r: r.split(2)[0],
    "two parts": lambda r: r.chunk(2)[0],
    "rows one by one": lambda r: r.unbind(0)[0],
    "cosine similarity to others": lambda r: torch.nn.functional.cosine_similarity(r, r[r[:, 0] > 0]),
    "tensordot over rows of others": lambda r: torch.tensordot(r, r[r[:, 0] > 0], ([0], [0])),
    "statistics that are written": lambda r: torch.batch_norm(
        r[:, :, None].expand(-1, -1, 3) * 1, None, None, r.new_zeros(4), r.new_ones(4), True, 0.1, 1e-5, False
    ),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_of_rows(name: str) -> None:
    torch.manual_seed(0)
    is_right(FUNCTIONS[name])


@pytest.mark.parametrize("name", LEFT)
def test_what_one_formula_does_not_hold_for_is_refused(name: str) -> None:
    with pytest.raises(ExportError, match="depends on the values of a tensor"):
        to_onnx(OfChosen(LEFT[name]).eval(), drawn(5), dynamic_shapes=({0: "rows"}, {0: "rows"}))
