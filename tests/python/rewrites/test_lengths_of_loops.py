"""Loops that sizes, data, or the length of the list that they fill end, in their head or within a step: right, or
refused.

`python tests/python/rewrites/test_lengths_of_loops.py --count 500` makes and checks as many and prints what is wrong.
"""

from __future__ import annotations

import random

import pytest
import torch
from drawn_programs import Share, check_by_hand, outcome_of, wrong_of
from random_programs import model_of

from exportguard import AxisError, to_onnx

#: The sizes of the input, first those that are exported.
SHAPES = tuple((b, n, 3) for b, n in ((2, 5), (1, 1), (3, 2), (2, 4), (1, 9), (4, 13)))

#: Heads of loops, and how the body counts on, where it has to.
_HEADS = {
    "while True:": "i += 1",
    "while not len(outs) >= {bound}:": "i += 1",
    "while len(outs) < {bound}:": "i += 2",
    "while i < {bound}:": "i += 1",
    "while (k := len(outs)) < {bound}:": "i += 1",
    "while i + 2 <= {bound} and len(outs) < 8:": "i += 2",
    "for i in range(40):": "",
    "for i in range(1, 30, 3):": "",
    "for i in itertools.count():": "",
    "for i in range({bound}):": "",
    "for i, row in enumerate(x.unbind(1)):": "",
}
_BOUNDS = ("n", "n", "n - 1", "6", "n + 1", "2 * n", "min(n, 4)", "n // 2 + 1")
_SIZE_TESTS = ("i >= n", "i == n", "len(outs) >= n", "len(outs) == n + 1", "i + 2 > n", "n <= i + 1", "i * 2 > n")
_TESTS = (
    *_SIZE_TESTS,
    "acc.sum() > 4",
    "len(outs) > 5",
    "i > 6",
    "len(outs) == 7 or i >= n",
    "i >= n and acc.sum() > 1",
)
_STEPS = (
    *("acc = acc * 0.5 + x[:, min(i, n - 1)]", "acc = acc * 0.7 + 0.3 * i", "acc = acc + 0.1 * len(outs)"),
    *("acc = acc.abs() + 0.4", "rest = rest[:, 1:] if rest.shape[1] > 1 else rest", "acc = acc + rest[:, 0]"),
)
_FILLED = (
    *("outs.append(acc)", "outs.append(acc)", "outs += [acc * 2]", "outs.append(acc); outs.append(-acc)"),
    *("outs.extend([acc, acc + 1])", "outs.append(acc + i)"),
)
_READING = (
    *("outs.append(outs[-1] * 0.5 + acc)", "outs += [outs[len(outs) - 1] + 0.1]", "outs.append(outs[0] + acc)"),
    *("outs.append(acc if len(outs) < 3 else acc * 2)",),
)
_RETURNED = (
    *("torch.stack(outs, 1)", "torch.stack(outs, 1)", "acc + len(outs)", "acc + i", "torch.cat(outs[::-1], 0)"),
    *("outs[-1] + i", "torch.stack(outs).sum(0) + len(outs)"),
)

_PROGRAM = """
import itertools

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        n, i, acc, rest = x.shape[1], 0, x.mean(1), x
        outs = {outs}
        {head}
            {body}
        return {returned}
"""


def source_of(seed: int) -> str:
    """The program of a seed."""
    draw = random.Random(seed)
    head = draw.choice([*_HEADS])
    starts = draw.choice((True, False))
    body = draw.sample(_STEPS, draw.choice((1, 2)))
    body.append(draw.choice((*_FILLED, *_READING) if starts else _FILLED))
    if _HEADS[head]:
        body.insert(draw.randrange(len(body) + 1), _HEADS[head])
    is_endless = head in ("while True:", "for i in itertools.count():")
    tests = [draw.choice(_SIZE_TESTS)] if is_endless or draw.random() < 0.5 else []
    tests += [draw.choice(_TESTS)] if draw.random() < 0.4 else []
    for test in tests:
        way = draw.choice(("break", "break", "break", "return acc"))
        body.insert(draw.randrange(len(body) + 1), f"if {test}:\n                {way}")
    return _PROGRAM.format(
        outs=draw.choice(("[x[:, 0]]", "[acc, acc * 2]")) if starts else "[]",
        head=head.format(bound=draw.choice(_BOUNDS)),
        body="\n            ".join(body),
        returned=draw.choice(_RETURNED),
    )


def outcome(seed: int) -> str:
    """Whether a program is right, refused, or one that eager mode does not take; else what is wrong."""
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for shape in SHAPES]
    return outcome_of(f"/lengths/{seed}.py", source_of(seed), inputs, {0: "b", 1: "n"}, told=AxisError)


#: Decoders as they are written, by what ends them.
_DECODERS = {
    "until there are as many": """
        while len(outs) < x.shape[1]:
            h = torch.tanh(h + x[:, len(outs)])
            outs.append(h)
        return torch.stack(outs, 1) + x
    """,
    "until a gate, or as many": """
        while True:
            h = torch.tanh(h * 1.2 + 0.1)
            outs += [h]
            if torch.sigmoid(h).min() > 0.6:
                break
            elif len(outs) == 12:
                break
        return torch.stack(outs, 1)
    """,
    "levels of a pyramid": """
        while True:
            outs.append(x.mean(1))
            if x.shape[1] < 4:
                break
            x = x[:, : x.shape[1] // 2]
        return torch.stack(outs, 1)
    """,
    "until the end of what may be longer": """
        for i in range(1000):
            if i == x.shape[1]:
                break
            h = h * 0.5 + x[:, i]
        return h
    """,
    "what comes before the last": """
        outs = [h, h * 2]
        for i in range(50):
            if len(outs) >= x.shape[1]:
                break
            outs.append(outs[len(outs) - 2] * 0.5 + x[:, i])
        return torch.stack(outs, 1)
    """,
    "an index of before, behind what data add": """
        outs = [h, h * 2]
        for i in range(x.shape[1]):
            k = len(outs)
            if x[:, i].sum() > 0:
                outs.append(x[:, i])
            h = h * 0.5 + outs[k - 1] - outs[k - 2]
        return h
    """,
    "a way that no size takes": """
        i = 0
        while True:
            if x.shape[1] // 2 * 2 > x.shape[1]:
                if h.sum() > 0:
                    h = torch.tanh(h)
                else:
                    h = None
            h = h * 0.5 + x[:, i]
            i += 1
            if i == x.shape[1]:
                break
        return h
    """,
    "the first": """
        outs = [h]
        for i in range(x.shape[1]):
            outs.append(outs[0] * 0.5 + outs[-1] + x[:, i])
        return torch.stack(outs, 1)
    """,
}
_DECODER = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        h, outs = x.mean(1), []
        {}
"""


@pytest.mark.parametrize("text", _DECODERS.values(), ids=_DECODERS)
def test_a_decoder_as_it_is_written_is_right(text: str) -> None:
    model = model_of(_DECODER.format(text.strip()), "/lengths/decoder.py")
    onnx = to_onnx(model, (torch.randn(SHAPES[0]),), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")
    for shape in SHAPES:
        x = torch.randn(shape)
        assert wrong_of(onnx, {"x": x}, model(x)) == ""


#: One of 50 programs of a bigger grid, ten of them at a time.
_SHARE = Share(count=500, every=50, at_once=3, right=1)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("first", _SHARE.firsts())
def test_lengths_of_loops_are_right_or_refused(first: int) -> None:
    _SHARE.check(outcome, first)


if __name__ == "__main__":
    check_by_hand(outcome, source_of)
