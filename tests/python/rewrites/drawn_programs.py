"""Programs that are drawn by a seed: checked beside eager mode, a share of them in a test and any others by hand."""

from __future__ import annotations

import argparse
import inspect
import itertools
import logging
import re
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from random_programs import model_of

from exportguard import ExportGuardError, to_onnx

#: What torch says of its own to nobody in particular.
_RAW = re.compile(r"Pending unbacked|size of tensor a|Could not guard|FakeTensor|Index put|does something else")

#: A model without its body.
HEAD = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"

#: How the steps of a loop over the rows of `x` are counted, and what ends them.
LOOPS = (
    "for row in x:",
    "for i in range(len(x)):\n    row = x[i]",
    "i = 0\nwhile i < len(x):\n    row = x[i]\n    i += 1",
    "for i, row in enumerate(x * 1):\n    if row.sum() > 3.0 + i:\n        break",
)

#: Lines of a program that ends.
_MOST_LINES = 3000

#: The first word of what became of a program that is wrong: other than eager mode, or stopped by torch's own text.
WRONG = ("wrong", "raw")


def outcome_of(
    name: str,
    source: str,
    inputs: list[torch.Tensor],
    shapes: dict[int, str],
    *,
    least: int = 4,
    told: type[ExportGuardError] | tuple[()] = (),
) -> str:
    """Whether a program is right, refused, or one that eager mode does not take; else what is wrong.

    Args:
        name: the file that the source is said to be from.
        source: a module with a `Model` of one input and one output.
        inputs: what it is called with; the first is exported.
        shapes: the names of the input's dynamic axes.
        least: of how many inputs eager mode has to make something.
        told: errors that are a refusal whatever they say.
    """
    model = model_of(source, name)
    known = [(x, in_eager_mode(model, x, name)) for x in inputs]
    if known[0][1] is None or sum(wanted is not None for _, wanted in known) < least:
        return "not in eager mode"
    try:
        onnx = to_onnx(model, (inputs[0],), dynamic_shapes=(shapes,), rewrite="auto")
    except ExportGuardError as error:
        return f"refused: {error}" if isinstance(error, told) else refusal(str(error))
    argument = next(iter(inspect.signature(model.forward).parameters))
    for x, wanted in known:
        if wanted is not None and (wrong := wrong_of(onnx, {argument: x}, wanted)):
            return f"wrong at {tuple(x.shape)}: {wrong}"
    return "right"


def outcome_at_rows(name: str, source: str, seed: int) -> str:
    """What became of a program of a matrix with three columns and any number of rows, of several signs."""
    draws = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(rows, 3, generator=draws) for rows in (5, 1, 2, 3, 8, 4, 7)]
    inputs += [-inputs[0].abs(), inputs[4].abs(), torch.zeros(4, 3)]
    return outcome_of(name, source, inputs, {0: "rows"})


def model_with(name: str, body: str, head: str = HEAD) -> torch.nn.Module:
    """The model of the file `name` whose `forward(self, x)` has a body; `head` is what stands above that."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return model_of(f"{head}{lines}\n", name)


def require_right(model: torch.nn.Module, columns: int = 2) -> None:
    """Checks a model of one matrix with any number of rows: a few, one, and more, of several signs, and zeros."""
    onnx = to_onnx(model, (torch.randn(5, columns),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows, (scale, shift) in itertools.product((5, 1, 2, 3, 8), ((1.0, 0.0), (0.5, -0.5), (0.0, 0.0))):
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)) * scale + shift
        wanted = model(x.clone())
        (answer,) = onnx.run({"x": x}).values()
        assert answer.dtype == wanted.dtype
        assert wrong_of(onnx, {"x": x}, wanted) == ""


def in_eager_mode(model: torch.nn.Module, x: torch.Tensor, name: str) -> torch.Tensor | None:
    """What the model of the file `name` makes of an input; None where it raises, or comes to no end."""
    lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += 1
        if lines > _MOST_LINES:
            raise RuntimeError("no end")
        return count

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: count if frame.f_code.co_filename == name else None)
    try:
        found = model(x.clone())
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    finally:
        sys.settrace(before)
    return found if isinstance(found, torch.Tensor) else None  # not the sum of no elements


def refusal(text: str) -> str:
    """Whether a text tells a user what to do."""
    raw = _RAW.search(text)
    return f"raw: {text}" if raw or not re.search(r"line \d|\.py:\d", text) else f"refused: {text}"


def wrong_of(onnx: Any, inputs: dict[str, torch.Tensor], wanted: torch.Tensor) -> str:
    """What a model makes of its inputs other than it should, if it does."""
    try:
        (found,) = onnx.run(inputs).values()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    if found.shape != wanted.shape:
        return f"the shape {tuple(found.shape)} instead of {tuple(wanted.shape)}"
    return "" if torch.allclose(found, wanted, rtol=1e-3, atol=1e-3) else "other numbers"


@dataclass(frozen=True)
class Share:
    """Which programs of a grid a test run checks: one of `every`, `at_once` in a test, of which `right` are right."""

    count: int
    every: int
    at_once: int
    right: int

    def firsts(self) -> range:
        """The first seed of each test."""
        return range(0, self.count, self.every * self.at_once)

    def check(self, outcome: Callable[[int], str], first: int) -> None:
        """Checks the programs of the test that begins with the seed `first`."""
        outcomes = {seed: outcome(seed) for seed in range(first, first + self.every * self.at_once, self.every)}
        assert not {seed: found for seed, found in outcomes.items() if found.startswith(WRONG)}
        assert [*outcomes.values()].count("right") >= self.right


def check_by_hand(outcome: Callable[[int], str], source_of: Callable[[int], str]) -> None:
    """Checks the programs of the seeds on the command line and prints those that are wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--show", nargs="*", default=WRONG, help="what is printed, by the first word of its outcome")
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
            sys.stdout.write(f"--- {seed}\n{source_of(seed)}{found[:700]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(sorted(counts.items()))}\n")
