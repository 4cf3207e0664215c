from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats, indices, mask

if TYPE_CHECKING:
    from conftest import Check

CASES: dict[str, Case] = {
    "view with an inferred size": (
        lambda x: x.view(x.shape[0], -1, 2),
        [floats(3, 4)],
        [[floats(1, 4)], [floats(7, 4)]],
    ),
    "view that merges axes": (lambda x: x.view(-1, 4), [floats(3, 5, 4)], [[floats(1, 1, 4)], [floats(2, 0, 4)]]),
    "view of an empty axis beside an inferred size": (
        lambda x: x.reshape(x.shape[0], x.shape[1], 2, 2).flatten(2),
        [floats(3, 5, 4)],
        [[floats(1, 0, 4)]],
    ),
    "view as a number": (lambda x: x.view([]), [floats(1, 1)], []),
    "view of nothing as nothing": (lambda x: x.view(0, 7), [floats(0, 3)], []),
    "view like another": (lambda x, y: (x.view_as(y), x.reshape_as(y)), [floats(3, 4), floats(4, 3)], []),
    "flatten": (lambda x: x.flatten(1), [floats(3, 5, 4)], [[floats(1, 0, 4)], [floats(0, 3, 4)]]),
    "flatten all": (lambda x: (x.flatten(), x.ravel()), [floats(3, 5)], [[floats(1, 0)]]),
    "flatten a number": (lambda x: x.flatten(), [floats()], []),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), [floats(3, 4, 5)], [[floats(0, 4, 5)]]),
    "squeeze": (lambda x: x.squeeze(), [floats(1, 3, 1)], [[floats(1, 5, 1)]]),
    "squeeze axes that are 1 and one that is not": (
        lambda x: (x.squeeze(0), x.squeeze(1), x.squeeze(-1), x.squeeze((0, 1))),
        [floats(1, 3, 1)],
        [],
    ),
    "squeeze a number": (lambda x: (x.squeeze(), x.squeeze(0), x.squeeze(-1)), [floats()], []),
    "unsqueeze": (lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(1)), [floats(3, 4)], [[floats(1, 0)]]),
    "permute": (lambda x: x.permute(2, 0, -2), [floats(3, 4, 5)], [[floats(1, 0, 5)]]),
    "transpose and its kin": (
        lambda x: (x.transpose(0, -1), x.mT, x.swapaxes(0, 1), x.movedim(0, 2), x.movedim((0, 1), (2, 0))),
        [floats(3, 4, 5)],
        [[floats(1, 4, 5)]],
    ),
    "t of a matrix and of a vector": (lambda x, y: (x.t(), y.t(), x.T), [floats(3, 4), floats(3)], []),
    "transpose a number": (lambda x: (x.transpose(0, 0), x.permute([])), [floats()], []),
    "expand": (lambda x: x.expand(2, -1, 5), [floats(3, 1)], [[floats(1, 1)], [floats(0, 1)]]),
    "expand to the sizes of another": (
        lambda x, y: x.expand(y.shape[0], -1, y.shape[1]),
        [floats(3, 1), floats(4, 6)],
        [[floats(3, 1), floats(1, 1)], [floats(3, 1), floats(0, 2)]],
    ),
    "expand to nothing": (
        lambda x: (x.expand(-1, 0), x.unsqueeze(2).expand(-1, -1, 0) + 1, x.abs().expand(1, 0, 0, -1, 1).sum(1)),
        [floats(3, 1)],
        [[floats(1, 1)], [floats(0, 1)]],
    ),
    "a number expanded to nothing": (
        lambda x: (x.sum().expand(1, 0) + 1, x.sum().repeat(0, 1) + 1, x.abs().repeat(1, 0) + 1),
        [floats(3, 1)],
        [[floats(1, 1)]],
    ),
    "nothing is full of a number": (lambda x: torch.full((1, 0), x.sum().item()) + 1, [floats(3)], [[floats(4)]]),
    "expand a number": (lambda x: x.expand(3, 2), [floats()], []),
    "expand like another": (lambda x, y: x.expand_as(y), [floats(1, 4), floats(3, 4)], [[floats(1, 4), floats(0, 4)]]),
    "broadcast tensors": (
        lambda x, y: torch.broadcast_tensors(x, y),
        [floats(1, 4), floats(3, 1)],
        [[floats(1, 4), floats(1, 1)]],
    ),
    "repeat": (lambda x: x.repeat(2, 1, 3), [floats(3, 4)], [[floats(1, 0)]]),
    "repeat as often as another is long": (
        lambda x, y: x.repeat(y.shape[0], 1),
        [floats(3, 4), floats(5)],
        [[floats(3, 4), floats(1)], [floats(3, 4), floats(0)]],
    ),
    "repeat bools": (lambda x: x.repeat(2, 2), [mask(3, 4)], []),
    "repeat not at all": (lambda x: x.repeat(0, 2), [floats(3, 4)], []),
    "repeat a number": (lambda x: (x.repeat([]), x.repeat(3)), [floats()], []),
    "tile": (lambda x: (x.tile(2), x.tile(2, 1, 1)), [floats(3, 4)], [[floats(1, 4)]]),
    "repeat each element": (
        lambda x: (x.repeat_interleave(2, 1), x.repeat_interleave(3), x.repeat_interleave(2, -1)),
        [floats(3, 4)],
        [[floats(1, 0)], [floats(0, 3)]],
    ),
    "repeat each element as often as another is long": (
        lambda x, y: x.repeat_interleave(y.shape[0], 0),
        [floats(3, 4), floats(5)],
        [[floats(3, 4), floats(1)], [floats(3, 4), floats(0)]],
    ),
    "repeat no element": (
        lambda x: (
            x.repeat_interleave(0, 0),
            x.repeat_interleave(0, 1),
            x.repeat_interleave(0),
            x[0].repeat_interleave(0),
        ),
        [floats(3, 4)],
        [[floats(1, 4)], [floats(2, 7)], [floats(5, 0)]],
    ),
    "repeat each element by counts": (
        lambda x, counts: x.repeat_interleave(counts, 0),
        [floats(4, 2), indices(1, 0, 3, 2)],
        [[floats(4, 2), indices(0, 0, 0, 0)], [floats(4, 2), indices(2, 2, 0, 5)]],
    ),
    "repeat each element by one count": (
        lambda x, count: x.repeat_interleave(count, 0, output_size=8),
        [floats(4, 2), indices(2)],
        [],
    ),
    "positions by counts": (torch.repeat_interleave, [indices(1, 0, 3, 2)], [[indices(0, 0, 0, 4)]]),
    "bools as bytes": (lambda x: x.view(torch.int8), [mask(5)], []),
    "at least one to three axes": (
        lambda x, y: (torch.atleast_1d(y), torch.atleast_2d(y), torch.atleast_3d(x), torch.atleast_2d([x, y])),
        [floats(3, 4), floats()],
        [[floats(0, 4), floats()]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


def test_bits_of_floats_are_not_read_as_integers(check: Check) -> None:
    with pytest.raises(Exception, match="ONNX cannot read the bits of f32 as i32"):
        check(lambda x: x.view(torch.int32), [floats(3)])
