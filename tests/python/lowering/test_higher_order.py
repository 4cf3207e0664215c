from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from tensors import Case, floats
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop

from called import Called
from exportguard import to_onnx

if TYPE_CHECKING:
    from conftest import Check

NEGATIVE = -floats(1, 4).abs()


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    """Eager `cond` compiles its branches, and torch 2.13 cannot once other calls made the sizes dynamic: a KeyError."""
    torch._dynamo.reset()


CASES: dict[str, Case] = {
    "cond": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
        [floats(3, 4).abs()],
        [[NEGATIVE], [floats(0, 4)]],
    ),
    "cond with two operands and two results": (
        lambda x, y: torch.cond(x.sum() > 0, lambda x, y: (x + y, x * y), lambda x, y: (x - y, x.clone()), (x, y)),
        [floats(3, 4).abs(), floats(4)],
        [[NEGATIVE, floats(4)]],
    ),
    "cond that returns an operand": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x.clone(), lambda x: x.sin(), (x,)),
        [floats(3, 4).abs()],
        [[NEGATIVE]],
    ),
    "cond of which nothing comes out": (
        lambda x: (torch.cond(x.sum() > 0, lambda x: (), lambda x: (), (x,)), x + 1)[1],
        [floats(3, 4).abs()],
        [[NEGATIVE]],
    ),
    "cond in a cond": (
        lambda x: torch.cond(
            x.sum() > 0,
            lambda x: torch.cond(x.max() > 2, lambda x: x + 1, lambda x: x * 2, (x,)),
            lambda x: x - 1,
            (x,),
        ),
        [floats(3, 4).abs()],
        [[NEGATIVE], [floats(3, 4).abs() + 2]],
    ),
    "cond with sizes in its branches": (
        lambda x: torch.cond(
            x.sum() > 0,
            lambda x: x.reshape(-1, 2)[:, :1] + x.shape[0],
            lambda x: x.reshape(-1, 2)[:, 1:] * 1,
            (x,),
        ),
        [floats(3, 4).abs()],
        [[NEGATIVE]],
    ),
    "cond on a size": (
        lambda x: torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x - 1, (x,)),
        [floats(3, 4)],
        [[floats(7, 4)]],
    ),
    "while_loop that counts": (
        lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x)),
        [floats(3, 4)],
        [[floats(1, 4)]],
    ),
    "while_loop on data, that may not run at all": (
        lambda x: while_loop(lambda x: x.sum() < 10, lambda x: (x + 1,), (x,)),
        [floats(3, 4)],
        [[floats(1, 4) + 100], [floats(2, 4)]],
    ),
    "while_loop with a tensor from outside": (
        lambda x, w: while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y @ w), (torch.tensor(0), x)),
        [floats(3, 4), floats(4, 4)],
        [[floats(1, 4), floats(4, 4)]],
    ),
    "while_loop over a size": (
        lambda x: while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x + i), (0, x)),
        [floats(3, 4)],
        [[floats(5, 4)]],
    ),
    "scan": (
        lambda x: scan(lambda c, x: (c + x, c * x), torch.zeros(4), x),
        [floats(3, 4)],
        [[floats(1, 4)]],
    ),
    "scan with two states, two tensors and one from outside": (
        lambda x, w: scan(
            lambda c, x: ((c[0] + x[0], c[1] * 2), (c[0] * x[1] + w,)),
            (torch.zeros(4), torch.ones(2)),
            (x, x + 1),
        ),
        [floats(3, 4), floats(4)],
        [[floats(6, 4), floats(4)]],
    ),
    "scan backwards along another axis": (
        lambda x: scan(lambda c, x: (c + x, c * x), torch.zeros(3), x, dim=1, reverse=True),
        [floats(3, 4)],
        [],
    ),
    "map": (
        lambda x, y: map_rows(lambda x, y: (x + y, x.sum() > 0), x, y),
        [floats(3, 4), floats(4)],
        [[floats(1, 4), floats(4)]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str, check: Check) -> None:
    function, inputs, others = CASES[name]
    check(function, inputs, others=others)


class WithoutGradients(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x + 1
        return y * 2


def test_a_body_under_a_setting_is_put_in_its_place(check: Check) -> None:
    check(WithoutGradients(), [floats(3, 4)], dynamic_shapes=[{0: torch.export.Dim.DYNAMIC}], others=[[floats(1, 4)]])


OF_MODELS = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
    "cond beside a write": lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x - 1, (x.clone().mul_(2),)),
    "while_loop": lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1],
    "scan": lambda x: scan(lambda carry, row: (carry + row, carry * 2), torch.zeros(4), x)[1],
    "map": lambda x: map_rows(lambda row, other: row + other, x, torch.ones(4)),
}


@pytest.mark.parametrize("name", OF_MODELS)
def test_operators_of_control_flow_that_a_model_calls_stay_where_tests_are_rewritten(name: str) -> None:
    function = OF_MODELS[name]
    model = to_onnx(Called(function).eval(), (floats(3, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (floats(3, 4), NEGATIVE, floats(5, 4).abs()):
        (got,) = model.run({"x": x}).values()
        torch.testing.assert_close(got, function(x))
