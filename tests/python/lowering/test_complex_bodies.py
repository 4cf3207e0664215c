"""Complex tensors go into, through and out of the bodies of control flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan

from exportguard import to_onnx

if TYPE_CHECKING:
    from collections.abc import Callable


def spectrum(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    return torch.polar(size, angle)


def inside(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    def inverse(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(spectrum(size, angle), 6, dim=1)

    return torch.cond(size.sum() > 0, inverse, lambda s, a: 2 * inverse(a, s), (size, angle))


def into_and_out_of_branches(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    z = spectrum(size, angle)
    chosen, beside = torch.cond(
        size.sum() > 0, lambda z, a: (z * 2j, a + 1), lambda z, a: (z.conj() * z, a - 1), (z, angle)
    )
    return torch.view_as_real(chosen + beside)


def branch_in_a_branch(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    def inner(z: torch.Tensor) -> torch.Tensor:
        return torch.cond((z * z).abs().sum() > 3, lambda z: z.exp(), lambda z: z + 1j, (z,))

    return torch.view_as_real(torch.cond(size.sum() > 0, inner, lambda z: z * z, (spectrum(size, angle),)))


def turned_in_a_loop(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    turn = spectrum(torch.ones_like(size), angle)
    start = (torch.tensor(0), spectrum(size, angle))

    def step(count: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return count + 1, z * turn

    _, z = torch._higher_order_ops.while_loop(lambda count, z: count < 3, step, start)
    return torch.view_as_real(z)


def scanned_rows(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    rows = spectrum(size, angle)

    def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return state * row, state + row

    last, states = scan(step, rows[0] * 1, rows, dim=0)
    return torch.cat([torch.view_as_real(last)[None], torch.view_as_real(states)])


def running_products(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    rows = spectrum(size, angle)
    return torch.view_as_real(associative_scan(lambda a, b: a * b, rows, 0, combine_mode="generic"))


class Program(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        return self.function(size, angle)


@pytest.mark.parametrize(
    "function",
    [inside, into_and_out_of_branches, branch_in_a_branch, turned_in_a_loop, scanned_rows, running_products],
    ids=lambda function: str(function.__name__),
)
def test_complex_tensors_pass_bodies(function: Callable[..., torch.Tensor]) -> None:
    example = (torch.rand(3, 4), torch.randn(3, 4))
    axes = {0: "rows"}
    model = to_onnx(Program(function).eval(), example, dynamic_shapes=(axes, axes))
    for rows in (3, 5, 2):
        for sign in (1, -1):
            inputs = (sign * torch.rand(rows, 4), torch.randn(rows, 4))
            (got,) = model.run(dict(zip(("size", "angle"), inputs, strict=True))).values()
            torch.testing.assert_close(torch.as_tensor(got), function(*inputs), rtol=1e-4, atol=1e-5)


class Chosen(torch.nn.Module):
    """Python decides which of two complex tensors goes on."""

    def forward(self, size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        z = torch.polar(size, angle) if size.sum() > 0 else torch.polar(angle, size)
        return torch.fft.irfft(z, 6, dim=1)


def test_a_branch_that_python_takes_gives_a_complex_tensor() -> None:
    axes = {0: "rows"}
    model = to_onnx(Chosen().eval(), (torch.rand(3, 4), torch.rand(3, 4)), dynamic_shapes=(axes, axes), rewrite="auto")
    for inputs in ((torch.rand(5, 4), torch.rand(5, 4)), (-torch.rand(2, 4), torch.rand(2, 4))):
        (got,) = model.run(dict(zip(("size", "angle"), inputs, strict=True))).values()
        torch.testing.assert_close(torch.as_tensor(got), Chosen()(*inputs), rtol=1e-4, atol=1e-5)
