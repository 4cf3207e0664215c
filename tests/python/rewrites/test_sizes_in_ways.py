"""Sizes that are computed before a test of sizes, and used in each way through the model: right at every size.

`python tests/python/rewrites/test_sizes_in_ways.py --count 200` makes and checks as many and prints what is wrong.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
import warnings
from collections import Counter

import pytest
import torch
from random_programs import model_of
from test_indices_of_loops import refusal, wrong_of

from exportguard import ExportGuardError, to_onnx

_SIZES = (5, 1, 2, 3, 4, 6, 7, 9)  # the first is exported

_NUMBERS = ("min(4, n - 1)", "min(n, 3)", "max(n - 3, 1)", "n // 2", "n * 2 - 1", "n % 3", "n - 1", "-(-n // 2)", "n")
_USES = (
    *("y = y + x[:, min({k}, n - 1)]", "y = y * {k}", "y = y + x[:, : {k} + 1].sum(1)", "y = y + x.sum(1) / ({k} + 1)"),
    *("y = y + torch.arange({k} + 1).sum()", "y = y + torch.ones({k} + 2, 3).cumsum(0)[-1]"),
    *("y = y + x.new_zeros({k} + 1, 2, 3).add({k}).mean((0, 1))", "rest = rest[:, 1:] if rest.shape[1] > 1 else rest"),
)
_TESTS = (
    *("n == {c}", "n != {c}", "n > {c}", "n - 1 < {c}", "n % 2 == 1", "x.shape[1] in ({c}, {c} + 2)"),
    *("rest.shape[1] > 2", "{k} == {c}", "{k} > {c}"),
)

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        n, y, rest = x.shape[1], x.mean(1), x
        {body}
        return y
"""


def source_of(seed: int) -> str:
    """The program of a seed."""
    draw = random.Random(seed)
    lines: list[str] = []
    for part in range(draw.choice((2, 2, 3))):
        name = f"k{part}"
        lines.append(f"{name} = {draw.choice(_NUMBERS)}")
        uses = [use.format(k=draw.choice((name, name, "k0"))) for use in draw.sample(_USES, 3)]
        test = draw.choice(_TESTS).format(c=draw.choice((2, 3, 4, 5, 5, 6)), k=name)
        lines += [uses[0], f"if {test}:", f"    {uses[1]}", "else:", f"    {uses[2]}", draw.choice(("pass", uses[0]))]
    return _PROGRAM.format(body="\n        ".join(lines))


def outcome(seed: int) -> str:
    """Whether a program is right, or refused; else what is wrong."""
    model = model_of(source_of(seed), f"/ways/{seed}.py")
    inputs = [torch.randn((1 + n % 3, n, 3), generator=torch.Generator().manual_seed(seed)) for n in _SIZES]
    try:
        onnx = to_onnx(model, (inputs[0],), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")
    except ExportGuardError as error:
        return refusal(str(error))
    for x in inputs:
        if wrong := wrong_of(onnx, {"x": x}, model(x)):
            return f"wrong at {tuple(x.shape)}: {wrong}"
    return "right"


_WINDOW = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        n, y, rest = x.shape[1], x.mean(1), x
        for i in range(5):
            y = y * 0.5 + x[:, min(2 * i, n - 1)]
            rest = rest[:, 1:] if rest.shape[1] > 1 else rest
        return y
"""


def test_a_size_is_not_what_it_is_in_the_first_way() -> None:
    model = model_of(_WINDOW, "/ways/window.py")
    onnx = to_onnx(model, (torch.randn(2, 5, 3),), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")
    for n in _SIZES:
        x = torch.randn(3, n, 3)
        assert wrong_of(onnx, {"x": x}, model(x)) == ""


#: One of 40 programs of a bigger grid, eight of them at a time.
_SHARE, _AT_ONCE, _RIGHT = 40, 8, 4


@pytest.mark.parametrize("first", range(0, 960, _SHARE * _AT_ONCE))
def test_sizes_in_ways_are_right_or_refused(first: int) -> None:
    outcomes = {seed: outcome(seed) for seed in range(first, first + _SHARE * _AT_ONCE, _SHARE)}
    wrong = {seed: found for seed, found in outcomes.items() if found.startswith("wrong")}
    assert not wrong
    assert [*outcomes.values()].count("right") >= _RIGHT


def main() -> None:
    """Checks programs and prints those that are wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--show", nargs="*", default=["wrong"])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    for seed in range(options.start, options.start + options.count):
        try:
            found = outcome(seed)
        except Exception as error:
            found = f"raw: {type(error).__name__}: {error}"
        kind = re.split(r"[ :]", found)[0]
        counts[kind] += 1
        if kind in options.show:
            lines = source_of(seed).split("def forward(self, x):\n")[1]
            sys.stdout.write(f"--- {seed}\n{lines}{found[:700]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(sorted(counts.items()))}\n")


if __name__ == "__main__":
    main()
