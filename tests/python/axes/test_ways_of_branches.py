"""Tests of sizes whose ways differ in branches alone into which hardly any data lead, and in pairs of those."""

from __future__ import annotations

import itertools

import pytest
import torch
from random_programs import model_of

from exportguard import to_onnx, torch_export_patches
from exportguard.axes.bodies import Course
from exportguard.axes.traced_program import TracedProgram
from exportguard.inputs import CallInputs

SIZES = ("x.shape[0] % 2 == 1", "len(x) > 4")

#: What sets `v` at some sizes, behind tests of data; `x` has no such data by chance.
SETS = {
    "a branch": "if {size} and x.sum() > 0:\n            v = w * 0.5 + 1",
    "a branch within": "if {size}:\n            if x[0, 0] > x[0, 1]:\n                v = w - 1",
    "a branch around": "if x.amax() > 0:\n            v = v + (3 if {size} else 2)",
    "a loop": "for r in x:\n            if {size} and r.sum() > 0:\n                v = w * 0.5 + r",
    "a loop within": "if {size}:\n            for r in x:\n                if r[0] > 0:\n                    v = v + r",
    "a loop with a break": (
        "for r in x:\n            if {size} and r.sum() > 0:\n                v = r\n                break"
    ),
}

#: What uses `v`, and data that lead there.
USES = {
    "a number": ("int(x.sum()) in (12340, 12355)", 12340.5),
    "a window": ("x.sum() > 1234.25 and x.sum() < 1234.75", 1234.5),
    "two entries": ("x[0, 0] > 300 and x[0, 0] < 300 + x[0, 1].exp()", 305.0),
}

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        w = x.mean(0)
        v = x.amax(0)
        {sets}
        if {uses}:
            w = w + v
        return w
"""


def _leading_there(rows: int, number: float) -> list[torch.Tensor]:
    """Data of which the sum or the first entry is a number; the rest of the first row is small."""
    given = torch.linspace(-1, 1, rows * 4).reshape(rows, 4) + 0.25
    first, of_sum = given.clone(), given.clone()
    first[0] = torch.tensor([number, 5.0, 0.0, -1.0])
    of_sum[-1, -1] += number - of_sum.sum()
    swapped = of_sum.clone()
    swapped[0, :2] = of_sum[0, :2].flip(0)
    return [given, first, of_sum, swapped]


@pytest.mark.parametrize(
    ("sets", "uses", "size"),
    [
        *zip(SETS, itertools.cycle(USES), itertools.cycle(SIZES), strict=False),
        *zip(SETS, itertools.cycle(reversed(USES)), itertools.cycle(reversed(SIZES)), strict=False),
    ],
)
def test_what_few_data_show_is_seen(sets: str, uses: str, size: str) -> None:
    test, number = USES[uses]
    source = _PROGRAM.format(sets=SETS[sets].format(size=size), uses=test)
    model = model_of(source, f"/branches/{sets} {uses} {size}.py")
    onnx = to_onnx(model, (torch.rand(4, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    is_there = []
    for rows in (1, 2, 3, 4, 5, 6, 7):
        for x in _leading_there(rows, number):
            (found,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)
            is_there.append(not torch.equal(model(x), x.mean(0)))
    assert any(is_there)


_OF_STEPS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        w, v, n = x.mean(0), x.amax(0), x.shape[0]
        if n > 4 and x.sum() > 0:
            v = v * (n // 40 + 1)
        if x.sum() > 1234.25 and x.sum() < 1234.75:
            w = w + v
        return w
"""


def test_what_few_data_show_from_some_size_on_is_seen() -> None:
    model = model_of(_OF_STEPS, "/branches/steps.py")
    onnx = to_onnx(model, (torch.rand(4, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (3, 5, 39, 40, 41, 85):
        for x in _leading_there(rows, 1234.5):
            (found,) = onnx.run({"x": x}).values()
            torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)


class TwoBranches(torch.nn.Module):
    """In a loop and behind it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, rows = torch._higher_order_ops.scan(
            lambda s, row: (s + 1, torch.cond(row.sum() > 0, lambda r: r + 1, lambda r: r - 1, (row,))),
            torch.zeros(()),
            x,
        )
        return torch.cond(x.sum() > 100, lambda r: 10 * r, lambda r: r.clone(), (rows,))


def test_a_course_sets_aside_what_data_say() -> None:
    x = torch.zeros(3, 2)
    with torch_export_patches():
        traced = TracedProgram(torch.export.export(TwoBranches(), (x,)))

    def run(ways: int) -> torch.Tensor:
        (result,) = traced.run(CallInputs((x,), {}), {}, course=Course(ways=ways))
        return torch.as_tensor(result)

    torch.testing.assert_close(run(0), x - 1)
    torch.testing.assert_close(run(1), 10 * (x + 1))
    drawn = {way: tuple(run(way)[:, 0].tolist()) for way in range(2, 40)}
    # Each line goes one way with an even number, and with an odd one each step goes its own.
    of_lines = {tuple(factor * sign for _ in range(3)) for factor, sign in itertools.product((1.0, 10.0), (1.0, -1.0))}
    assert {drawn[way] for way in range(2, 40, 2)} == of_lines
    assert not {drawn[way] for way in range(3, 40, 2)} <= of_lines
    assert all(torch.equal(run(way)[:, 0], torch.tensor(drawn[way])) for way in (2, 3))


def test_a_course_is_the_same_wherever_the_code_lies() -> None:
    lines = [
        "model.py:12: if x.sum() > 0:",
        "model.py:15: y = x if x[0] / 2 > 1 else -x",
        "layers/model.py:12: if x.any():",
    ]
    for ways in range(2, 40):
        here, there = Course(ways=ways), Course(ways=ways)
        for line in lines:
            assert here.goes(0, f"/home/one/{line}") == there.goes(0, f"/opt/of several/{line}")
