"""A model that asks a tensor for more than its look is answered as if everything was traced."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from stacks import Layer, Stack, inputs
from torch import Tensor

from exportguard import ExportError, ExportOptions, to_onnx, torch_export_patches

QUESTIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "Tensor._base": lambda h, view: view._base is h,
    "Tensor._is_view": lambda h, view: view._is_view(),
    "Tensor._version": lambda h, view: view.add_(0)._version > 0,
    "Tensor.untyped_storage": lambda h, view: view.untyped_storage().nbytes() > 0,
    "Tensor.is_leaf": lambda h, view: h.is_leaf,
    "Tensor.grad_fn": lambda h, view: h.grad_fn is None,
}


def asking(question: Callable[[Tensor, Tensor], Any]) -> Stack:
    def function(layer: Layer, x: Tensor) -> Tensor:
        h = layer.up(x)
        answer = question(h, h.view(h.shape))
        return x + torch.tanh(layer.down(h)) * (2 if answer else 3)

    return Stack(function).eval()


@pytest.mark.parametrize("name", QUESTIONS)
def test_everything_is_traced_for_a_model_that_asks(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = asking(QUESTIONS[name])
    with caplog.at_level(logging.WARNING, logger="exportguard"), torch.no_grad():  # as a file, which has no gradients
        converted = to_onnx(model, (inputs(2, 12),), dynamic_shapes=({0: "batch", 1: "seq"},))
    assert f"could not be traced once, so all were traced, which takes longer: UnansweredError: {name}" in caplog.text

    x = inputs(3, 7)
    with torch.no_grad():
        expected = model(x.clone())
    (got,) = converted.run({converted.inputs[0].name: x.clone()}).values()
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def scales_of(program: Any) -> list[int]:
    return [
        node.args[1]
        for node in program.graph.nodes
        if node.target == torch.ops.aten.mul.Tensor and isinstance(node.args[1], int)
    ]


def requiring(layer: Layer, x: Tensor) -> Tensor:
    h = x.detach()
    if layer.index % 2 == 0:
        h.requires_grad = True
    y = torch.tanh(h)
    return x + layer.down(x).detach() * (2 if y.requires_grad else 3)


@pytest.mark.parametrize("ask", [lambda layer, x: requiring(layer, x), lambda layer, x: leaf(layer, x)])
def test_a_program_with_gradients_has_the_answers_of_tracing_everything(ask: Callable[..., Any]) -> None:
    x = inputs(2, 12)
    programs = []
    for repeats in ("trace once", "trace all"):
        with torch_export_patches(repeats=repeats):
            programs.append(torch.export.export(Stack(ask).eval(), (x,)))
    once, everything = map(scales_of, programs)
    assert once == everything
    assert len(once) == 4


def leaf(layer: Layer, x: Tensor) -> Tensor:
    h = layer.up(x)
    return x + h * (2 if h.is_leaf else 3)


def test_data_that_is_set_is_refused_with_its_line() -> None:
    def setting(layer: Layer, x: Tensor) -> Tensor:
        h = layer.up(x)
        if layer.index == 2:
            h.data = layer.down(x)
        return x + h

    with pytest.raises(
        ExportError, match=r"(?s)h\.data = layer.*the data of a tensor is set.*write x = y in the place"
    ):
        to_onnx(Stack(setting).eval(), (inputs(2, 12),), options=ExportOptions(repeats="trace all"))


def test_data_that_stays_is_no_change() -> None:
    def setting(layer: Layer, x: Tensor) -> Tensor:
        h = layer.up(x)
        h.data = h
        return x + h

    model, x = Stack(setting).eval(), inputs(2, 12)
    converted = to_onnx(model, (x,))
    (got,) = converted.run({converted.inputs[0].name: x}).values()
    torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)


def counting_writes(layer: Layer, x: Tensor) -> Tensor:
    """Only one layer writes, and only what it made itself."""
    h = layer.up(x)
    if layer.index == 2:
        h.add_(1)
    return x + torch.tanh(h) * (1 + h._version)


class Weakly:
    """What layers keep of their tensors without holding them, in the way of `keep`."""

    def __init__(self, keep: Callable[[Tensor], Callable[[], bool]]) -> None:
        self.keep, self.held = keep, []

    def __call__(self, layer: Layer, x: Tensor) -> Tensor:
        h = layer.up(x)
        inner = h * 2
        lives = self.keep(inner)
        if layer.index % 2:
            self.held.append(inner)
        del inner
        answer = lives()
        self.held.clear()
        return x + torch.tanh(h) * (2 if answer else 3)


def by_reference(tensor: Tensor) -> Callable[[], bool]:
    reference = weakref.ref(tensor)
    return lambda: reference() is not None


def by_call_back(tensor: Tensor) -> Callable[[], bool]:
    dead: list[object] = []
    reference = weakref.ref(tensor, dead.append)
    return lambda: reference() is not None and not dead


def by_dictionary(tensor: Tensor) -> Callable[[], bool]:
    values = weakref.WeakValueDictionary({0: tensor})
    return lambda: 0 in values


def by_keys(tensor: Tensor) -> Callable[[], bool]:
    keys = weakref.WeakKeyDictionary({tensor: 0})
    return lambda: len(keys) > 0


def by_finalizer(tensor: Tensor) -> Callable[[], bool]:
    finalizer = weakref.finalize(tensor, lambda: None)
    return lambda: finalizer.alive


STATES: dict[str, Callable[..., Tensor]] = {
    "writes": counting_writes,
    **{keep.__name__: Weakly(keep) for keep in (by_reference, by_call_back, by_dictionary, by_keys, by_finalizer)},
}


@pytest.mark.parametrize("name", STATES)
def test_what_lives_and_what_was_written_is_that_of_the_block(name: str) -> None:
    model = Stack(STATES[name], depth=6).eval()
    converted = to_onnx(model, (inputs(2, 12),), dynamic_shapes=({0: "batch", 1: "seq"},))
    for size in ((3, 7), (1, 1), (2, 12)):
        x = inputs(*size)
        (got,) = converted.run({converted.inputs[0].name: x}).values()
        torch.testing.assert_close(got, model(x).detach(), rtol=1e-4, atol=1e-4)
