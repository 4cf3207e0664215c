"""Tensors made of sizes by other functions than `torch.tensor`."""

from __future__ import annotations

import torch

from patch_programs.written_entries import Function, are_right

FUNCTIONS: list[Function] = [
    lambda x: torch.as_tensor([x.shape[1], 2]) + x.sum(),
    lambda x: torch.as_tensor(x.shape[1]) * x,
    lambda x: torch.as_tensor(x.shape),
    lambda x: torch.as_tensor([x.shape[1] / 2, x.shape[0]], dtype=torch.float64),
    lambda x: torch.as_tensor(data=(x.shape[1], -1), device=x.device),
    lambda x: torch.as_tensor([[x.shape[1], 1], [0, x.shape[0]]], dtype=torch.float32),
    lambda x: torch.asarray([x.shape[1], 2.5], dtype=x.dtype),
    lambda x: x.new_tensor([x.shape[1], x.shape[0]]),
    lambda x: x.long().new_tensor(x.shape[1]) * x,
    lambda x: x.new_tensor([x.shape[1] > 3, False], dtype=torch.bool),
    lambda x: torch.as_tensor([1, 2]) * x.new_tensor([3.0]) + torch.as_tensor(x).sum(),
]


OF_PLACES: list[Function] = [
    lambda x: torch.stack(torch.unravel_index(x.flatten().argmax(), x.shape)),
    lambda x: torch.stack(torch.unravel_index(x.argsort(1), (x.shape[1], x.shape[0])), -1),
    lambda x: torch.unravel_index(x.argmax(1).int() - 9, (x.shape[0], 2, x.shape[1]))[2],
    lambda x: torch.unravel_index(x.argmax(0), x.shape[0])[0],
    lambda x: torch.unravel_index(x.argmax(0), (2, 5))[1] + x.shape[0],
]


def keeps_the_sizes_of_tensors() -> None:
    are_right(FUNCTIONS)


def keeps_the_sizes_of_arrays() -> None:
    are_right(OF_PLACES)


PROGRAMS = {
    "tensors made of sizes": keeps_the_sizes_of_tensors,
    "places in arrays of sizes": keeps_the_sizes_of_arrays,
}
