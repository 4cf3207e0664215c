"""Slices that end at a number, in branches and steps of loops: right where the axis is shorter than the slice.

`python tests/python/rewrites/test_slices_in_bodies.py --count 200` makes and checks as many and prints what is wrong.
"""

from __future__ import annotations

import random

import pytest
import torch
from drawn_programs import Share, check_by_hand, outcome_of, wrong_of
from random_programs import model_of

from exportguard import to_onnx

_SIZES = (8, 1, 2, 3, 4, 5, 9)  # the first is exported

_SLICES = ("x[:, :{k}]", "x[:, -{k}:]", "x[:, 1:{k}]", "x[:, :-{k}]", "x[0, :{k}]", "x[:, 0:{k} * 2:2]")
_READS = (
    *("y = y + {slice}.sum()", "y = y + {slice}.mean(-1).nan_to_num().sum()", "y = y + {slice}.shape[-1]"),
    *("y = y * {slice}.numel()", "y = y + ({slice} > 0).float().sum()", "z[:, :{k}] = 0.5"),
    *(
        "z[:, -{k}:] = z[:, -{k}:] * 2",
        "z[0, :{k}] += 1",
        "y = y + torch.cat([{slice}.flatten(), x[0]]).var(unbiased=False)",
    ),
)
_BODIES = (
    *("if x.sum() > 0:\n    {first}\nelse:\n    {second}", "if x[0, 0] > 5:\n    {first}", "{first}"),
    *("for i in range(x.shape[0]):\n    {first}\n    y = y * 0.5", "for row in x:\n    y = y + row[:{k}].sum()"),
    *("while y.abs() < 3:\n    {first}\n    y = y + 2", "for row in x:\n    if row[0] > 0:\n        {first}"),
    *("count = 0\nwhile z.sum() > 1 and count < 3:\n    {second}\n    count += 1\n    z = z * 0.5",),
)

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        y, z = x.sum(), x.clone()
        {body}
        return y + z.sum()
"""


def source_of(seed: int) -> str:
    """The program of a seed."""
    draw = random.Random(seed)
    parts: list[str] = []
    for _ in range(draw.choice((1, 1, 2))):
        k = draw.choice((1, 2, 3, 3, 5))
        first, second = (read.format(k=k, slice=draw.choice(_SLICES).format(k=k)) for read in draw.sample(_READS, 2))
        parts += draw.choice(_BODIES).format(first=first, second=second, k=k).split("\n")
    return _PROGRAM.format(body="\n        ".join(parts))


def outcome(seed: int) -> str:
    """Whether a program is right, or refused; else what is wrong."""
    draw = torch.Generator().manual_seed(seed)
    inputs = [torch.randn((1 + n % 3, n), generator=draw) * 2 for n in (*_SIZES, *_SIZES)]
    return outcome_of(f"/slices/{seed}.py", source_of(seed), inputs, {0: "b", 1: "n"})


_OF_ONE_BRANCH = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x[:, :3].mean()
        return x[:, -3:].mean()
"""


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_that_the_example_does_not_take_has_slices_too(sign: int) -> None:
    model = model_of(_OF_ONE_BRANCH, "/slices/branch.py")
    onnx = to_onnx(model, (torch.rand(2, 8),), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")
    for n in _SIZES:
        x = torch.rand(3, n) * sign
        assert wrong_of(onnx, {"x": x}, model(x)) == ""


#: One of five programs, eight of them at a time.
_SHARE = Share(count=80, every=5, at_once=4, right=2)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_slices_in_bodies_are_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
