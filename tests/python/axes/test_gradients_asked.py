"""What a model does where gradients are computed is what a file does, or the export stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from exportguard import ExportError, to_onnx
from exportguard.axes import gradients


def _written(x: torch.Tensor) -> torch.Tensor:
    """A tensor of another memory, of whose view the numbers are those of x by now."""
    room = torch.zeros(x.shape)
    view = room.view(-1)
    room[:] = x
    return view


#: Each has another answer where gradients are computed.
_OTHER: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "whether they are": lambda m, x: torch.is_grad_enabled(),
    "of a result": lambda m, x: (x * m.weight).requires_grad,
    "how a result was made": lambda m, x: (x @ m.weight).grad_fn is not None,
    "whether a result is a leaf": lambda m, x: not (x * m.weight).is_leaf,
    "beside data": lambda m, x: torch.is_grad_enabled() and bool((x.sum() > 50) | (x.sum() < 50)),
    "beside other data": lambda m, x: torch.is_grad_enabled() and bool(x.sum() < 0),
    "beside other data of a result": lambda m, x: torch.is_grad_enabled() and (x * m.weight).sum().item() < 0,
    "beside other data that was written": lambda m, x: torch.is_grad_enabled() and bool(_written(x).sum() < 0),
}
_SAME: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "of an input": lambda m, x: x.requires_grad,
    "of a weight": lambda m, x: m.weight.requires_grad,
    "of what has no gradient": lambda m, x: x.detach().requires_grad,
    "whether inference is on": lambda m, x: torch.is_inference_mode_enabled(),
}


class Asking(torch.nn.Module):
    """A layer that asks."""

    def __init__(self, asked: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.asked = asked

    def forward(self, x):
        return x * 2 if self.asked(self, x) else x - 1


class WithinItself(Asking):
    """What the model decides itself has one answer."""

    def forward(self, x):
        with torch.no_grad():
            scale = 3 if torch.is_grad_enabled() else 2
        return x * scale


def _first(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    onnx = to_onnx(model, (x,), dynamic_shapes=({0: "rows"},), rewrite="auto")
    return next(iter(onnx.run({"x": x}).values()))


@pytest.mark.parametrize("asked", _OTHER.values(), ids=_OTHER)
def test_what_asks_for_gradients_is_exported_where_there_are_none(asked: Any) -> None:
    model, x = Asking(asked).eval(), torch.ones(3, 4)
    with pytest.raises(ExportError, match=r"asks whether gradients are computed .*torch\.no_grad\(\)"):
        _first(model, x)
    with torch.no_grad():
        torch.testing.assert_close(_first(model, x), model(x))


@pytest.mark.parametrize("asked", _SAME.values(), ids=_SAME)
def test_what_has_one_answer_is_exported(asked: Any) -> None:
    model, x = Asking(asked).eval(), torch.ones(3, 4)
    torch.testing.assert_close(_first(model, x), model(x).detach())


def test_a_mode_of_the_models_own_is_no_question() -> None:
    model, x = WithinItself(lambda m, x: True).eval(), torch.ones(3, 4)
    torch.testing.assert_close(_first(model, x), model(x))


def test_going_back_from_a_mode_of_the_models_own_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "agree", lambda *args: False)  # as of a cache that the model returns
    model, x = WithinItself(lambda m, x: True).eval(), torch.ones(3, 4)
    torch.testing.assert_close(_first(model, x), model(x))


class OtherWeight(Asking):
    """The same functions and numbers, of another tensor."""

    def __init__(self) -> None:
        super().__init__(lambda m, x: torch.is_grad_enabled())
        self.other = torch.nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x):
        return x * (self.weight if self.asked(self, x) else self.other)


def test_another_weight_is_something_else() -> None:
    with pytest.raises(ExportError, match="asks whether gradients are computed"):
        _first(OtherWeight().eval(), torch.ones(3, 4))


class Checkpointed(Asking):
    """Asks, and calls the same functions whatever it is told."""

    def forward(self, x):
        assert self.asked(self, x) in (True, False)
        return torch.softmax(x * self.weight, -1)


def test_kernels_that_round_in_another_way_are_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "agree", lambda *args: False)
    model, x = Checkpointed(lambda m, x: torch.is_grad_enabled()).eval(), torch.ones(3, 4)
    torch.testing.assert_close(_first(model, x), model(x).detach())


class CountsThreads(torch.nn.Module):
    """Notes in how many threads it is called with gradients."""

    seen: ClassVar[list[int]] = []

    def forward(self, x):
        if torch.is_grad_enabled():
            self.seen.append(torch.get_num_threads())
        return x + 1


def test_a_small_model_is_called_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountsThreads, "seen", [])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        _first(CountsThreads(), torch.ones(3, 4))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(CountsThreads.seen) == {1}
