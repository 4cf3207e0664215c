"""`if x.shape[0] == 3` is a branch for an example of 3 rows, too, whichever way the model asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from exportguard import AxisError, to_onnx

_ROWS = (3, 1, 2, 4, 5, 8)


def compared(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] == 3 else x


def length(x: torch.Tensor) -> torch.Tensor:
    if len(x) != 3:
        return x + 1
    return x * 2


def shape(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape == (3, 4) else x - 1


def two_numbers(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 3:
        x = x * 2
    if x.shape[0] == 5:
        x = x - 1
    return x


def matched(x: torch.Tensor) -> torch.Tensor:
    match x.shape[0]:
        case 3:
            return x * 2
        case 5:
            return x * 3
        case _:
            return x


def looked_up(x: torch.Tensor) -> torch.Tensor:
    return {3: x * 2}.get(x.shape[0], x)


def what_is_left(x: torch.Tensor) -> torch.Tensor:
    return x * (x.shape[0] - 3 or 7)


def a_flag_as_a_key(x: torch.Tensor) -> torch.Tensor:
    return {True: x * 2, False: x}[x.shape[0] > 3]


def a_flag_as_a_place(x: torch.Tensor) -> torch.Tensor:
    return [x, x * 2][x.shape[0] > 3]


def below_zero(x: torch.Tensor) -> torch.Tensor:
    return x * int(-x.shape[0] / 2) + int(-0.3 * x.shape[0])


Forward = Callable[[torch.Tensor], torch.Tensor]
_PROGRAMS: tuple[Forward, ...] = (
    *(compared, length, shape, two_numbers, matched, looked_up),
    *(what_is_left, a_flag_as_a_key, a_flag_as_a_place, below_zero),
)


class Model(torch.nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.called = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.called(x)


@pytest.mark.parametrize("forward", _PROGRAMS, ids=lambda forward: forward.__name__)
def test_the_size_of_the_example_is_one_of_all(forward: Forward) -> None:
    onnx = to_onnx(Model(forward).eval(), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert all(axis.kept for axis in onnx.axes)
    for rows in _ROWS:
        x = torch.linspace(-1, 2, rows * 4).reshape(rows, 4)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), forward(x))


def test_what_takes_one_size_alone_is_no_choice() -> None:
    weight = torch.ones(3, 4)
    with pytest.raises(AxisError, match="fixed to 3"):
        to_onnx(Model(lambda x: x + weight), (torch.ones(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
