"""Programs that write in place give in onnxruntime what they give in eager, on other shapes too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch

from called import CalledWithTwo
from exportguard import to_onnx

Program = Callable[..., Any]


def floats(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def add_in_place(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * 2
    z.add_(y)
    return z


def read_before_and_after(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * 2
    before = z + 1
    z.mul_(y)
    return before, z + 1


def assign_a_slice(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    z[:, 1:] = y[:, :-1]
    return z


def assign_a_row(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    z[0] = y[-1] * 2
    return z


def assign_a_number(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    z[..., -1] = 7
    return z


def assign_with_a_step(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    z[:, ::2] = 0.5
    return z


def write_through_a_chain(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    z.t()[1:].unsqueeze(0).mul_(3)
    return z + y


def read_a_view_after_a_write_into_its_base(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    view = z[1:]
    z.add_(y)
    return view * 2


def read_a_view_after_a_write_into_another(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    left, right = z[:, :3], z[:, 1:]
    left.add_(10)
    return right + y[:, 1:]


def write_one_part_of_a_split(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    _, b = z.split(2, dim=1)
    b.neg_()
    return z


def write_one_of_an_unbind(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    z.unbind(1)[2].zero_()
    return z


def write_a_reshaped_tensor(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    z.view(-1)[1:].mul_(2)
    return z


def write_a_copy_that_reshape_made(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    flat = z.t().reshape(-1)
    flat.mul_(2)
    return z, flat


def write_the_diagonal(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    z.diagonal().fill_(9)
    return z


def copy_a_row_into_all(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = torch.empty_like(x)
    z.copy_(y[0])
    return z


def put_by_index(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    z[torch.tensor([0, 1])] = y[:2] + 1
    return z


def put_by_mask(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    z[y > 0] = -1
    return z


def fill_by_mask(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    z.masked_fill_(y > 0, 5.0)
    return z


def accumulate_rows(x: torch.Tensor, y: torch.Tensor) -> Any:
    total = torch.zeros(4)
    for i in range(2):
        total += x[i] * y[i]
    return total


def cast_as_the_destination(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = torch.zeros(x.shape, dtype=torch.int64)
    z[:, 1:] = (x[:, 1:] * 10).trunc()
    return z + (y > 0)


def change_the_shape_itself(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    z.unsqueeze_(0)
    z.mul_(2)
    return z.squeeze(0)


def write_an_out_argument(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = torch.empty_like(x)
    torch.add(x, y, out=z)
    return z * 2


def write_without_gradients(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    with torch.no_grad():
        z.add_(y)
    return z * 2


def detach_and_write(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    z.detach().mul_(3)
    return z


PROGRAMS = [
    accumulate_rows,
    add_in_place,
    assign_a_number,
    assign_a_row,
    assign_a_slice,
    assign_with_a_step,
    cast_as_the_destination,
    change_the_shape_itself,
    copy_a_row_into_all,
    detach_and_write,
    fill_by_mask,
    put_by_index,
    put_by_mask,
    read_a_view_after_a_write_into_another,
    read_a_view_after_a_write_into_its_base,
    read_before_and_after,
    write_a_reshaped_tensor,
    write_an_out_argument,
    write_one_of_an_unbind,
    write_one_part_of_a_split,
    write_the_diagonal,
    write_through_a_chain,
    write_without_gradients,
]


def outputs_of(session: ort.InferenceSession, inputs: Sequence[torch.Tensor]) -> list[np.ndarray]:
    names = [value.name for value in session.get_inputs()]
    feeds = {name: value.numpy() for name, value in zip(["x", "y"], inputs, strict=True) if name in names}
    return [np.asarray(output) for output in session.run(None, feeds)]


def as_list(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_that_writes_in_place_is_right_on_every_shape(program: Program) -> None:
    model = to_onnx(
        CalledWithTwo(program), (floats(3, 4), floats(3, 4)), dynamic_shapes={"x": {0: "rows"}, "y": {0: "rows"}}
    )
    session = ort.InferenceSession(model.to_bytes())
    for rows in (3, 5, 2):
        inputs = [floats(rows, 4), floats(rows, 4) + rows / 10]
        expected = as_list(program(*copy.deepcopy(inputs)))
        for got, want in zip(outputs_of(session, inputs), expected, strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


def test_a_copy_that_reshape_made_at_fixed_sizes_is_a_copy() -> None:
    session = ort.InferenceSession(
        to_onnx(CalledWithTwo(write_a_copy_that_reshape_made), (floats(3, 4), floats(3, 4))).to_bytes()
    )
    inputs = [floats(3, 4), floats(3, 4) + 1]
    for got, want in zip(outputs_of(session, inputs), write_a_copy_that_reshape_made(*inputs), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor([1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return x * self.total


def test_a_buffer_that_the_model_writes_is_an_output_under_its_name() -> None:
    model = to_onnx(Counter(), (floats(3, 2),), dynamic_shapes=({0: "rows"},))
    session = ort.InferenceSession(model.to_bytes())
    assert [output.name for output in session.get_outputs()] == ["output_0", "total_mutated"]
    eager, x = Counter(), floats(5, 2)
    expected = eager(x)
    got = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(got[0], expected.numpy(), rtol=1e-5)
    np.testing.assert_allclose(got[1], eager.total.numpy(), rtol=1e-5)


def test_an_input_that_the_model_writes_is_an_output_under_its_name() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    model = to_onnx(CalledWithTwo(program), (floats(3, 4), floats(3, 4)))
    session = ort.InferenceSession(model.to_bytes())
    assert [output.name for output in session.get_outputs()] == ["output_0", "x_mutated"]
    x, y = floats(3, 4), floats(3, 4)
    np.testing.assert_allclose(outputs_of(session, [x, y])[1], x.numpy() * 2, rtol=1e-6)
