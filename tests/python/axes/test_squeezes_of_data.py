"""An axis of which tensor data alone tells the size may have one entry: a file has no rank for both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from called import Called
from exportguard import ExportError, to_onnx

Model = Callable[[torch.Tensor], torch.Tensor]


def in_a_loop(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(4)
    for at in range(len(x)):
        total = total + x[max(0, at - 2) : at + 1].squeeze(0).cumsum(0).reshape(-1, 4)[-1]
    return total


def by_parts(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(4)
    for part in x.split(2):
        total = total + part.squeeze(0).softmax(0).reshape(-1, 4).sum(0)
    return total


def until_none_is_left(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(4)
    while len(x) > 0:
        total = total * 0.5 + x.squeeze().softmax(0).reshape(-1, 4).sum(0)
        x = x[1:]
    return total


def a_rank(x: torch.Tensor) -> torch.Tensor:
    places = (x[:, 0] > 0).nonzero().squeeze()
    return x.sum(0) if places.ndim == 0 else x[places].mean(0)


SQUEEZED: dict[str, Model] = {
    "places": lambda x: x[(x[:, 0] > 0).nonzero().squeeze()],
    "a rank": a_rank,
    "rows": lambda x: x[x[:, 0] > 0].squeeze().sum(0),
    "one axis": lambda x: x[x[:, 0] > 0].squeeze(0).sum(0),
    "several axes": lambda x: x[x[:, 0] > 0][None].squeeze((0, 1)).sum(0),
    "a product": lambda x: (x[x[:, 0] > 0] @ x.T).squeeze(),
    "a covariance": lambda x: torch.cov(x[x[:, 0] > 0]),
    "a correlation": lambda x: torch.corrcoef(x[x[:, 0] > 0]).sum(),
    "a slice": lambda x: x[: (x[:, 0] > 0).sum().item()].squeeze(0),
}
IN_LOOPS: dict[str, Model] = {"in a loop": in_a_loop, "by parts": by_parts, "until none is left": until_none_is_left}


@pytest.mark.parametrize("rewrite", ["never", "auto"])
@pytest.mark.parametrize("model", SQUEEZED.values(), ids=SQUEEZED)
def test_it_is_not_squeezed(model: Model, rewrite: str) -> None:
    options = {"rewrite": "auto"} if rewrite == "auto" else {}
    with pytest.raises(ExportError, match=r"squeezed of which tensor data alone tells the size \(.*\.py:\d+: "):
        to_onnx(Called(model).eval(), (torch.randn(6, 4),), dynamic_shapes=({0: "rows"},), **options)


@pytest.mark.parametrize("model", IN_LOOPS.values(), ids=IN_LOOPS)
def test_it_is_not_squeezed_in_loops(model: Model) -> None:
    with pytest.raises(ExportError, match=r"squeezed of which tensor data alone tells the size"):
        to_onnx(Called(model).eval(), (torch.randn(6, 4),), dynamic_shapes=({0: "rows"},), rewrite="auto")


def checked(x: torch.Tensor) -> torch.Tensor:
    rows = x[x[:, 0] > -9]
    torch._check(rows.shape[0] > 1)
    return rows.squeeze().sum(0)


def covariance(x: torch.Tensor) -> torch.Tensor:
    rows = x[x[:, 0] > -9]
    torch._check(rows.shape[0] > 1)
    return torch.cov(rows) @ rows


KEPT: dict[str, Model] = {
    "an axis that has one entry": lambda x: x[(x[:, 0] > 0).nonzero().squeeze(1)],
    "another axis": lambda x: x[x[:, 0] > 0].squeeze(1),
    "more by a check": checked,
    "a covariance of columns": lambda x: torch.cov(x[x[:, 0] > -9].T),
    "a covariance of more by a check": covariance,
}


@pytest.mark.parametrize("model", KEPT.values(), ids=KEPT)
def test_what_never_has_one_entry_is_squeezed(model: Model) -> None:
    onnx = to_onnx(Called(model).eval(), (torch.randn(6, 4),), dynamic_shapes=({0: "rows"},))
    for rows in (6, 2, 3):
        x = torch.randn(rows, 4)
        (got,) = onnx.run({"x": x}).values()
        torch.testing.assert_close(got, model(x))
