"""What sizes let Python or an operator raise, where the model catches it: the handler's way, or a refusal."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from exportguard import ExportGuardError, OnnxModel, to_onnx
from exportguard.repeats.asked import asked_operator, asking_operator
from exportguard.rewrites.catching import is_caught

_HANDLED = 7.3  # what no expression gives

#: Each raises at some sizes.
_OF_PYTHON: dict[str, Callable[[torch.Tensor], Any]] = {
    "a quotient": lambda x: 5 / (x.shape[0] - 2),
    "a quotient by a size": lambda x: 1 / x.shape[0],
    "rounded down": lambda x: 10 // (x.shape[0] - 1),
    "a remainder": lambda x: 5 % (x.shape[0] - 2),
    "a power": lambda x: (x.shape[0] - 5) ** -2.0,
    "a shift": lambda x: 1 << (x.shape[0] - 2),
    "a logarithm": lambda x: math.log(x.shape[0] - 1),
    "a root": lambda x: math.sqrt(x.shape[0] - 4),
    "an angle": lambda x: math.acos(x.shape[0] / 5),
    "an element": lambda x: [1.0, 2.0, 3.0, 4.0][x.shape[0]],
    "an entry": lambda x: {1: 1.0, 2: 2.0, 3: 3.0}[x.shape[0]],
    "an assertion": lambda x: x.sum() if x.shape[0] > 2 else next(iter(())),
}
_OF_TORCH: dict[str, Callable[[torch.Tensor], Any]] = {
    "the largest": lambda x: x.max(),
    "the smallest of columns": lambda x: x.min(dim=0).values.sum(),
    "the first of some": lambda x: x.topk(2, 0).values.sum(),
    "a row": lambda x: x[2].sum(),
    "a part": lambda x: x.narrow(0, 1, x.shape[0] - 1).sum(),
    "a window": lambda x: x.unfold(0, 3, 1).sum(),
    "a convolution": lambda x: functional.conv1d(x.t()[None], torch.ones(1, 4, 3)).sum(),
    "a reflection": lambda x: functional.pad(x.t(), (2, 2), mode="reflect").sum(),
    "zeros": lambda x: torch.zeros(x.shape[0] - 2).sum(),
    "numbers": lambda x: torch.arange(2, x.shape[0]).sum(),
    "a view": lambda x: x.view(-1, 2, 4).sum(),
    "an item": lambda x: x.sum(1).item(),
    "a write": lambda x: torch.zeros(3, 4).index_put((torch.arange(3),), x).sum(),
}
_EXPRESSIONS = {**_OF_PYTHON, **_OF_TORCH}
_ROWS = (3, 0, 1, 2, 4, 5, 8)


class Tried(torch.nn.Module):
    """An expression in a `try`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.expression = _EXPRESSIONS[name]

    def forward(self, x):
        try:
            k = self.expression(x)
        except Exception:
            k = _HANDLED
        return x.sum(0) + k


class Suppressed(Tried):
    """An expression in a `with` that lets its exceptions go no further."""

    def forward(self, x):
        k = _HANDLED
        with contextlib.suppress(ArithmeticError, LookupError, RuntimeError, ValueError):
            k = self.expression(x)
        return x.sum(0) + k


def _require_right(model: torch.nn.Module, onnx: OnnxModel, rows: tuple[int, ...]) -> None:
    for count in rows:
        x = torch.linspace(0.25, 2, count * 4).reshape(count, 4)
        (found,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(found, model(x), msg=lambda text, count=count: f"{count} rows: {text}")


def _converted(model: torch.nn.Module) -> OnnxModel | None:
    x = torch.linspace(0.25, 2, 12).reshape(3, 4)
    try:
        return to_onnx(model, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=0)},), rewrite="auto")
    except ExportGuardError:
        return None


@pytest.mark.parametrize("name", _EXPRESSIONS)
def test_the_handler_runs_at_the_sizes_that_raise_or_the_export_is_refused(name: str) -> None:
    model = Tried(name).eval()
    onnx = _converted(model)
    if onnx is not None:
        _require_right(model, onnx, _ROWS)


@pytest.mark.parametrize("name", ["a quotient by a size", "a logarithm", "the smallest of columns", "a window"])
def test_a_block_that_swallows_is_such_a_handler(name: str) -> None:
    model = Suppressed(name).eval()
    onnx = _converted(model)
    if onnx is not None:
        _require_right(model, onnx, _ROWS)


@pytest.mark.parametrize(
    "name", ["a quotient", "rounded down", "a shift", "a logarithm", "a root", "an angle", "zeros"]
)
def test_what_sizes_let_raise_becomes_a_branch(name: str) -> None:
    model = Tried(name).eval()
    onnx = to_onnx(model, (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert all(axis.kept for axis in onnx.axes)
    _require_right(model, onnx, _ROWS[2:])


def test_what_no_question_tells_is_found_by_running_both() -> None:
    with pytest.raises(
        ExportGuardError, match=r"rows for rows == 3: at other sizes the program does something else than the model"
    ):
        to_onnx(Tried("a write"), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")


class Explains(torch.nn.Module):
    """As transformers 4.57 does around each model; what it calls asks whether it is caught."""

    def __init__(self, tell: Callable[[], None], *, goes_on: bool) -> None:
        super().__init__()
        self.tell, self.goes_on = tell, goes_on

    def forward(self, x):
        return self.going_on(x) if self.goes_on else self.raising(x)

    def inner(self, x):
        self.tell()
        return x

    def raising(self, x):
        try:
            return self.inner(x)
        except TypeError as error:
            try:
                x = self.inner(x * 2)
            except ValueError:
                raise error from None
            raise TypeError("explained") from error

    def going_on(self, x):
        try:
            return self.inner(x)
        except TypeError as error:
            if not error.args:
                return x
            raise


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_handler_that_raises_in_the_end_catches_nothing(goes_on: bool) -> None:
    caught: list[bool] = []
    model = Explains(lambda: caught.append(is_caught()), goes_on=goes_on)
    torch.export.export(model, (torch.randn(2),), strict=False)
    assert set(caught) == {goes_on}


def caught_by_me() -> bool:
    try:
        return is_caught()
    except ValueError:
        return False


def test_what_an_operator_is_asked_is_caught_as_far_as_its_own_call_says() -> None:
    """The stack outside of a question is looked at once, that within it each time."""

    def asked() -> list[bool]:
        with asking_operator():
            return [is_caught(), caught_by_me(), is_caught()]

    def asked_under_a_try() -> list[bool]:
        try:
            return asked()
        except ValueError:
            return []

    def asked_by_an_operator_that_is_asked() -> list[bool]:
        with asking_operator():
            return [is_caught(), *asked_under_a_try(), is_caught()]

    def _export(run: Callable[[], list[bool]]) -> list[bool]:
        return run()  # what calls an export is not looked at

    assert _export(asked) == [False, True, False]
    assert _export(asked_under_a_try) == [True, True, True]
    assert _export(asked) == [False, True, False]
    assert _export(asked_by_an_operator_that_is_asked) == [False, True, True, True, False]


def test_nothing_is_asked_any_more_when_a_kernel_raises() -> None:
    with contextlib.suppress(ValueError), asking_operator():
        assert asked_operator() is not None
        raise ValueError("no kernel")
    assert asked_operator() is None
