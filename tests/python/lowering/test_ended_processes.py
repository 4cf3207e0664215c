"""Sizes of 0 at which a runtime ends the process or never returns: a file stops there, or answers as eager does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn import functional

from called import CalledWithAll
from exportguard import OnnxModel, to_onnx
from exportguard.errors import LoweringError

#: Seconds until a run counts as one that never returns.
PATIENCE = 20


@dataclass(frozen=True)
class Emptied:
    """A function of tensors of these shapes, whose named axes are of size 4 in the example."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int | str, ...], ...]
    dtype: torch.dtype = torch.float32

    def inputs(self, **sizes: int) -> tuple[torch.Tensor, ...]:
        shapes = [[sizes.get(size, 4) if isinstance(size, str) else size for size in shape] for shape in self.shapes]
        return tuple((3 * torch.randn(shape)).to(self.dtype) for shape in shapes)

    def names(self) -> list[str]:
        return sorted({size for shape in self.shapes for size in shape if isinstance(size, str)})

    def model(self) -> OnnxModel:
        axes = tuple({i: size for i, size in enumerate(shape) if isinstance(size, str)} for shape in self.shapes)
        module = self.function if isinstance(self.function, torch.nn.Module) else CalledWithAll(self.function)
        return to_onnx(module.eval(), self.inputs(), dynamic_shapes=axes if module is self.function else (axes,))


def distinct(dim: int) -> Callable[[torch.Tensor], Any]:
    return lambda x: torch.unique(x, dim=dim, return_inverse=True, return_counts=True)


def runs(dim: int) -> Callable[[torch.Tensor], Any]:
    return lambda x: torch.unique_consecutive(x, dim=dim, return_inverse=True, return_counts=True)


def layer(kind: type[torch.nn.RNNBase], **options: Any) -> torch.nn.Module:
    return kind(3, 2, **options)


ROWS: tuple[tuple[int | str, ...], ...] = (("rows", "columns"),)
STEPS: tuple[tuple[int | str, ...], ...] = (("steps", "batch", 3),)

CASES: dict[str, Emptied] = {
    "distinct rows": Emptied(distinct(0), ROWS, torch.int64),
    "distinct columns": Emptied(distinct(-1), ROWS, torch.int64),
    "distinct rows of bytes": Emptied(distinct(0), ROWS, torch.int8),
    "distinct rows of floats": Emptied(distinct(0), ROWS),
    "distinct slices": Emptied(distinct(1), (("a", "b", "c"),), torch.int64),
    "runs of rows": Emptied(runs(0), ROWS, torch.int64),
    "runs of columns": Emptied(runs(1), ROWS),
    "a window of data": Emptied(lambda x, w: functional.conv1d(x, w), ((2, 3, 9), ("out", 3, "window"))),
    "a window of one side": Emptied(lambda x, w: functional.conv2d(x, w), ((2, 3, 9, 9), (2, 3, "height", 2))),
    "a window of a volume": Emptied(lambda x, w: functional.conv3d(x, w), ((2, 3, 5, 5, 5), (2, 3, 2, 2, "depth"))),
    "a transposed window": Emptied(lambda x, w: functional.conv_transpose1d(x, w), ((2, 3, 9), (3, "out", "window"))),
    "lstm": Emptied(layer(torch.nn.LSTM), STEPS),
    "lstm of two layers": Emptied(layer(torch.nn.LSTM, num_layers=2, bidirectional=True), STEPS),
    "lstm with a projection": Emptied(layer(torch.nn.LSTM, proj_size=1), STEPS),
    "gru": Emptied(layer(torch.nn.GRU), STEPS),
    "gru both ways": Emptied(layer(torch.nn.GRU, bidirectional=True, batch_first=True), (("batch", "steps", 3),)),
    "rnn": Emptied(layer(torch.nn.RNN), STEPS),
}


def in_child(step: Callable[[], bool]) -> bool:
    """What a step says in a process of its own.

    Raises:
        AssertionError: the process ended, or did not return
    """
    child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.alarm(PATIENCE)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = int(step())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status), f"the process ended by {signal.Signals(os.WTERMSIG(status)).name}"
    assert os.WEXITSTATUS(status) in (0, 1), "the step could not be tried"
    return bool(os.WEXITSTATUS(status))


def answers(call: Callable[[], object]) -> bool:
    """Whether it does not stop, whatever it says."""
    try:
        call()
    except Exception:
        return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_no_size_of_0_ends_the_process(name: str) -> None:
    case = CASES[name]
    torch.set_num_threads(1)  # the threads of a process are not those of its children
    model = case.model()

    def run(*given: torch.Tensor) -> dict[str, Any]:
        return model.run({value.name: x for value, x in zip(model.inputs, given, strict=True)})

    assert in_child(lambda: answers(lambda: run(*case.inputs())))
    for emptied in [[one] for one in case.names()] + [case.names()]:
        given = case.inputs(**dict.fromkeys(emptied, 0))
        if in_child(lambda given=given: answers(lambda: run(*given))):  # type: ignore[misc]
            got, expected = run(*given), torch.utils._pytree.tree_leaves(case.function(*given))
            for made, wanted in zip(got.values(), expected, strict=True):
                torch.testing.assert_close(torch.as_tensor(made), wanted)


@pytest.mark.parametrize(
    ("function", "shapes", "reason"),
    [
        (lambda x, w: functional.conv1d(x, w), [(1, 2, 5), (3, 2, 0)], "a convolution with an empty window"),
        (lambda x, w: functional.conv_transpose1d(x, w), [(1, 2, 5), (2, 0, 3)], "a convolution of no channels"),
    ],
    ids=["window", "channels"],
)
def test_what_is_known_to_be_empty_is_refused(
    function: Callable[..., torch.Tensor], shapes: list[tuple[int, ...]], reason: str
) -> None:
    x, weight = (torch.randn(shape) for shape in shapes)
    with pytest.raises(LoweringError, match=reason):
        to_onnx(CalledWithAll(function), (x, weight))
