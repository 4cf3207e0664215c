"""What a `with` enters is read, not run: whether it may end an exception that the block raises."""

from __future__ import annotations

import ast
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any

import pytest
import torch

from exportguard import RewriteError, to_onnx
from exportguard.rewrites.managers import may_swallow


class Passes:
    def __enter__(self) -> Passes:
        return self

    def __exit__(self, kind: object, error: object, trace: TracebackType | None) -> None:
        self.seen = kind


class ReturnsFalse(Passes):
    def __exit__(self, kind: object, error: object, trace: object) -> bool:  # type: ignore[override]
        if kind is None:
            return False
        return False


class Inherits(Passes):
    pass


class Ends(Passes):
    def __enter__(self) -> Passes:
        return Passes()

    def __exit__(self, kind: object, error: object, trace: object) -> bool:  # type: ignore[override]
        return kind is ValueError


class EndsInBetween(Passes):
    def __exit__(self, kind: object, error: object, trace: object) -> bool | None:  # type: ignore[override]
        if kind is not None:
            return True
        return None


class IsAnother:
    def __new__(cls) -> Any:
        return Ends()

    def __enter__(self) -> None: ...

    def __exit__(self, *details: object) -> None: ...


@contextmanager
def plain() -> Iterator[None]:
    yield


@contextmanager
def timed() -> Iterator[int]:
    try:
        yield 1
    finally:
        print(end="")


@contextmanager
def nested() -> Iterator[None]:
    with torch.no_grad(), plain():
        yield


@contextmanager
def raising() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise RuntimeError("another") from error


@contextmanager
def handled_before() -> Iterator[None]:
    with suppress(ValueError):
        int("x")
    yield


@contextmanager
def catching() -> Iterator[None]:
    try:
        yield
    except ValueError:
        print(end="")


@contextmanager
def catching_within() -> Iterator[None]:
    for _ in range(1):
        with plain(), suppress(ValueError):
            yield


@contextmanager
def leaving() -> Iterator[None]:
    try:
        yield
    finally:
        return  # noqa: B012  # which ends what was raised


@contextmanager
def from_another() -> Iterator[None]:
    yield from _caught()


def _caught() -> Iterator[None]:
    with suppress(ValueError):
        yield


def chosen(enabled: bool = False) -> Any:
    from torch import autocast

    if enabled:
        return autocast("cpu", enabled=True)
    return nullcontext()


def chosen_of_classes(name: str = "") -> Any:
    return Ends() if name else Passes()


def in_a_row() -> Any:
    return chosen()


def ending_in_a_row() -> Any:
    return catching()


def handed_on(manager: Any) -> Any:
    return manager


def kept(manager: Any = Ends()) -> Any:  # noqa: B008
    return manager


def endless() -> Any:
    return endless() if ENDLESS else Ends()


ENDLESS = False
PASSES: dict[str, Callable[[], Any]] = {
    "Passes()": lambda: Passes(),
    "ReturnsFalse()": lambda: ReturnsFalse(),
    "Inherits()": lambda: Inherits(),
    "PASSING": lambda: PASSING,
    "HOLDER.held": lambda: HOLDER.held,
    "HOLDER.timer()": lambda: HOLDER.timer(),
    "NESTING.nested(1)": lambda: NESTING.nested(1),
    "NESTING.passed_on()": lambda: NESTING.passed_on(),
    "ADAPTED.hooked()": lambda: ADAPTED.hooked(),
    "plain()": lambda: plain(),
    "timed()": lambda: timed(),
    "nested()": lambda: nested(),
    "raising()": lambda: raising(),
    "handled_before()": lambda: handled_before(),
    "chosen()": lambda: chosen(),
    "in_a_row()": lambda: in_a_row(),
    "nullcontext()": lambda: nullcontext(),
    "torch.no_grad()": lambda: torch.no_grad(),
    "tempfile.TemporaryDirectory()": lambda: tempfile.TemporaryDirectory(),
    "plain() if ENDLESS else timed()": lambda: timed(),
    "(seen := plain())": lambda: plain(),
}
MAY: dict[str, Callable[[], Any]] = {
    "suppress(ValueError)": lambda: suppress(ValueError),
    "contextlib.suppress(ValueError)": lambda: contextlib.suppress(ValueError),
    "Ends()": lambda: Ends(),
    "EndsInBetween()": lambda: EndsInBetween(),
    "IsAnother()": lambda: IsAnother(),
    "ENDING": lambda: ENDING,
    "HOLDER.ending": lambda: HOLDER.ending,
    "HOLDER.made": lambda: HOLDER.made,
    "HOLDER.catcher()": lambda: HOLDER.catcher(),
    "catching()": lambda: catching(),
    "catching_within()": lambda: catching_within(),
    "leaving()": lambda: leaving(),
    "from_another()": lambda: from_another(),
    "chosen_of_classes('a')": lambda: chosen_of_classes("a"),
    "ending_in_a_row()": lambda: ending_in_a_row(),
    "handed_on(Ends())": lambda: handed_on(Ends()),
    "kept()": lambda: kept(),
    "endless()": lambda: endless(),
    "plain() if ENDLESS else catching()": lambda: catching(),
    "TABLE['a']()": lambda: TABLE["a"](),
    "NESTING.nested_catcher()": lambda: NESTING.nested_catcher(),
    "NESTING.of_another()": lambda: NESTING.of_another(),
    "NESTING.own_catcher()": lambda: NESTING.own_catcher(),
    "NESTING.caught()": lambda: NESTING.caught(),
    "ADAPTED.quiet()": lambda: ADAPTED.quiet(),
    "(lambda: Ends())()": lambda: Ends(),
}
PASSING, ENDING, TABLE = Passes(), Ends(), {"a": Ends}


class Holder:
    def __init__(self) -> None:
        self.held, self.ending = Passes(), Ends()

    @property
    def made(self) -> Any:
        return Ends()

    def timer(self) -> Any:
        return Passes()

    @contextmanager
    def catcher(self) -> Iterator[None]:
        with suppress(ValueError):
            yield


class Nesting(Holder):
    """Whose managers enter those of what it holds, as adapters around a model do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.own_catcher = Holder(), catching

    @contextmanager
    def nested(self, *_: Any) -> Iterator[None]:
        if hasattr(self.inner, "timer"):
            with self.inner.timer():
                yield
            return
        yield

    @contextmanager
    def nested_catcher(self) -> Iterator[None]:
        with self.inner.catcher():
            yield

    @contextmanager
    def of_another(self) -> Iterator[None]:
        self = self.inner
        with self.catcher():
            yield

    def passed_on(self) -> Any:
        return self.inner.timer()

    def caught(self) -> Any:
        return self.inner.catcher()


class Adapted(torch.nn.Module):
    """The same around a part, which torch keeps in a table of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Adapter()

    @contextmanager
    def hooked(self) -> Iterator[None]:
        with self.part.hooks():
            yield

    @contextmanager
    def quiet(self) -> Iterator[None]:
        with self.part.silent():
            yield


class Adapter(torch.nn.Module):
    @contextmanager
    def hooks(self) -> Iterator[None]:
        yield

    @contextmanager
    def silent(self) -> Iterator[None]:
        with suppress(ValueError):
            yield


HOLDER, NESTING, ADAPTED = Holder(), Nesting(), Adapted()


def ends(manager: Any) -> bool:
    """What Python does."""
    try:
        with manager:
            raise ValueError
    except (ValueError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("text", [*PASSES, *MAY])
def test_managers_are_known_by_their_code(text: str) -> None:
    names = ({}, globals(), {})
    assert may_swallow(ast.parse(text, mode="eval").body, names) == (text in MAY)
    assert ends((PASSES | MAY)[text]()) == (text in MAY)


class Routes(torch.nn.Module):
    """A router of experts that computes in float32, as those of transformers do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with chosen(enabled=False):
            _, chosen_ones = torch.topk(x, 2, dim=-1)
            return torch.gather(x, dim=-1, index=chosen_ones)


class RoutesWhereItCan(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        with catching():
            return torch.gather(x, dim=-1, index=index)
        return x


def test_what_data_lets_an_operator_raise_passes_a_manager_that_ends_nothing() -> None:
    model = to_onnx(Routes().eval(), (torch.randn(3, 5),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    x = torch.randn(4, 5)
    torch.testing.assert_close(model.run({"x": x})[model.outputs[0].name], Routes()(x))


class NamesAnother(torch.nn.Module):
    """What the block names as it goes on is not what was entered."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        manager: Any = Ends()
        with manager as manager:
            return torch.gather(x, dim=-1, index=index)
        return x


class NamesAnotherWithin(torch.nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        manager: Any = Ends()
        with manager:
            manager = Passes()
            return torch.gather(x, dim=-1, index=index)
        return x


@pytest.mark.parametrize("cls", [NamesAnother, NamesAnotherWithin])
def test_a_manager_is_what_was_entered(cls: type[torch.nn.Module]) -> None:
    with pytest.raises(RewriteError, match="the `with manager` at line"):
        to_onnx(cls().eval(), (torch.randn(3, 5), torch.zeros(3, 2, dtype=torch.int64)), rewrite="auto")


def test_what_data_lets_an_operator_raise_is_refused_where_a_manager_ends_it() -> None:
    with pytest.raises(RewriteError, match=r"the `with catching\(\)` at line"):
        to_onnx(RoutesWhereItCan().eval(), (torch.randn(3, 5), torch.zeros(3, 2, dtype=torch.int64)), rewrite="auto")
