"""Tuples of tensor data are put in order by the first of their elements that differ, as Python compares them."""

from __future__ import annotations

import random

import pytest
import torch
from drawn_programs import model_with, require_right

from exportguard import ExportGuardError, to_onnx

_PAIRS = "[(float(row.round().sum()), i, float(row[0])) for i, row in enumerate(x)]"
_KNOWN = "[(x[k % len(x)].round().sum(), k) for k in range(4)]"

RIGHT = {
    "sorted": f"return torch.tensor([i for _, i, _ in sorted({_PAIRS})])",
    "sorted backwards": f"return torch.tensor([b for _, _, b in sorted({_PAIRS}, reverse=True)])",
    "by a key": "return torch.stack(sorted(x, key=lambda row: (row.round().sum() > 0, -row[0])))",
    "within tuples": "return torch.stack(sorted(x, key=lambda row: ((row[0].round(), row[1].round()), row[2])))",
    "in place": f"t = {_PAIRS}\nt.sort(key=lambda p: (-p[0], p[2]))\nreturn torch.tensor([p[1] for p in t])",
    "of known length": f"""
        t = sorted({_KNOWN}, key=lambda p: (-p[0], p[1]))
        return torch.stack([a + 10 * k for a, k in t])
    """,
    "the best": f"return torch.tensor(max({_PAIRS}))",
    "the least": f"return torch.tensor(min({_PAIRS}, key=lambda p: (p[0], -p[1]))[1])",
    "the best of known length": f"a, k = max({_KNOWN})\nreturn a + k",
    "the least of two": """
        a, b, c = min((x[0, 0].round(), x[0, 1], 1), (x[-1, 0].round(), x[-1, 2], 2))
        return a + b + c
    """,
    "of rows that data leave": "return torch.stack(sorted([row for row in x if row[0] > -9], key=lambda row: row[1]))",
    "so far": """
        best = (-1e9, -1)
        for i in range(len(x)):
            best = max(best, (float(x[i].round().sum()), -i))
        return torch.tensor(best)
    """,
    "the best of sorted ones": f"return torch.as_tensor(min(sorted({_KNOWN}))[1])",
}


def _model(name: str, body: str) -> torch.nn.Module:
    return model_with(f"/ordered/{name}.py", body)


@pytest.mark.parametrize("name", RIGHT)
def test_tuples_are_in_the_order_of_python(name: str) -> None:
    require_right(_model(name, RIGHT[name]), columns=3)


def test_tuples_of_several_lengths_are_refused() -> None:
    model = _model("lengths", "t = sorted([(x.sum(), 1), (x[0, 0],), (x[0, 1], 2)])\nreturn t[0][0]")
    with pytest.raises(ExportGuardError, match=r"line \d+.*: sorted\(…\) of tuples of several lengths"):
        to_onnx(model, (torch.randn(5, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


def test_an_order_of_tensors_with_several_elements_is_refused() -> None:
    model = _model("vectors", "return torch.stack(sorted([row for row in x if row[0] > 0], key=lambda row: row * 2))")
    x = torch.tensor([[-1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [-2.0, 2.0, 3.0]])  # of one row Python asks nothing
    with pytest.raises(ExportGuardError, match=r"line \d+.*the shape \(3,\), of which the truth value is ambiguous"):
        to_onnx(model, (x,), dynamic_shapes=({0: "rows"},), rewrite="auto")


def _target(draw: random.Random, depth: int = 0) -> tuple[str, str]:
    """What a `for` takes apart, and a value of that form: the names of it are few, so that some come again."""
    if depth == 2 or (depth and draw.random() < 0.5):
        return draw.choice("abc_"), f"row[{draw.randrange(3)}] * {draw.randint(1, 9)}"
    targets, values = zip(*(_target(draw, depth + 1) for _ in range(draw.randint(2, 3))), strict=True)
    return f"({', '.join(targets)})", f"({', '.join(values)})"


@pytest.mark.parametrize("seed", range(12))
def test_a_comprehension_takes_apart_what_python_does(seed: int) -> None:
    target, value = _target(random.Random(seed))
    names = sorted({letter for letter in target if letter in "abc_"})
    total = " + ".join(f"{10**k} * {name}" for k, name in enumerate(names))
    test = f"{names[0]} > -1"
    lines = (
        f"t = [{value} for row in x]\nif x.sum() > 0:\n    x = x + 1\n"
        f"s = sum({total} for {target} in t if {test})\nreturn torch.stack([{total} for {target} in t]) + s"
    )
    require_right(_model(str(seed), lines), columns=3)
