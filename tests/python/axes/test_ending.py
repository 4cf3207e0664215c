"""Models that do not end at sizes, or for data, that nobody asked for: they refuse these, so to say."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import onnxruntime
import pytest
import torch

from called import Called
from exportguard import to_onnx
from exportguard.axes import ending


def grown(x: torch.Tensor) -> torch.Tensor:
    while x.shape[0] < 16:
        x = torch.cat([x, x])
    return x


def doubled(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    while n < 16:
        n *= 2
    return x * n


def collatz(x: torch.Tensor) -> torch.Tensor:
    n, steps = x.shape[0], 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return x + steps


def solved(x: torch.Tensor) -> torch.Tensor:
    y = x
    while True:
        new = 0.5 * (y + torch.tanh(x))
        if (new - y).abs().mean() < 1e-3:
            break
        y = new
    return y


def squared(x: torch.Tensor) -> torch.Tensor:
    y = (x * 0.4 if x.shape[0] > 4 else x * 0.3).tanh()
    y = y * (1 if x.abs().max() < 10 else 4)
    while True:
        new = y * y  # which has no end for numbers beyond 1: they become infinite, and their difference is none
        if (new - y).abs().max() < 1e-3:
            break
        y = new
    return y


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_SECONDS", 0.05)
    monkeypatch.setattr(ending, "_LOOK", 0.01)
    monkeypatch.setattr(ending, "_LINES", 2000)


def within(function: Callable[[], object], known: Callable[[], object] = int) -> object:
    """What a function returns if it ends."""
    return ending.Ending(lambda watched: watched(known)).ended(lambda watched: watched(function))


@pytest.mark.parametrize("function", [grown, doubled, collatz, solved, squared])
def test_a_model_is_exported_that_does_not_end_at_sizes_or_for_data_that_nobody_asked_for(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    model = Called(function).eval()
    made = to_onnx(model, (torch.randn(6, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    session = onnxruntime.InferenceSession(made.to_bytes())
    for rows in (1, 2, 5, 6, 7, 16, 17):
        x = torch.randn(rows, 4)
        (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(got, model(x).numpy(), atol=1e-5)


def no_calls() -> None:
    n = 0
    while n < 16:
        n *= 2


def of_operators() -> None:
    x = torch.ones(4)
    while x.sum() > 0:
        x = x * x


def of_an_iterator() -> None:
    for _ in itertools.count():
        pass


def of_a_generator() -> None:
    def numbers() -> Iterator[int]:
        while True:
            yield 1

    assert sum(numbers())


def of_a_function_called_in_c() -> None:
    assert all(map(lambda number: True, itertools.count()))  # noqa: C417 - it is called without a line between


def of_modules() -> None:
    layer, x = torch.nn.Linear(2, 2), torch.ones(2, 2)
    while True:
        x = torch.sigmoid(layer(x))


def behind_a_handler() -> None:
    while True:
        try:
            no_calls()
        except Exception:
            continue


def behind_a_handler_of_all() -> None:
    times = 0
    while times < 3:
        try:
            no_calls()
        except:  # noqa: E722
            times += 1


ENDLESS = [
    no_calls,
    of_operators,
    of_an_iterator,
    of_a_generator,
    of_a_function_called_in_c,
    of_modules,
    behind_a_handler,
]


@pytest.mark.parametrize("is_main", [True, False], ids=["main", "another"])
@pytest.mark.parametrize("function", ENDLESS)
@pytest.mark.usefixtures("_soon")
def test_a_run_without_an_end_is_told_in_each_thread_and_nothing_is_left_behind(
    function: Callable[[], object], is_main: bool
) -> None:
    told: list[object] = []

    def run() -> None:
        traced = sys.gettrace()
        with pytest.raises(ending.EndlessError):
            within(function)
        for _ in range(10**5):  # nothing comes later
            pass
        told.append(sys.gettrace() is traced)

    threads = {*threading.enumerate()}
    if is_main:
        run()
    else:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert told == [True]
    assert {*threading.enumerate()} == threads


@pytest.mark.usefixtures("_soon")
def test_a_handler_of_everything_is_interrupted_again() -> None:
    assert within(behind_a_handler_of_all) is None


@pytest.mark.usefixtures("_soon")
def test_what_the_model_raises_is_as_it_was_and_a_run_behind_it_too() -> None:
    def raising() -> None:
        raise LookupError("of the model")

    with pytest.raises(LookupError, match="of the model"):
        within(raising)
    assert within(lambda: 5) == 5


@pytest.mark.usefixtures("_soon")
def test_a_run_ends_that_takes_long_or_as_many_lines_as_the_known_call_leads_one_to_expect() -> None:
    def counted(most: int) -> int:
        number = 0
        while number < most:
            number += 1
        return number

    def long() -> int:
        return counted(200) + len(str(threading.Event().wait(0.2)))

    assert within(long) == 205
    many = 400_000
    assert within(lambda: counted(many), lambda: counted(many // 100)) == many
    with pytest.raises(ending.EndlessError):
        within(lambda: counted(10**7), lambda: counted(4))


def test_a_run_that_takes_too_much_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubling(times: int) -> int:
        x = torch.ones(2**20)
        for _ in range(times):
            x = torch.cat([x, x])
            threading.Event().wait(0.05)
        return x.numel()

    monkeypatch.setattr(ending, "_LOOK", 0.01)
    monkeypatch.setattr(ending, "_MEMORY", 2**28)
    assert within(lambda: doubling(3)) == 2**23
    with pytest.raises(ending.EndlessError):
        within(lambda: doubling(9))
    assert within(lambda: doubling(3)) == 2**23


@pytest.mark.usefixtures("_soon")
def test_what_one_run_took_says_nothing_of_the_next() -> None:
    runs = ending.Ending(lambda watched: watched(int))
    with ending.watched_for_their_end():
        for function in (no_calls, of_operators, no_calls):
            with pytest.raises(ending.EndlessError):
                runs.ended(lambda watched, function=function: watched(function))  # type: ignore[misc]
            assert runs.ended(lambda watched: watched(lambda: 3)) == 3


def _starts(runs: ending.Ending, function: Callable[[], object]) -> int:
    """How often a run begins."""
    starts = itertools.count()

    def run() -> object:
        next(starts)
        return function()

    runs.ended(lambda watched: watched(run))
    return next(starts)


@pytest.mark.usefixtures("_soon")
def test_a_run_that_waits_for_others_is_not_counted() -> None:
    """As it does on a machine that has more to do."""
    runs = ending.Ending(lambda watched: watched(int))
    assert _starts(runs, lambda: threading.Event().wait(0.3)) == 1


@pytest.mark.usefixtures("_soon")
def test_what_has_ended_counted_is_not_counted_again() -> None:
    def long() -> None:
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            sum(range(10**5))

    runs = ending.Ending(lambda watched: watched(long))
    assert _starts(runs, long) == 2
    assert _starts(runs, long) == 1
    with pytest.raises(ending.EndlessError):
        runs.ended(lambda watched: watched(no_calls))
