"""A tensor whose rows tensor data count, beside one of another size: it has as many rows, or one that is broadcast."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from called import CalledWithTwo
from exportguard import to_onnx

Form = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def filled(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[:] = rows
    return out


def copied(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out.copy_(rows)
    return out


def written_beside(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    out[:, 1:3] = rows[:, :2]
    return out


#: What takes `rows` beside `x`, whose rows are as many, or of which there is one.
FORMS: dict[str, Form] = {
    "added": lambda x, rows: x + rows,
    "added to": lambda x, rows: rows + x,
    "compared": lambda x, rows: (rows > x).float(),
    "expanded": lambda x, rows: rows.expand(x.shape[0], 4),
    "expanded as": lambda x, rows: rows.expand_as(x),
    "expanded in front": lambda x, rows: rows.expand(2, x.shape[0], 4),
    "broadcast to": lambda x, rows: torch.broadcast_to(rows, x.shape),
    "broadcast tensors": lambda x, rows: torch.broadcast_tensors(rows, x)[0],
    "filled": filled,
    "copied": copied,
    "written beside": written_beside,
    "chosen": lambda x, rows: torch.where(x > 0, x, rows),
    "interpolated": lambda x, rows: torch.lerp(x, rows, 0.3),
    "masked": lambda x, rows: x.masked_fill(rows > 0, 2.0),
    "taken along": lambda x, rows: torch.take_along_dim(x, rows.argsort(1), 1),
    "a distance": lambda x, rows: x * functional.pairwise_distance(x, rows)[:, None],
    "an addcmul": lambda x, rows: torch.addcmul(x, rows, x),
}

#: What comes behind, where a wrong size would be another number.
BEHIND: dict[str, Form] = {
    "summed": lambda y, rows: y.sum(-2),
    "by its rows": lambda y, rows: y / rows.shape[0],
    "beside once more": lambda y, rows: y - rows,
    "joined": lambda y, rows: torch.cat([y, rows.expand_as(y)], -1),
}


def rows_of(x: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    return x[x[:, 0] >= bound]


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_rows_that_data_count_are_broadcast(form: Form, behind: Form) -> None:
    def model(x: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
        rows = rows_of(x, bound)
        return behind(form(x, rows), rows)

    shapes = ({0: "rows"}, {})
    onnx = to_onnx(CalledWithTwo(model).eval(), (torch.randn(5, 4), torch.tensor(0.3)), dynamic_shapes=shapes)
    for count in (5, 2, 7, 1):
        x = torch.randn(count, 4)
        for bound in (x[:, 0].max(), x[:, 0].min()):  # one row, or all
            (got,) = onnx.run({"x": x, "y": bound}).values()
            torch.testing.assert_close(got, model(x, bound))


#: What comes behind a tensor of which data decided all sizes.
BEHIND_BOTH: dict[str, Form] = BEHIND | {
    "numbered": lambda y, rows: y + torch.arange(y.shape[-2])[:, None],
    "beside as many ones": lambda y, rows: torch.cat([y, y.new_ones(y.shape)], -1),
    "by its own rows": lambda y, rows: y.sum(-2) / y.shape[-2],
    "flattened": lambda y, rows: torch.cat([y.flatten(), rows.flatten()]),
    "beside both": lambda y, rows: (y + rows) * y + rows,
}


def at_pairs(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    table = torch.arange(36.0).reshape(9, 4)
    return table[torch.arange(x.shape[0]), torch.arange(rows.shape[0]) % 4][:, None] + torch.zeros(4)


def written_at_pairs(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(9, 4)
    out[torch.arange(x.shape[0]), torch.arange(rows.shape[0]) % 4] = 1.5
    return x + rows + out.sum()


def changed(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.clone().mul_(rows).add_(rows, alpha=2)


#: What takes rows of one mask beside those of another.
FORMS_OF_BOTH: dict[str, Form] = FORMS | {
    "changed": changed,
    "at pairs": at_pairs,
    "written at pairs": written_at_pairs,
    "selected": lambda x, rows: x + rows + x.masked_select(rows[:, :1] > 0.5).sum(),
    "scattered": lambda x, rows: x.masked_scatter(rows[:, :1] > 0.5, rows),
    "a batch of products": lambda x, rows: (x[:, None] @ rows[:, :, None])[:, 0] + torch.zeros(4),
    "a cross product": lambda x, rows: torch.cross(x[:, 1:], rows[:, 1:], dim=1).sum(1, keepdim=True) * torch.ones(4),
    "clamped": lambda x, rows: torch.clamp(x, min=rows, max=rows + 1),
    "added to a product": lambda x, rows: torch.addmm(x, rows, torch.ones(4, 4)),
}


def _pairs() -> list[tuple[str, str]]:
    """Each form with three of what may come behind, another three for the next one."""
    behind = [*BEHIND_BOTH]
    return [(form, behind[(i + step) % len(behind)]) for i, form in enumerate(FORMS_OF_BOTH) for step in (0, 3, 7)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("form", "behind"), _pairs())
def test_rows_of_two_masks_are_broadcast(form: str, behind: str) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = y[y[:, 0] > 0]
        return BEHIND_BOTH[behind](FORMS_OF_BOTH[form](x[x[:, 0] > 0], rows), rows)

    shapes = ({0: "n"}, {0: "m"})
    onnx = to_onnx(CalledWithTwo(model).eval(), (torch.randn(5, 4), torch.randn(6, 4)), dynamic_shapes=shapes)
    for first, second in ((3, 3), (3, 1), (1, 3), (1, 1), (0, 1), (1, 0), (0, 0)):
        x, y = of_positive_rows(first, 2), of_positive_rows(second, 3)
        try:
            expected = model(x, y)
        except (RuntimeError, IndexError):  # a form that does not broadcast, or what comes behind it
            assert first != second
            continue
        (got,) = onnx.run({"x": x, "y": y}).values()
        torch.testing.assert_close(got, expected, equal_nan=True)


def of_positive_rows(count: int, others: int) -> torch.Tensor:
    """Rows of four numbers, `count` of which begin with one above 0, and stand among the others."""
    x = torch.randn(count + others, 4)
    x[:, 0] = torch.where(torch.randperm(count + others) < count, x[:, 0].abs() + 0.1, -x[:, 0].abs())
    return x
