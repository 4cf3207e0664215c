"""Tests on sizes under `rewrite="auto"`: a model is right on every way that its sizes may take, or refused."""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Callable

import pytest
import sympy
import torch

from axes.test_size_programs import _SIZES, Program, example, expected
from exportguard import OnnxModel, to_onnx
from exportguard.axes.bounds import Range
from exportguard.axes.regions import Axes, Region
from exportguard.errors import AxisError, LoweringError

_PROGRAMS = int(os.environ.get("EXPORTGUARD_SIZE_PROGRAMS", "12"))

Forward = Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]


class Model(torch.nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("scale", torch.arange(3.0))
        self.bias = torch.tensor([1.0, 2.0, 3.0])
        self._forward = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward(self, x)


def converted(forward: Forward, rows: int = 3) -> tuple[Model, OnnxModel]:
    torch.manual_seed(0)
    model = Model(forward).eval()
    onnx = to_onnx(model, (torch.randn(rows, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    return model, onnx


def require_right(model: Model, onnx: OnnxModel, sizes: tuple[int, ...]) -> None:
    assert all(axis.kept for axis in onnx.axes)
    for rows in sizes:
        x = torch.randn(rows, 3)
        with torch.no_grad():
            want = model(x.clone())
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, want, msg=lambda text, rows=rows: f"{rows} rows: {text}")


def by_length(self: Model, x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    if x.shape[0] > 4:
        y = x + 1
    return y * 2


def odd_rows(self: Model, x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] % 2:
        x = x[:-1]
    return x.reshape(-1, 2, 3).sum(1)


def one_row(self: Model, x: torch.Tensor) -> torch.Tensor:
    if len(x) == 1:
        return x * 10
    return x - x.mean(0)


def padded_or_cut(self: Model, x: torch.Tensor) -> torch.Tensor:
    rows = x.shape[0]
    if rows < 4:
        x = torch.cat([x, torch.zeros(4 - rows, 3)])
    elif rows > 8:
        x = x[:8]
    return x


def last_of_odd(self: Model, x: torch.Tensor) -> torch.Tensor:
    found = [x[i] * x[i + 1] for i in range(0, x.shape[0] - 1, 2)]
    if x.shape[0] % 2 == 1:
        found.append(x[-1])
    return torch.stack(found)


def with_weights(self: Model, x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 4:
        return self.layer(x) + self.bias + torch.tensor([4.0, 5.0, 6.0])
    if len(x) == 1:
        return x * self.scale
    return self.layer(x) * torch.tensor([7.0, 8.0, 9.0])


def in_a_test_on_data(self: Model, x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        if x.shape[0] > 4:
            return x * 2
        return x * 3
    return -x


def in_a_loop(self: Model, x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(3)
    for i, row in enumerate(x):
        total = total + row if x.shape[0] % 2 == 0 and i % 2 == 0 else total - row
    return total


def caught(self: Model, x: torch.Tensor) -> torch.Tensor:
    try:
        assert x.shape[0] >= 3
    except AssertionError:
        return x
    return x * 2


def matched(self: Model, x: torch.Tensor) -> torch.Tensor:
    match x.shape[0]:
        case 1:
            return x * 5
        case 2:
            return x * 6
        case rows if rows > 6:
            return x * 7
        case _:
            return x


def by_a_word(self: Model, x: torch.Tensor) -> torch.Tensor:
    word = "long" if x.shape[0] > 7 else "short"
    return {"long": x * 2, "short": x - 1}[word]


def changed_in_place(self: Model, x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x.add_(1)
    if x.shape[0] in (2, 5):
        x[0] = 0
    return x


def halved(self: Model, x: torch.Tensor) -> torch.Tensor:
    rows, steps = x.shape[0], 0
    while rows > 1:
        rows //= 2
        steps += 1
    return x * steps


FORWARDS = [
    by_length,
    odd_rows,
    one_row,
    padded_or_cut,
    last_of_odd,
    with_weights,
    in_a_test_on_data,
    in_a_loop,
    caught,
    matched,
    by_a_word,
    changed_in_place,
    halved,
]


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda forward: forward.__name__)
def test_every_way_is_right(forward: Forward) -> None:
    for rows in (3, 6):
        require_right(*converted(forward, rows), (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17))


def test_no_rows_are_a_way() -> None:
    def or_default(self: Model, x: torch.Tensor) -> torch.Tensor:
        if len(x) == 0:
            return torch.full((3,), 7.0)
        return x.sum(0)

    require_right(*converted(or_default), (0, 1, 2, 5))


def below_two(_: Model, x: torch.Tensor) -> torch.Tensor:
    if len(x) < 2:
        return x.sum() + 1
    return x.sum() * 2


def rows_of_a_constant(_: Model, x: torch.Tensor) -> torch.Tensor:
    total = x.sum() * 2 if len(x) > 2 else x.sum()
    for row in x:
        total = total * 0.5 + row.sum()
    return torch.ones(len(x)) * total


def a_test_of_data_around(_: Model, x: torch.Tensor) -> torch.Tensor:
    total = x.sum()
    if total > 1 and len(x) > 2:
        total = total * 2
    for row in x[1:]:
        total = total * 0.5 + row.sum()
    return total + len(x)


def filled_up_to_two(_: Model, x: torch.Tensor) -> torch.Tensor:
    if len(x) <= 1:
        x = torch.cat([x, torch.ones(2 - len(x), 3)])
    return x.cumsum(0)


@pytest.mark.parametrize("forward", [below_two, rows_of_a_constant, a_test_of_data_around, filled_up_to_two])
def test_a_way_of_one_row_is_none_for_no_rows(forward: Forward) -> None:
    require_right(*converted(forward), sizes=(0, 1, 2, 3, 4, 7))


def sizes_before_data(self: Model, x: torch.Tensor) -> torch.Tensor:
    if 0 < len(x) <= 3 < x.sum() + 4:
        return x.sum(0) * 2
    return self.bias + 1


def sizes_and_data(self: Model, x: torch.Tensor) -> torch.Tensor:
    total = x.sum()
    if len(x) <= 3 and float(total) > -1:
        total = total * 2
    return total


def sizes_around_data(self: Model, x: torch.Tensor) -> torch.Tensor:
    if len(x) > 3:
        return x.sum(0)
    return x.sum(0) * 2 if torch.equal(x.relu(), x) else x.sum(0)


@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.parametrize("forward", [sizes_before_data, sizes_and_data, sizes_around_data])
def test_a_test_of_data_at_other_sizes_alone_is_no_agreement(forward: Forward, rows: int) -> None:
    """What the model returns there for some data says nothing of what it returns for others."""
    torch.manual_seed(0)
    model = Model(forward).eval()
    call = {"args": (-torch.rand(rows, 3) - 1,), "dynamic_shapes": ({0: "rows"},)}
    if rows > 3:
        with pytest.raises(AxisError, match="rows"):
            to_onnx(model, **call)
    onnx = to_onnx(model, **call, rewrite="auto")
    for size, sign in itertools.product((1, 2, 3, 4, 6), (-1, 1)):
        x = sign * torch.rand(size, 3)
        torch.testing.assert_close(onnx.run({"x": x})["output_0"], model(x))


def test_no_rows_that_lead_to_something_else_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def or_none(self: Model, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0) if len(x) else torch.zeros(())

    model, onnx = converted(or_none)
    require_right(model, onnx, (1, 2, 5))
    assert "for rows >= 1: no name asks for a size of 0" in caplog.text


def test_a_quotient_by_a_size_has_no_value_for_no_rows() -> None:
    def divided(self: Model, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if 12 // x.shape[0] != -1 else x

    require_right(*converted(divided), (1, 2, 3, 5, 13))


QUOTIENTS: dict[str, Callable[[int], bool]] = {
    "of whole numbers": lambda n: n / 3 > 1.5,
    "by a size": lambda n: 20 / n > 3.2,
    "rounded up": lambda n: math.ceil(n / 4) > 2,
    "rounded down": lambda n: math.floor(n / 3) % 2 == 1,
    "towards zero": lambda n: int(n / 4) == 1,
    "to the nearest": lambda n: round(n / 3) >= 2,
}


@pytest.mark.parametrize("rows", [3, 9])
@pytest.mark.parametrize("holds", QUOTIENTS.values(), ids=QUOTIENTS)
def test_a_test_of_a_quotient_of_sizes_is_a_branch(holds: Callable[[int], bool], rows: int) -> None:
    model, onnx = converted(lambda self, x: self.layer(x) if holds(x.shape[0]) else x - 1, rows)
    require_right(model, onnx, (*range(1, 14), 25))


def test_two_axes() -> None:
    class Padded(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            if a.shape[0] != b.shape[0]:
                rows = max(a.shape[0], b.shape[0])
                a = torch.nn.functional.pad(a, (0, rows - a.shape[0]))
                b = torch.nn.functional.pad(b, (0, rows - b.shape[0]))
            return a * b

    for sizes in ((3, 5), (4, 4)):
        given = tuple(torch.randn(size) for size in sizes)
        onnx = to_onnx(Padded(), given, dynamic_shapes=({0: "a"}, {0: "b"}), rewrite="auto")
        for m, n in ((1, 1), (1, 4), (5, 2), (6, 6), (7, 9)):
            a, b = torch.randn(m), torch.randn(n)
            (got,) = onnx.run({"a": a, "b": b}).values()
            torch.testing.assert_close(got, Padded()(a, b))


def test_sizes_that_torch_calls_by_one_name_are_told_apart_or_refused() -> None:
    class Model(torch.nn.Module):
        def forward(self, *args: torch.Tensor) -> torch.Tensor:  # two sizes of args[0] have one name in torch 2.13
            (ids,) = args
            if ids.shape[0] == 1:
                return ids * ids.shape[1]
            return ids - ids.sum(1, keepdim=True)

    try:
        onnx = to_onnx(Model(), (torch.randn(2, 3),), dynamic_shapes={"args": ({0: "a", 1: "b"},)}, rewrite="auto")
    except AxisError as error:
        assert "calls two of the sizes by one name" in str(error)  # noqa: PT017
        return
    for rows, columns in ((1, 1), (1, 4), (3, 1), (2, 5)):
        x = torch.randn(rows, columns)
        (got,) = onnx.run({onnx.inputs[0].name: x}).values()
        torch.testing.assert_close(got, Model()(x))


def viewed(self: Model, x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return self.layer(x.view(x.shape[0], -1)).view(-1, 3)
    return x * 2


def test_a_view_in_a_branch_is_no_test_of_a_size() -> None:
    model, onnx = converted(viewed)
    require_right(model, onnx, (1, 2, 5))
    assert not any(bound.excludes_what_was_asked for axis in onnx.axes for bound in axis.bounds)


def test_another_rank_is_refused() -> None:
    def squeezed(self: Model, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(0) if x.shape[0] == 1 else x

    with pytest.raises(AxisError, match="cannot become branches: the model returns a tensor of rank 2 at some sizes"):
        converted(squeezed)


def test_a_number_that_is_made_of_a_size_is_refused_with_its_line() -> None:
    def scaled(self: Model, x: torch.Tensor) -> torch.Tensor:
        return x * math.gamma(x.shape[0] / 7)

    with pytest.raises(AxisError, match=r"a number is made of a size by .*gamma"):
        converted(scaled)


def test_what_is_not_rewritten_stays_an_error() -> None:
    with pytest.raises(AxisError, match="for rows <= 4"):
        to_onnx(Model(by_length).eval(), (torch.randn(3, 3),), dynamic_shapes=({0: "rows"},))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(1000, 1000 + _PROGRAMS))
def test_random_programs_are_right_or_refused(seed: int) -> None:
    program, x = Program(seed).eval(), example(2, (6, 7, 16)[seed % 3])
    if expected(program, x) is None:
        return
    try:
        onnx = to_onnx(program, (x,), dynamic_shapes={"x": {0: "batch", 1: "seq"}}, rewrite="auto")
    except (AxisError, LoweringError):
        return
    for batch in (1, 2, 5):
        for length in _SIZES:
            x = example(batch, length)
            want = expected(program, x)
            if want is not None:
                (got,) = onnx.run({"x": x}).values()
                torch.testing.assert_close(
                    got.to(want.dtype), want, msg=lambda text, at=(batch, length): f"{at} {text}"
                )


def test_regions_know_when_one_size_is_left() -> None:
    chosen = random.Random(0)
    symbols = sympy.symbols("a b", integer=True, nonnegative=True)
    axes = Axes(dict.fromkeys(symbols, Range(1, 30)), {})
    for _ in range(60):
        bounds = [chosen.randint(1, 6) for _ in range(3)]
        region = Region((symbols[0] < bounds[0], sympy.Eq(sympy.Mod(symbols[0], 3), bounds[1] % 3)))
        left = [size for size in range(1, 31) if all(c.subs(symbols[0], size) == sympy.true for c in region.conditions)]
        for size in left:
            assert region.is_one_size(symbols[0], size, axes) == (left == [size])


class HalvedWhileBothAreLarge(torch.nn.Module):
    """What it asks of its rows it asks only where its columns go on."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least = least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.shape[2] > self.least and x.shape[1] > self.least:
            x = (x[:, : x.shape[1] // 2, : x.shape[2] // 2]) * 2
        return x


@pytest.mark.parametrize("least", [4, 7])
def test_a_size_that_is_asked_only_where_another_one_goes_on_is_right_or_refused(least: int) -> None:
    model = HalvedWhileBothAreLarge(least).eval()
    try:
        axes = {0: "batch", 1: "rows", 2: "columns"}
        onnx = to_onnx(model, (torch.randn(1, 16, 16),), dynamic_shapes=(axes,), rewrite="auto")
    except AxisError:
        return
    for shape in ((1, 16, 16), (2, 24, 40), (1, 40, 24), (3, 3, 9), (1, 64, 64)):
        x = torch.randn(shape)
        torch.testing.assert_close(onnx.run({"x": x})[onnx.outputs[0].name], model(x))
