"""What a trace loses at every size: which objects tensors are, their classes and versions."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from called import Called
from exportguard import ExportError, to_onnx
from exportguard.axes.rounding import difference
from exportguard.models import BuildOptions, build_model


class _Marked(torch.nn.Parameter):
    """A class of one's own."""


class _Holder(torch.nn.Module):
    """A layer, and things that are known of its weight outside of it."""

    def __init__(self, asked: Callable[[_Holder, torch.Tensor], bool]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.marked = _Marked(torch.ones(4))
        self.register_buffer("written", torch.zeros(4).add_(1))
        self.held = [self.layer.weight]
        self.by_weight = {self.layer.weight: 2.0}
        self.ids = {id(self.layer.weight), id(self.written)}
        self.dead = weakref.ref(self.layer.weight)
        self.asked = asked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.asked(self, x) else x * 3


QUESTIONS: dict[str, Callable[[Any, torch.Tensor], bool]] = {
    "the class of a weight": lambda m, _: isinstance(m.marked, _Marked),
    "its type": lambda m, _: type(m.marked) is _Marked,
    "which weight it is": lambda m, _: m.held[0] is m.layer.weight,
    "a weight as a key": lambda m, _: m.layer.weight in m.by_weight,
    "a weight's number": lambda m, _: id(m.layer.weight) in m.ids,
    "a buffer's number": lambda m, _: id(m.written) in m.ids,
    "how often it was written": lambda m, _: bool(m.written._version),
    "a reference to it": lambda m, _: m.dead() is m.layer.weight,
    "which of the module's it is": lambda m, _: any(weight is m.held[0] for weight in (m.marked, m.layer.weight)),
}


@pytest.mark.parametrize("shapes", [None, {"x": {0: "rows"}}], ids=["as they are", "dynamic"])
@pytest.mark.parametrize("asked", QUESTIONS.values(), ids=QUESTIONS)
def test_what_is_asked_has_the_answer_of_eager_mode_or_stops_the_export(asked: Any, shapes: Any) -> None:
    module, x = _Holder(asked).eval(), torch.randn(3, 4)
    model = None
    with contextlib.suppress(ExportError):
        model = to_onnx(module, (x,), dynamic_shapes=shapes)
    if model is None:
        with pytest.raises(ExportError, match=r"something else than the model.*output 0 is off by up to"):
            to_onnx(module, (x,), dynamic_shapes=shapes)
    else:
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, module(x))


def test_what_differs_is_told() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    held = [weight]

    class Shapes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: torch.Tensor) -> Any:
            return (x, x[:1]) if held[0] is self.weight else (x, x)

    with pytest.raises(ExportError, match=r"output 1 is float32 of the shape \[3, 4\] in the place of float32 of the"):
        to_onnx(Shapes(), (torch.randn(3, 4),))


def test_random_numbers_are_no_difference() -> None:
    module = Called(lambda x: torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x))
    to_onnx(module, (torch.randn(3, 4),))


@pytest.mark.parametrize("name", ["granite4_vision", "minimax_m3_vl"])
def test_features_of_pictures_are_one_output_whatever_the_model_makes_parts_of(name: str) -> None:
    case = build_model(name, BuildOptions(task="image-text-to-text"))
    inputs = case.inputs(case.task.sizes)
    model = to_onnx(case.model, kwargs=inputs, rewrite="auto")
    flat = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    with torch.no_grad():
        torch.testing.assert_close(model.run(flat)["logits"], case.model(**inputs).logits, rtol=1e-3, atol=1e-3)


def test_parts_are_joined_where_they_have_the_rows_of_one_tensor() -> None:
    rows = torch.arange(12.0).view(6, 2)
    whole, parts = [rows.sum(), rows, rows[:1]], [rows.sum(), rows[:2], rows[2:3], rows[3:], rows[:1]]
    assert difference(parts, whole, [None] * 3) == ""
    for other in (parts[:3], [*parts, rows], [*parts[:3], rows[3:] + 1, rows[:1]], [rows.sum(), rows[0], rows[1:]]):
        assert difference(other, whole, [None] * 3)
