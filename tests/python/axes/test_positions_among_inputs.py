"""Tests of sizes in models whose inputs hold positions: an example's own point beyond an axis that is made shorter.

`python test_positions_among_inputs.py 300` draws as many programs, with `--rewrite` rewritten, and prints what became
of them.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections import Counter
from typing import Any

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx
from exportguard.axes.whole_numbers import with_numbers_within
from exportguard.errors import ExportGuardError
from exportguard.inputs import CallInputs

#: What a model makes of `x`, rows by entries by 3, of which it has `t`.
MADE = (
    "y = x * 5 if t == 1 else x - x.mean(1, keepdim=True)",
    "y = x.cumsum(1) if t > {0} else x",
    "y = x + x[:, :{0}].sum(1, keepdim=True) / x[:, :{0}].shape[1]",
    "y = x + x.std(1, keepdim=True) if t > 1 else x",
    "k = 3 if t > {0} else min(t, 3)\n        y = x.cumsum(1) if k == 3 else x",
    "y = x.roll(1, 1) + x if t > 1 else x",
    "y = x * min(t, {0})",
    "y = x\n        if t % 2 == 0:\n            y = y.flip(1)",
    "y = x.cumsum(1) if x.shape[0] > 1 else x",
    "y = x.cumsum(1)",
    "y = x.cumsum(1) if t > {0} else x + x[:, 1:2]",
)
#: What it takes of that at the positions `p`, and how those are drawn for `b` rows of `t` entries.
TAKEN = {
    "y[torch.arange(x.shape[0]), p]": lambda b, t: torch.randint(0, t, (b,)),
    "y[torch.arange(x.shape[0]), p - 1]": lambda b, t: torch.randint(1, t + 1, (b,)),
    "y[torch.arange(x.shape[0]), p.long()]": lambda b, t: torch.randint(0, t, (b,)).float(),
    "y.gather(1, p[:, :, None].expand(-1, -1, 3))": lambda b, t: torch.randint(0, t, (b, 4)),
    "y.index_select(1, p)": lambda b, t: torch.randint(0, t, (5,)),
    "y[:, p.int()]": lambda b, t: torch.randint(0, t, (4,)),
    "torch.zeros_like(y).index_add(1, p[1], y[:, p[0]])": lambda b, t: torch.randint(0, t, (2, 6)),
    "torch.nn.functional.embedding(p, y[0])": lambda b, t: torch.randint(0, t, (b, 4)),
    "y.cumsum(1).scatter(1, p[:, :, None].expand(-1, -1, 3), torch.ones(x.shape[0], 1, 3))": (
        lambda b, t: torch.randint(0, t, (b, 1))
    ),
}
_CLASS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, p):
        t = x.shape[1]
        {0}
        return {1}
"""
SIZES = [*itertools.product((1, 2, 3), range(1, 10))]


def outcome_of(seed: int, rewrite: Any = ()) -> str:
    """What the file is where its model runs: "right", "stops" or "wrong" somewhere; "refused" if there is none."""
    draw = random.Random(seed)
    made, taken = draw.choice(MADE).format(draw.randint(2, 4)), draw.choice([*TAKEN])
    model = model_of(_CLASS.format(made, taken), f"/positions {seed}.py").eval()
    torch.manual_seed(seed)
    batch, length = draw.randint(2, 3), draw.randint(5, 8)
    example = torch.randn(batch, length, 3), TAKEN[taken](batch, length)
    has_rows = TAKEN[taken](5, 4).shape[0] == 5 and TAKEN[taken](2, 4).shape[0] == 2
    shapes = {0: "b", 1: "t"}, {0: "b"} if has_rows else {}
    try:
        file = to_onnx(model, example, dynamic_shapes=shapes, rewrite=rewrite)
    except ExportGuardError:
        return "refused"
    found = {verdict(model, file, torch.randn(b, t, 3), TAKEN[taken](b, t)) for b, t in SIZES}
    return next((word for word in ("wrong", "answers", "stops") if word in found), "right")


def verdict(model: torch.nn.Module, file: Any, x: torch.Tensor, p: torch.Tensor) -> str:
    try:
        expected = model(x, p)
    except (IndexError, RuntimeError):
        expected = None
    try:
        (got,) = file.run({"x": x, "p": p}).values()
    except RuntimeError:
        return "both stop" if expected is None else "stops"
    if expected is None:
        return "answers"
    is_same = got.shape == expected.shape and torch.allclose(got, expected, atol=1e-5, equal_nan=True)
    return "right" if is_same else "wrong"


@pytest.mark.parametrize("first", range(0, 80, 10))
@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.thinned(6)
def test_a_file_is_right_at_all_sizes(first: int, rewrite: Any) -> None:
    outcomes = Counter(outcome_of(seed, rewrite) for seed in range(first, first + 10))
    assert {*outcomes} <= {"right", "refused"}
    assert outcomes["right"]


def test_numbers_that_never_fall_do_not_when_they_are_moved() -> None:
    known, shorter = (CallInputs((torch.zeros(size), torch.tensor([0, 2, 4, 8]))) for size in (9, 3))
    moved = [call.args[1] for call in with_numbers_within(shorter, known)]
    assert moved
    assert all(bool((one[1:] >= one[:-1]).all()) for one in moved)
    assert all(int(one.max()) <= 3 for one in moved)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rewrite", action="store_true")
    options = parser.parse_args()
    told: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.programs):
        outcome = outcome_of(seed, "auto" if options.rewrite else ())
        told[outcome] += 1
        if outcome not in ("right", "refused"):
            print(seed, outcome, flush=True)
    print(dict(told))
