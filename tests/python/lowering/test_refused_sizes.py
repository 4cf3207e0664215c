"""Sizes of a dynamic axis that eager refuses: a file stops there as well, and answers at every other one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from exportguard import to_onnx

Called = Callable[[torch.Tensor], torch.Tensor]

TRACED = 12
SIZES = (1, 2, 3, 4, 5, 6, 7, 12, 13)


def written(place: int | slice, part: torch.Tensor) -> Called:
    def write(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[place] = part
        return y

    return write


CALLS: dict[str, Called] = {
    "halves": lambda x: functional.glu(x, 0),
    "halves of rows": lambda x: functional.glu(x[None].expand(2, -1), -1),
    "a slice's place": lambda x: torch.slice_scatter(x, torch.zeros(2), 0, 1, 3),
    "a slice's place from the end": lambda x: torch.slice_scatter(x, torch.zeros(2), 0, -3, -1),
    "the last places": lambda x: torch.slice_scatter(x, torch.zeros(3), 0, -3),
    "the places behind one": lambda x: torch.slice_scatter(x, x[1:] * 2, 0, 1),
    "as much as there is": lambda x: torch.slice_scatter(x, x[1:5] * 2, 0, 1, 5),
    "one place": lambda x: torch.select_scatter(x, torch.zeros(()), 0, 2),
    "one place from the end": lambda x: torch.select_scatter(x, torch.zeros(()), 0, -3),
    "a write to a place": written(2, torch.tensor(7.0)),
    "a write to a place from the end": written(-4, torch.tensor(7.0)),
    "a write to the last one": written(-1, torch.tensor(7.0)),
    "a write to a slice": written(slice(1, 4), torch.ones(3)),
    "a write to as much as there is": written(slice(1, 4), torch.tensor(7.0)),
    "padding around": lambda x: functional.pad(x[None], (2, 3), mode="circular")[0],
    "padding around and cutting": lambda x: functional.pad(x[None], (-1, 3), mode="circular")[0],
    "reflections": lambda x: functional.pad(x[None], (2, 3), mode="reflect")[0],
    "windows of a convolution": lambda x: functional.conv1d(x[None, None], torch.ones(1, 1, 3))[0],
    "largest ones": lambda x: x.topk(3).values,
    "one more than the third": lambda x: x[2] + x[-3],
}


def answered(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor | None:
    """None for what stops, whatever it says."""
    try:
        return function(x)
    except Exception:
        return None


@pytest.mark.parametrize("name", CALLS)
def test_a_file_answers_at_the_sizes_at_which_eager_does(name: str) -> None:
    function = CALLS[name]
    module = type("Module", (torch.nn.Module,), {"forward": lambda _, x: function(x)})()
    model = to_onnx(module.eval(), (torch.linspace(-1, 2, TRACED),), dynamic_shapes=({0: "n"},))

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(next(iter(model.run({"x": x}).values())))

    for size in SIZES:
        x = torch.linspace(-1, 2, size)
        got, expected = answered(run, x), answered(function, x)
        assert (got is None) == (expected is None), f"at {size}: {got}, eager {expected}"
        if got is not None and expected is not None:
            torch.testing.assert_close(got, expected)
