"""Sizes that are computed before a test of sizes, and used in each way through the model: right at every size.

`python tests/python/rewrites/test_sizes_in_ways.py --count 200` makes and checks as many and prints what is wrong.
"""

from __future__ import annotations

import random

import pytest
import torch
from drawn_programs import Share, check_by_hand, outcome_of, wrong_of
from random_programs import model_of

from exportguard import to_onnx

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
    inputs = [torch.randn((1 + n % 3, n, 3), generator=torch.Generator().manual_seed(seed)) for n in _SIZES]
    return outcome_of(f"/ways/{seed}.py", source_of(seed), inputs, {0: "b", 1: "n"}, least=len(_SIZES))


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
_SHARE = Share(count=640, every=40, at_once=3, right=1)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_sizes_in_ways_are_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
