"""Tests of sizes in models that take few of them: what a model refuses for one reason says nothing about another.

`python test_behind_refusals.py 100` compares so many of all pairs, and prints how many are right and refused.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx
from exportguard.errors import AxisError, ExportError, ExportGuardError

#: What the model asks of the two axes, with the steps of the sizes that it takes, and what is added to them.
REFUSALS: Mapping[str, tuple[str, int, int]] = {
    "asserted": ("assert h % 14 == 0 and w % 14 == 0", 14, 0),
    "raised": ("if h % 6 or w % 6: raise ValueError(h, w)", 6, 0),
    "raised of its own": ("if h % 6 or w % 6: raise Odd(h, w)", 6, 0),
    "checked": ("torch._check(h % 10 == 0); torch._check(w % 10 == 0)", 10, 0),
    "viewed": ("x = x.view(-1, h // 9, 9, w // 9, 9).reshape(x.shape)", 9, 0),
    "shuffled": ("x = torch.nn.functional.pixel_unshuffle(x, 7).mean(1, keepdim=True).repeat(1, 1, 7, 7)", 7, 0),
    "least": ("assert min(h, w) >= 40", 20, 0),
    "one alone": ("assert h % 15 == 0", 15, 0),
    "rest": ("assert (h + 3) % 14 == 0 and (w + 3) % 14 == 0", 14, -3),
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
_CLASS = """
import torch


class Odd(Exception):
    pass


class Model(torch.nn.Module):
    def forward(self, x):
        h, w = x.shape[-2:]
"""
#: Where the model asks it: before a test, or behind one of its answers.
PLACES: Mapping[str, str] = {
    "before": """
        {refusal}
        if {test}:
            return x * 2
        return x.sin() + 1
""",
    "behind no": """
        if {test}:
            return x * 2
        {refusal}
        return x.sin() + 1
""",
    "behind yes": """
        if {test}:
            {refusal}
            return x * 2
        return x.sin() + 1
""",
    "behind another": """
        if h > 2 * {unit}:
            x = x.contiguous()
        {refusal}
        if {test}:
            return x * 2
        return x.sin() + 1
""",
}
_BLOCKS = (1, 2, 3, 4, 5)
_EXAMPLES = ((2, 2), (4, 2), (2, 3))  # in blocks


class Case(NamedTuple):
    place: str
    refusal: str
    test: str
    example: tuple[int, int]


def cases() -> Iterator[Case]:
    """All of them, in an order by which a part has some of each."""
    every = [*itertools.starmap(Case, itertools.product(PLACES, REFUSALS, TESTS, _EXAMPLES))]
    random.Random(0).shuffle(every)
    return iter(every)


def model_and_sizes(case: Case) -> tuple[torch.nn.Module, Callable[[int], int]]:
    """The model, and the size of so many blocks."""
    refusal, unit, more = REFUSALS[case.refusal]
    text = PLACES[case.place].format(refusal=refusal, test=TESTS[case.test].format(unit), unit=unit)
    return model_of(_CLASS + text, "/behind refusals.py"), lambda blocks: blocks * unit + more


def outcome_of(case: Case, rewrite: Any) -> str:
    """Whether a model takes its example at all, is refused, or is right at all sizes that it takes.

    Raises:
        AssertionError: the file does something else than the model.
    """
    model, size_of = model_and_sizes(case)
    given = torch.ones(1, 1, *map(size_of, case.example))
    if not _takes(model, given):
        return "no example"
    try:
        onnx = to_onnx(model, (given,), dynamic_shapes=({2: "h", 3: "w"},), rewrite=rewrite)
    except AxisError:  # it is told that an axis is lost
        return "refused"
    for blocks in itertools.product(_BLOCKS, _BLOCKS):
        x = torch.randn(1, 1, *map(size_of, blocks))
        if _takes(model, x):
            (got,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(torch.as_tensor(got), model(x), msg=f"{case}: {x.shape[2:]}")
    return "right"


def _takes(model: torch.nn.Module, x: torch.Tensor) -> bool:
    try:
        model(x)
    except Exception as error:
        return not isinstance(error, AssertionError | ValueError | RuntimeError) and type(error).__name__ != "Odd"
    return True


@pytest.mark.parametrize("case", [*itertools.islice(cases(), 400)], ids=lambda case: "-".join(map(str, case)))
@pytest.mark.thinned(20)
def test_tests_are_right_or_refused(case: Case) -> None:
    outcome_of(case, ())


@pytest.mark.parametrize("case", [*itertools.islice(cases(), 400, 600)], ids=lambda case: "-".join(map(str, case)))
@pytest.mark.thinned(20)
def test_rewritten_tests_are_right_or_refused(case: Case) -> None:
    outcome_of(case, "auto")


#: Programs, with sizes of an example and others.
PROGRAMS: Mapping[str, tuple[str, tuple[int, int], tuple[int, int]]] = {
    "square before": ("assert h % 14 == 0 and w % 14 == 0\n        return x * 2 if h == w else x", (28, 28), (14, 42)),
    "square first": (
        "if h == w: return x * 2\n        assert h % 14 == 0 and w % 14 == 0\n        return x", (28, 28), (14, 42),
    ),
    "line": ("assert w == h or w == 3 * h + 1\n        return x * 2 if h == w else x", (8, 8), (5, 16)),
    "rest": ("if h < 40: return x * 2\n        assert (h + 1) % 32 == 0\n        return x", (8, 8), (63, 8)),
    "product": ("assert (h + 2) % 14 == 0\n        return x if h * w > 2500 else x * 2", (12, 8), (40, 68)),
    "rare product": ("if h > 10 and w > 10 and h * w == 37 * 29: return x * 2\n        return x", (5, 7), (29, 37)),
    "large behind another": (
        "if h > 11:\n            if h > 1050: return x * 2\n        return x", (5, 7), (1100, 4),
    ),
    "view behind either": (
        "if w > 1 or h < 40: return x * 2\n        return x.view(1, 1, h // 14, 14, w).sin().reshape(x.shape)",
        (28, 5), (56, 1),
    ),
    "no end": (
        "if h >= 4: return x * 2\n        k = h\n        while k % 4: k = 2 * k + 1\n        return x",
        (8, 5), (12, 3),
    ),
    "data in front": (
        "if x.sum() > 1e9: x = x + 1\n        assert float(x.max()) < 1e9\n        if h == w: return x * 2\n"
        "        assert h % 14 == 0 and w % 14 == 0\n        return x",
        (28, 28), (14, 42),
    ),
    "tiles of many rows": (
        "if h > 64:\n            n = (h + 2047) // 2048\n            return torch.cat("
        "[x[:, :, i * 2048 : (i + 1) * 2048].relu() * (i + 1) for i in range(n)], 2)\n        return x.relu()",
        (16, 16), (2100, 8),
    ),
    "data at large sizes": (
        "if h > 380: x = x.contiguous()\n        if h > 400: return x * float(x.max())\n        return x",
        (5, 7), (401, 9),
    ),
}  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
def test_what_no_trace_asks_is_found(name: str, rewrite: Any) -> None:
    text, example, sizes = PROGRAMS[name]
    model = model_of(f"{_CLASS}        {text}\n", "/behind refusals.py")
    try:
        onnx = to_onnx(model, (torch.ones(1, 1, *example),), dynamic_shapes=({2: "h", 3: "w"},), rewrite=rewrite)
    except AxisError:
        return
    except ExportError:
        assert not rewrite  # a test of data needs to be rewritten
        return
    x = torch.randn(1, 1, *sizes)
    (got,) = onnx.run({"x": x}).values()
    torch.testing.assert_close(torch.as_tensor(got), model(x))


def _main() -> None:
    for rewrite in ((), "auto"):
        outcomes = Counter[str]()
        for case in itertools.islice(cases(), int(sys.argv[1]) if len(sys.argv) > 1 else None):
            try:
                outcomes[outcome_of(case, rewrite)] += 1
            except (AssertionError, ExportGuardError) as error:
                print(type(error).__name__, case, error, sep=": ")
                outcomes[type(error).__name__] += 1
        print(rewrite or "as they are", dict(outcomes))


if __name__ == "__main__":
    _main()
