"""What a branch or a loop makes sure of a size that data decide is not taken for true where its body does not run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import exportguard

Rows = torch.Tensor

#: What needs a row at least, three of them, an even number, or no more than two.
NEEDS: dict[str, tuple[Callable[[Rows], Rows], Callable[[Rows], bool]]] = {
    "a first row": (lambda rows: rows[0], lambda rows: rows.shape[0] > 0),
    "a third row": (lambda rows: rows[2], lambda rows: rows.shape[0] > 2),
    "pairs": (lambda rows: rows.view(2, -1, 2)[1].sum(0), lambda rows: rows.shape[0] % 2 == 0),
    "three rows": (lambda rows: rows.reshape(3, 2)[1], lambda rows: rows.shape[0] == 3),
}


class Branch(torch.nn.Module):
    def __init__(self, need: str) -> None:
        super().__init__()
        self.taken, self.is_there = NEEDS[need]

    def forward(self, x: Rows) -> Rows:
        rows = x[x.sum(1) > 0]
        y = torch.zeros(2)
        if self.is_there(rows):
            y = self.taken(rows)
        return y + told(rows)


class Otherwise(Branch):
    def forward(self, x: Rows) -> Rows:
        rows = x[x.sum(1) > 0]
        if not self.is_there(rows):
            y = torch.ones(2)
        else:
            y = self.taken(rows)
            y = y * 2
        return y - told(rows)


class Turns(Branch):
    def forward(self, x: Rows) -> Rows:
        rows = x[x.sum(1) > 0]
        y, i = torch.zeros(2), torch.tensor(0)
        while self.is_there(rows) and i < x[0, 0]:
            y = y + self.taken(rows)
            i = i + 1
        return y + told(rows)


def told(rows: Rows) -> Rows:
    """What a fact about the number of rows is seen by."""
    return rows[:1].shape[0] + 10 * rows[:3].shape[0] + rows[1:3].sum() + rows.reshape(-1)[::2].shape[0]


INPUTS = [
    torch.tensor([[2.0, 1], [1, 1], [3, -1], [-1, 0]]),
    torch.tensor([[-2.0, 1], [-1, 1], [-3, -1]]),
    torch.tensor([[1.0, 2]]),
    torch.tensor([[-1.0, 2], [2, 3], [5, 1], [1, 1], [-4, 2]]),
    torch.ones(4, 2),
    torch.ones(3, 2) * 2,
]


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("kind", [Branch, Otherwise, Turns])
def test_a_fact_ends_with_its_body(kind: type[Branch], need: str) -> None:
    module = kind(need).eval()
    model = exportguard.to_onnx(module, (INPUTS[0],), dynamic_shapes=({0: "n"},), rewrite="auto")
    for given in INPUTS:
        (found,) = model.run({"x": given}).values()
        torch.testing.assert_close(found, module(given))
