"""What a model asks of several axes at once that is no sum of them: halves, windows, cuts, orders, remainders.

A file may do otherwise at sizes where eager mode broadcasts what was more than one entry in the trace, where the
reverse is so, or behind a test. Every export is compared with eager mode at sizes near the example's and far from them.

`python test_relations_of_sizes.py 500` checks as many models and prints how many are right, refused and wrong, which of
them stop in a run, and for how many no example was found; `--rewrite auto` makes branches of the tests.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from exportguard import ExportGuardError, OnnxModel, to_onnx
from exportguard.errors import AxisError

_INPUTS, _SHORTEST, _LONGEST = 4, 2, 12
_COMPARED = 40  # sizes of each export
_DRAW = torch.Generator().manual_seed(0)
_LENGTHS = range(_SHORTEST, _LONGEST + 1)
_ROWS = {length: [torch.randn(2, length, 3, generator=_DRAW) for _ in range(_INPUTS)] for length in _LENGTHS}

Step = tuple[str, int, int]  # what is done, and with which two of the inputs
Function = Callable[[Tensor, Tensor, Tensor], Tensor]


def _rows(value: Tensor) -> int:
    return value.shape[1]


def _pooled(value: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool1d(value.transpose(1, 2), 2).transpose(1, 2)


def _paired(value: Tensor) -> Tensor:
    return value[:, : _rows(value) // 2 * 2].unflatten(1, (-1, 2)).sum(2)


def _masked(value: Tensor, of: Tensor) -> Tensor:
    return value.masked_fill(torch.arange(_rows(of))[None, :, None] > 1, 0.0)


OPERATORS: Mapping[str, Function] = {
    "add": lambda x, a, b: x + (a + b).mean(1),
    "add to a half": lambda x, a, b: x + (a[:, ::2] + b).mean(1),
    "add to windows": lambda x, a, b: x + (_pooled(a) + b).mean(1),
    "add to pairs": lambda x, a, b: x + (_paired(a) + b).mean(1),
    "add halves": lambda x, a, b: x + (a[:, ::2] + b[:, ::2]).mean(1),
    "multiply windows": lambda x, a, b: x + (_pooled(a) * _pooled(b)).mean(1),
    "add to the rest": lambda x, a, b: x + (a[:, 1:] + b).mean(1),
    "cut": lambda x, a, b: x + (a[:, : _rows(b)] * 2).mean(1),
    "cut and add": lambda x, a, b: x + (a[:, : _rows(b)] + b).mean(1),
    "cut from the end": lambda x, a, b: x + (a[:, -_rows(b) :] + b).mean(1),
    "join": lambda x, a, b: x + torch.cat([a, b], 1).amax(1),
    "narrow": lambda x, a, b: x + a.narrow(1, 0, _rows(b)).mean(1),
    "mask": lambda x, a, b: x + _masked(a, b).mean(1),
}
TESTS: Mapping[str, Function] = {
    "equal": lambda x, a, b: x.sin() if _rows(a) != _rows(b) else x,
    "less": lambda x, a, b: x.sin() if _rows(a) < _rows(b) else x,
    "more": lambda x, a, b: x * 2 if _rows(a) > _rows(b) else x,
    "not more": lambda x, a, b: x.cos() if _rows(a) <= _rows(b) else x + 1,
    "equal halves": lambda x, a, b: x.sin() if _rows(a) // 2 == _rows(b) // 2 else x + 1,
    "half of it": lambda x, a, b: x.sin() if _rows(a) // 2 == _rows(b) else x + 1,
    "both odd": lambda x, a, b: x.sin() if _rows(a) % 2 == _rows(b) % 2 else x + 1,
    "far apart": lambda x, a, b: x.sin() if _rows(a) - _rows(b) > 2 else x + 1,
    "twice": lambda x, a, b: x.sin() if _rows(a) >= 2 * _rows(b) else x + 1,
    "largest": lambda x, a, b: x * max(_rows(a), _rows(b)),
    "smallest": lambda x, a, b: x * min(_rows(a), _rows(b)) + x,
}


class Relates(torch.nn.Module):
    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        rows = (a, b, c, d)
        x = rows[0].sum(1) + rows[1].sum(1) + rows[2].amax(1) + rows[3].amin(1)
        for name, one, other in self.steps:
            x = {**OPERATORS, **TESTS}[name](x, rows[one], rows[other])
        return x


def steps_of(seed: int) -> list[Step]:
    draw = random.Random(seed)
    kinds = [draw.choice([OPERATORS, OPERATORS, TESTS]) for _ in range(draw.randint(1, 4))]
    return [(draw.choice([*kind]), *draw.sample(range(_INPUTS), 2)) for kind in kinds]  # type: ignore[misc]


def _given(lengths: Sequence[int]) -> tuple[Tensor, ...]:
    return tuple(_ROWS[length][place] for place, length in enumerate(lengths))


def _eager(model: torch.nn.Module, lengths: Sequence[int]) -> Tensor | None:
    """What the model returns; None if it refuses the lengths."""
    try:
        result: Tensor = model(*_given(lengths))
    except RuntimeError:
        return None
    return result


def example_of(model: torch.nn.Module, draw: random.Random) -> Sequence[int] | None:
    """Lengths that the model takes."""
    lengths = [*itertools.product((3, 4, 5, 6, 9, 10), repeat=_INPUTS)]
    draw.shuffle(lengths)
    return next((each for each in lengths[:400] if _eager(model, each) is not None), None)


def as_declared(onnx: OnnxModel, lengths: Sequence[int]) -> bool:
    """Whether lengths are those that the axes are kept as: `s74 - 1` is what torch found one to be."""
    axes = [axis.size for axis in onnx.axes]
    known = {axis: length for axis, length in zip(axes, lengths, strict=True) if axis.isidentifier()}
    names = [{node.id for node in ast.walk(ast.parse(axis)) if isinstance(node, ast.Name)} for axis in axes]
    return all(
        eval(axis, {}, known) == length
        for axis, used, length in zip(axes, names, lengths, strict=True)
        if used <= known.keys()
    )


def compared(onnx: OnnxModel, model: Relates, example: Sequence[int], draw: random.Random) -> Iterator[bool]:
    """Whether the file runs at each of some lengths that the model takes, where it does what the model does.

    Raises:
        AssertionError: it does something else.
    """
    near = ([length + draw.choice((-2, -1, 0, 0, 0, 1, 2)) for length in example] for _ in range(500))
    far = [*itertools.product(_LENGTHS, repeat=_INPUTS)]
    draw.shuffle(far)
    candidates = (each for each in (*near, *far[:1500]) if all(length in _LENGTHS for length in each))
    taken = ((each, _eager(model, each)) for each in candidates if as_declared(onnx, each))
    for lengths, expected in itertools.islice(((each, value) for each, value in taken if value is not None), _COMPARED):
        try:
            (got,) = onnx.run(dict(zip("abcd", _given(lengths), strict=True))).values()
        except RuntimeError:
            yield False
            continue
        torch.testing.assert_close(
            torch.as_tensor(got), expected, rtol=1e-4, atol=1e-4, msg=f"{model.steps}: {lengths}"
        )
        yield True


def outcome_of(seed: int, rewrite: Any = ()) -> str:
    draw, model = random.Random(seed + 1_000_000), Relates(steps_of(seed)).eval()
    example = example_of(model, draw)
    if example is None:
        return "none"
    try:
        onnx = to_onnx(model, _given(example), dynamic_shapes=({1: Dim.DYNAMIC},) * _INPUTS, rewrite=rewrite)
    except ExportGuardError:
        return "refused"
    return "right" if all(compared(onnx, model, example, draw)) else "stops"


@pytest.mark.parametrize("first", range(0, 30, 5))
@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
def test_relations_are_right_or_refused(first: int, rewrite: Any) -> None:
    outcomes = Counter(outcome_of(seed, rewrite) for seed in range(first, first + 5))
    assert outcomes["right"]
    assert not outcomes["stops"]


@pytest.mark.parametrize(
    ("steps", "lengths"),
    [
        ([("multiply windows", 1, 0), ("add", 3, 2)], (10, 3, 4, 4)),
        ([("add halves", 2, 1), ("narrow", 2, 0), ("not more", 3, 2), ("mask", 2, 3)], (6, 6, 6, 6)),
        ([("add to windows", 1, 2), ("multiply windows", 2, 1), ("mask", 0, 3)], (3, 3, 4, 3)),
        ([("add to windows", 2, 0), ("add halves", 0, 2), ("mask", 2, 3), ("narrow", 0, 1)], (4, 3, 3, 3)),
    ],
)
def test_what_is_broadcast_at_other_sizes_is_refused(steps: list[Step], lengths: Sequence[int]) -> None:
    with pytest.raises(AxisError, match="does something else than the model"):
        to_onnx(Relates(steps).eval(), _given(lengths), dynamic_shapes=({1: Dim.DYNAMIC},) * _INPUTS)


def test_a_size_that_the_model_broadcasts_is_no_reason_for_a_constant() -> None:
    """The program of the example takes all sizes but one, and that of an example of this size takes no other."""
    model = Relates([("add to the rest", 0, 1)]).eval()
    with pytest.raises(AxisError) as error:
        to_onnx(model, _given((9, 8, 4, 4)), dynamic_shapes=({1: Dim.DYNAMIC},) * _INPUTS)
    assert "fixed to" not in str(error.value)
    assert "a[1] - 1 == b[1]" in str(error.value)


@pytest.mark.parametrize(
    ("steps", "lengths", "rewrite"),
    [
        ([("cut from the end", 2, 0)], (2, 2, 2, 6), ()),
        ([("both odd", 0, 1), ("far apart", 3, 2), ("cut from the end", 2, 0)], (4, 3, 5, 6), "auto"),
    ],
    ids=["one way", "several ways"],
)
def test_axes_that_are_as_long_in_an_example_are_not_taken_for_one(
    steps: list[Step], lengths: Sequence[int], rewrite: Any
) -> None:
    """Of the ways of a tree one was traced where two axes are as long, and was taken for all that lead to it."""
    model = Relates(steps).eval()
    onnx = to_onnx(model, _given(lengths), dynamic_shapes=({1: Dim.DYNAMIC},) * _INPUTS, rewrite=rewrite)
    assert len({str(each.shape[1]) for each in onnx.inputs}) == _INPUTS
    assert all(compared(onnx, model, lengths, random.Random(0)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--rewrite", default=(), choices=["auto"])
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    for seed in range(options.start, options.start + options.count):
        try:
            outcome = outcome_of(seed, options.rewrite)
        except AssertionError as error:
            outcome = "wrong"
            sys.stdout.write(f"{seed}: {next(iter(str(error).splitlines()), '')}\n")
        counts[outcome] += 1
        if outcome == "stops":
            sys.stdout.write(f"{seed}: {steps_of(seed)} stops in a run\n")
    sys.stdout.write(f"{dict(sorted(counts.items()))}\n")
