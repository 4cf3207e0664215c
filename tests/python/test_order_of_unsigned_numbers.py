"""Unsigned numbers of 16 to 64 bits have their own order and arithmetic, whatever torch computes them with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from exportguard import _core
from exportguard.runners.evaluator import EvaluatorSession

DTYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64}
COUNT = 6

Numbers = np.ndarray[Any, Any]
Function = Callable[[Numbers, Numbers], Numbers]


def scattered(update: Any) -> Function:
    """Writes each number of `b` to the place behind its own in `a`."""

    def compute(a: Numbers, b: Numbers) -> Numbers:
        result = a.copy()
        update.at(result, places(len(a)), b)
        return result

    return compute


def places(count: int) -> Numbers:
    return (np.arange(count) + 1) % count


def largest(a: Numbers, _: Numbers) -> Numbers:
    return np.sort(a)[::-1][:3]


PLACES = ", ".join(map(str, places(COUNT)))

#: An operator of two lists, in the text of a graph, beside numpy's.
FUNCTIONS: dict[str, tuple[str, Function]] = {
    "Clip from below": (
        "%low = ReduceMax(%b) {keepdims=0}\n  %y = Clip(%a, %low)",
        lambda a, b: np.maximum(a, b.max()),
    ),
    "Clip from above": (
        "%high = ReduceMin(%b) {keepdims=0}\n  %y = Clip(%a, _, %high)",
        lambda a, b: np.minimum(a, b.min()),
    ),
    "ReduceMax": ("%y = ReduceMax(%a) {keepdims=0}", lambda a, b: a.max()),
    "ReduceMin": ("%y = ReduceMin(%a) {keepdims=0}", lambda a, b: a.min()),
    "ReduceSum": ("%y = ReduceSum(%a) {keepdims=0}", lambda a, b: a.sum(dtype=a.dtype)),
    "ReduceL1": ("%y = ReduceL1(%a) {keepdims=0}", lambda a, b: a.sum(dtype=a.dtype)),
    "ArgMax": ("%y = ArgMax(%a) {keepdims=0}", lambda a, b: a.argmax()),
    "ArgMin": ("%y = ArgMin(%a) {keepdims=0}", lambda a, b: a.argmin()),
    "ArgMax, the last": (
        "%y = ArgMax(%a) {keepdims=0, select_last_index=1}",
        lambda a, b: len(a) - 1 - a[::-1].argmax(),
    ),
    "TopK": ("%k = Constant() {value=i64[1]{3}}\n  %y, %i = TopK(%a, %k)", largest),
    "TopK of the smallest": (
        "%k = Constant() {value=i64[1]{3}}\n  %y, %i = TopK(%a, %k) {largest=0}",
        lambda a, b: np.sort(a)[:3],
    ),
    "Unique": ("%y = Unique(%a)", lambda a, b: np.unique(a)),
    "PRelu": ("%y = PRelu(%a, %b)", lambda a, b: a),
    "Abs": ("%y = Abs(%a)", lambda a, b: a),
    "Sign": ("%y = Sign(%a)", lambda a, b: np.sign(a)),
    "Max": ("%y = Max(%a, %b)", np.maximum),
    "Min": ("%y = Min(%a, %b)", np.minimum),
    "Less": ("%y = Less(%a, %b)", np.less),
    "GreaterOrEqual": ("%y = GreaterOrEqual(%a, %b)", np.greater_equal),
    "Add": ("%y = Add(%a, %b)", np.add),
    "Sub": ("%y = Sub(%a, %b)", np.subtract),
    "Mul": ("%y = Mul(%a, %b)", np.multiply),
    "Div": ("%y = Div(%a, %b)", np.floor_divide),
    "Mod": ("%y = Mod(%a, %b)", np.mod),
    **{
        f"ScatterElements, {name}": (
            f"%i = Constant() {{value=i64[{COUNT}]{{{PLACES}}}}}\n"
            f'  %y = ScatterElements(%a, %i, %b) {{reduction="{name}"}}',
            scattered(update),
        )
        for name, update in {"max": np.maximum, "min": np.minimum, "add": np.add, "mul": np.multiply}.items()
    },
    **{
        f"ScatterND, {name}": (
            f"%i = Constant() {{value=i64[{COUNT}, 1]{{{PLACES}}}}}\n"
            f'  %y = ScatterND(%a, %i, %b) {{reduction="{name}"}}',
            scattered(update),
        )
        for name, update in {"max": np.maximum, "min": np.minimum, "add": np.add, "mul": np.multiply}.items()
    },
}


def drawn(random: np.random.Generator, dtype: type[np.unsignedinteger[Any]]) -> Numbers:
    """Numbers at both ends and in the middle, where a sign would change, and some between them."""
    most = int(np.iinfo(dtype).max)
    ends = [1, 2, 3, most // 2, most // 2 + 1, most // 2 + 2, most - 1, most]
    numbers = [*random.choice(np.array(ends, np.uint64), COUNT - 2), *random.integers(1, most, 2, np.uint64)]
    return np.array(random.permutation(np.array(numbers, np.uint64)), dtype)


def run(text: str, inputs: dict[str, torch.Tensor]) -> Numbers:
    return np.asarray(EvaluatorSession(_core.Model.parse(text)).run(inputs)[0])


def test_unsigned_numbers_are_those_of_numpy() -> None:
    others = []
    for (function, (body, compute)), bits in itertools.product(FUNCTIONS.items(), DTYPES):
        text = f"opset 22\ngraph(%a: {bits}[{COUNT}], %b: {bits}[{COUNT}]):\n  {body}\n  return (%y)"
        random = np.random.default_rng(0)
        for _ in range(20):
            a, b = drawn(random, DTYPES[bits]), drawn(random, DTYPES[bits])
            got = run(text, {"a": torch.from_numpy(a), "b": torch.from_numpy(b)})
            if got.tolist() != np.asarray(compute(a, b)).tolist():
                others.append((function, bits, a, b, got))
    assert not others


@pytest.mark.parametrize(("operator", "end"), [("ReduceMax", min), ("ReduceMin", max)])
def test_of_no_numbers_the_extreme_is_the_other_end(operator: str, end: Callable[..., int]) -> None:
    for bits, dtype in DTYPES.items():
        text = f"opset 22\ngraph(%a: {bits}[n]):\n  %y = {operator}(%a) {{keepdims=0}}\n  return (%y)"
        none = torch.from_numpy(np.empty(0, dtype))
        assert int(run(text, {"a": none})) == end(0, int(np.iinfo(dtype).max))
