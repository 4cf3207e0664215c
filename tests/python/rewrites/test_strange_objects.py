"""Objects that a model holds, whose own methods raise: what looks through a model calls none of them."""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from exportguard import to_onnx
from exportguard.containers import elements_of, items_of

_KINDS = (
    object,
    tuple,
    list,
    dict,
    collections.OrderedDict,
    set,
    frozenset,
    collections.deque,
    str,
    int,
    types.SimpleNamespace,
    types.ModuleType,
)
_METHODS = (
    *("__len__", "__length_hint__", "__iter__", "__next__", "__contains__", "__getitem__", "keys", "values", "items"),
    *("__getattr__", "__dir__", "__get__", "__call__", "__index__", "__enter__", "__torch_function__", "__array__"),
    *("__eq__", "__ne__", "__lt__", "__hash__", "__bool__", "__repr__", "__str__", "__format__", "__add__"),
    *("__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__sizeof__"),
)


class StrangeError(Exception):
    pass


def raising(name: str) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> Any:
        raise StrangeError(name)

    return method


def strange_objects(name: str) -> Iterator[Any]:
    """One of each kind that can be made at all."""
    for kind in _KINDS:
        try:
            made = type("Strange", (kind,), {name: raising(name)})
            yield made("strange") if kind is types.ModuleType else made()
        except StrangeError:
            continue


class Holding(torch.nn.Module):
    """Holds strange objects wherever a module may hold some, and tests what data say."""

    def __init__(self, held: list[Any]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.held, self.by_name, self.pair = held, dict(enumerate(held)), (tuple(held), "x")
        for at, one in enumerate(held):
            setattr(self, f"held_{at}", one)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return self.linear(x) * len(self.held)
        return x + len(self.by_name)


@pytest.mark.parametrize("name", _METHODS)
@pytest.mark.thinned(5)
def test_strange_objects_of_a_model_are_left_alone(name: str) -> None:
    model = Holding([*strange_objects(name)]).eval()
    assert model.held
    made = to_onnx(model, (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (torch.randn(2, 4).abs(), -torch.ones(5, 4)):
        (got,) = made.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


class Lazy(types.ModuleType):
    """A module that is imported when it is asked for something, and cannot be here."""

    def __getattr__(self, name: str) -> Any:
        raise ImportError(f"no {name} without what it needs")


def test_lazy_modules_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As packages have them for what need not be installed: beside what a model names, and named by it."""
    lazy = Lazy("strange_lazy")
    monkeypatch.setitem(sys.modules, "strange_lazy", lazy)
    monkeypatch.setitem(sys.modules, "strange_number", 3)  # type: ignore[arg-type]
    package = types.ModuleType("strange_package")
    package.__dict__.update(strange_lazy=lazy, double=double)
    monkeypatch.setitem(sys.modules, "strange_package", package)
    monkeypatch.setattr(sys.modules[__name__], "strange_package", package, raising=False)
    model = Doubled().eval()
    made = to_onnx(model, (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (torch.ones(2, 4), -torch.ones(5, 4)):
        (got,) = made.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return strange_package.double(x)  # type: ignore[name-defined]  # noqa: F821
        if self.training:
            for _ in strange_package.strange_lazy.count(x):  # type: ignore[name-defined]  # noqa: F821
                x = x + 1
        return x


def test_an_ordered_dict_is_read_in_its_own_order() -> None:
    held = collections.OrderedDict(a=1, b=2)
    held.move_to_end("a")
    assert [*items_of(held)] == [("b", 2), ("a", 1)]
    assert [*(elements_of(held) or ())] == [2, 1]
    assert elements_of(3) is None
