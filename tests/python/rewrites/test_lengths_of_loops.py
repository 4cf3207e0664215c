"""Loops that sizes, data, or the length of the list that they fill end, in their head or within a step: right, or
refused.

`python tests/python/rewrites/test_lengths_of_loops.py --count 500` makes and checks as many and prints what is wrong.
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

from exportguard import AxisError, ExportGuardError, to_onnx

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
    model = model_of(source_of(seed), f"/lengths/{seed}.py")
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for shape in SHAPES]
    known = [(x, _in_eager_mode(model, x)) for x in inputs]
    if known[0][1] is None or sum(wanted is not None for _, wanted in known) < 4:
        return "not in eager mode"
    try:
        onnx = to_onnx(model, (inputs[0],), dynamic_shapes=({0: "b", 1: "n"},), rewrite="auto")
    except AxisError as error:  # at which sizes the program is another one is said on purpose
        return f"refused: {error}"
    except ExportGuardError as error:
        return refusal(str(error))
    for x, wanted in known:
        if wanted is not None and (wrong := wrong_of(onnx, {"x": x}, wanted)):
            return f"wrong at {tuple(x.shape)}: {wrong}"
    return "right"


_MOST_STEPS = 3000  # lines of a program that ends


def _in_eager_mode(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor | None:
    """What the model makes of an input; None where it raises, or comes to no end."""
    lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += 1
        if lines > _MOST_STEPS:
            raise RuntimeError("no end")
        return count

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: count if frame.f_code.co_filename.startswith("/lengths/") else None)
    try:
        found: torch.Tensor = model(x.clone())
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    finally:
        sys.settrace(before)
    return found


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
_SHARE, _AT_ONCE, _RIGHT = 50, 10, 6


@pytest.mark.parametrize("first", range(0, 1000, _SHARE * _AT_ONCE))
def test_lengths_of_loops_are_right_or_refused(first: int) -> None:
    outcomes = {seed: outcome(seed) for seed in range(first, first + _SHARE * _AT_ONCE, _SHARE)}
    wrong = {seed: found for seed, found in outcomes.items() if found.startswith(("wrong", "raw"))}
    assert not wrong
    assert [*outcomes.values()].count("right") >= _RIGHT


def main() -> None:
    """Checks programs and prints those that are wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--show", nargs="*", default=["wrong", "raw"])
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
