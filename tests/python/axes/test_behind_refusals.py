"""Tests of sizes in models that take few of them: what a model refuses for one reason says nothing about another.

`python test_behind_refusals.py` compares every refusal with every test, and prints how many are right and refused.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx
from exportguard.errors import AxisError, ExportGuardError

#: What the model asks of the two axes before all else, with sizes that it takes.
REFUSALS: Mapping[str, tuple[str, int]] = {
    "asserted": ("assert h % 14 == 0 and w % 14 == 0", 14),
    "raised": ("if h % 6 or w % 6:\n            raise ValueError(h, w)", 6),
    "checked": ("torch._check(h % 10 == 0)\n        torch._check(w % 10 == 0)", 10),
    "viewed": ("x = x.view(-1, h // 9, 9, w // 9, 9).reshape(x.shape)", 9),
    "shuffled": ("x = torch.nn.functional.pixel_unshuffle(x, 7).mean(1, keepdim=True).repeat(1, 1, 7, 7)", 7),
    "least": ("assert min(h, w) >= 40", 20),
    "one alone": ("assert h % 15 == 0", 15),
}
#: Tests of the two axes, with what they decide.
TESTS: Mapping[str, str] = {
    "equal": "h == w",
    "equal rows": "x.shape[-1] == x.shape[-2]",
    "as many": "h * w == 4 * {0} ** 2",
    "less": "h < w",
    "more by some": "h > w + {0}",
    "double": "h == 2 * w",
    "large": "h > 3 * {0}",
    "both": "h > 2 * {0} and w > 2 * {0}",
    "blocks": "h // {0} == w // {0} + 1",
    "twice so many": "h % (2 * {0}) == 0",
}
_TEXT = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        h, w = x.shape[-2:]
        {refusal}
        if {test}:
            return x * 2
        return x.sin() + 1
"""
_BLOCKS = (1, 2, 3, 4, 5)
_EXAMPLES = ((2, 2), (4, 2), (2, 3))  # in blocks


def outcome_of(refusal: str, test: str, rewrite: Any, example: tuple[int, int]) -> str:
    """Whether a model is refused, or right at all sizes that it takes.

    Raises:
        AssertionError: the file does something else than the model.
    """
    asked, unit = REFUSALS[refusal]
    text = _TEXT.format(refusal=asked, test=TESTS[test].format(unit))
    model = model_of(text, "/behind refusals.py")
    given = torch.ones(1, 1, example[0] * unit, example[1] * unit)
    try:
        onnx = to_onnx(model, (given,), dynamic_shapes=({2: "h", 3: "w"},), rewrite=rewrite)
    except AxisError:  # it is told that an axis is lost
        return "refused"
    for rows, columns in itertools.product(_BLOCKS, _BLOCKS):
        x = torch.randn(1, 1, rows * unit, columns * unit)
        try:
            expected = model(x)
        except (AssertionError, ValueError, RuntimeError):
            continue
        (got,) = onnx.run({"x": x}).values()
        message = f"{refusal}, {test}, {example}: {x.shape[2:]}"
        torch.testing.assert_close(torch.as_tensor(got), expected, msg=message)
    return "right"


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("example", _EXAMPLES, ids=str)
@pytest.mark.thinned(7)
def test_tests_are_right_or_refused(refusal: str, test: str, example: tuple[int, int]) -> None:
    outcome_of(refusal, test, (), example)


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.thinned(7)
def test_rewritten_tests_are_right(refusal: str, test: str) -> None:
    assert outcome_of(refusal, test, "auto", _EXAMPLES[0]) == "right"


def _main() -> None:
    for rewrite in ((), "auto"):
        outcomes = Counter[str]()
        for refusal, test, example in itertools.product(REFUSALS, TESTS, _EXAMPLES):
            try:
                outcomes[outcome_of(refusal, test, rewrite, example)] += 1
            except (AssertionError, ExportGuardError) as error:
                print(type(error).__name__, refusal, test, example, error, sep=": ")
                outcomes[type(error).__name__] += 1
        print(rewrite or "as they are", dict(outcomes))


if __name__ == "__main__":
    _main()
