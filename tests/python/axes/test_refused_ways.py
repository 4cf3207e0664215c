"""Sizes that a model refuses behind tests of several parts: its file stops there, and nowhere else.

`python test_refused_ways.py 300` draws as many programs, with `--rewrite` rewritten, and prints what became of them.
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
from exportguard.errors import ExportGuardError
from verdicts import answer, verdicts

ATOMS = (
    "h > 4", "w > 4", "h % 2 == 0", "w % 3 == 0", "h == w", "h <= 7", "w != 5", "h * w > 12", "h + w < 14", "h > w",
    "2 * h >= w", "h // 2 == w // 2", "min(h, w) > 2", "w >= 3",
)  # fmt: skip
FORMS = (
    "        assert {0}, (h, w)\n        return x * 2\n",
    "        if not ({0}):\n            raise ValueError(h)\n        return x * 2\n",
    "        if {0}:\n            y = x * 2\n        else:\n            raise ValueError(h, w)\n        return y\n",
    "        if {0}:\n            assert {1}\n        return x * 2\n",
    "        if {0}:\n            return x * 2\n        assert {1}\n        return x + x\n",
    "        y = x.sin()\n        if {0} and not ({1}):\n            raise ValueError(h)\n        return y + 1\n",
)
_CLASS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        h, w = x.shape
"""
SIZES = [*itertools.product((1, 2, 3, 4, 5, 6, 7, 8, 9), repeat=2)]


def condition(draw: random.Random) -> str:
    """One to three atoms."""
    first, second, third = draw.sample(ATOMS, 3)
    forms = ("{0}", "{0} or {1}", "not ({0} and {1})", "{0} or ({1} and {2})", "({0} or {1}) and {2}", "{0} and {1}")
    return draw.choice(forms).format(first, second, third)


def source_of(seed: int) -> str:
    draw = random.Random(seed)
    return _CLASS + draw.choice(FORMS).format(condition(draw), condition(draw))


def outcome_of(seed: int, rewrite: Any = ()) -> str:
    model = model_of(source_of(seed), f"/refused ways {seed}.py").eval()
    taken = [sizes for sizes in SIZES if min(sizes) > 1 and answer(model, torch.randn(sizes)) is not None]
    if not taken:
        return "none"
    example = torch.randn(random.Random(seed).choice(taken))
    try:
        file = to_onnx(model, (example,), dynamic_shapes=({0: "h", 1: "w"},), rewrite=rewrite)
    except ExportGuardError:
        return "refused"
    found = verdicts(model, file, SIZES)
    return next((word for word in ("wrong", "answers", "stops") if found[word]), "right")


@pytest.mark.parametrize("first", range(0, 60, 10))
@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.thinned(6)
def test_a_file_stops_where_its_model_raises(first: int, rewrite: Any) -> None:
    outcomes = Counter(outcome_of(seed, rewrite) for seed in range(first, first + 10))
    assert {*outcomes} <= {"right", "refused", "none"}
    assert outcomes["right"]


WITHIN_BRANCHES = (
    """
        if h < 14:
            x = x + 1
            if h % 3 == 0 and h > 5:
                raise ValueError(h)
        return x * 2
    """,
    """
        if h < 14:
            x = x + 1
        if 2 * h > 12 or h <= 40:
            if h == 6:
                raise ValueError(h)
        return x * 2
    """,
    """
        if h >= 14:
            assert h % 4 != 1
            x = x + 1
        elif h == 3:
            raise ValueError(h)
        return x * 2
    """,
)


@pytest.mark.parametrize("place", range(len(WITHIN_BRANCHES)))
@pytest.mark.parametrize("rows", [8, 20])
def test_what_raises_within_a_branch_is_refused_in_it_alone(place: int, rows: int) -> None:
    model = model_of(_CLASS + WITHIN_BRANCHES[place], f"/raises within {place}.py").eval()
    file = to_onnx(model, (torch.randn(rows, 2),), dynamic_shapes=({0: "h", 1: "w"},), rewrite="auto")
    found = verdicts(model, file, [(size, 2) for size in range(1, 40)])
    assert {*found} <= {"right", "both stop"}
    assert found["both stop"]


#: Operators without a kernel for symbols outside of a trace, or with one that makes numbers of sizes.
IN_FRONT = {
    "resized by a factor": "F.interpolate(x, scale_factor=2.0)",
    "resized to half": "F.interpolate(x, scale_factor=0.5, mode='linear')",
    "resized in both": "F.interpolate(x[:, None], scale_factor=(1.0, 2.0), mode='bicubic')",
    "recurrent": "self.recurrent(x.transpose(1, 2))[0]",
    "attention": "F.scaled_dot_product_attention(x.mT, x.mT, x.mT)",
    "windows": "F.unfold(x[:, None], (2, 2))",
    "spectrum": "torch.fft.rfft(x).abs()",
}
_BEHIND = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = torch.nn.LSTM(3, 4, batch_first=True)

    def forward(self, x):
        y = {0}
        if x.shape[-1] > 50 and x.shape[-1] % 7 == 3:
            raise ValueError(x.shape)
        return y
"""


@pytest.mark.parametrize("operator", IN_FRONT)
@pytest.mark.thinned(1)
def test_what_raises_behind_an_operator_that_knows_no_symbols_is_refused(operator: str) -> None:
    model = model_of(_BEHIND.format(IN_FRONT[operator]), f"/raises behind {operator}.py").eval()
    file = to_onnx(model, (torch.randn(2, 3, 24),), dynamic_shapes=({0: "b", 2: "l"},))
    sizes = itertools.product((1, 2, 3), (3,), (24, 31, 52, 53, 59, 66))
    found = verdicts(model, file, [*sizes])
    assert {*found} == {"right", "both stop"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rewrite", action="store_true")
    options = parser.parse_args()
    drawn = range(options.first, options.first + options.programs)
    results = {seed: outcome_of(seed, "auto" if options.rewrite else ()) for seed in drawn}
    print(Counter(results.values()))
    print({seed: word for seed, word in results.items() if word not in ("right", "refused", "none")})
