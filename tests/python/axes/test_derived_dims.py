"""A `Dim` that follows from another one: nothing is tried at sizes that it excludes; all that it allows is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.export import Dim

from called import CalledWithTwo
from exportguard import to_onnx
from exportguard.errors import AxisError

K = Dim("k")
Forward = Callable[..., torch.Tensor]


def asked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] % 8 != 0:
        return x * 2
    return x.reshape(-1, 8).sum(1) + y.sum()


def cut(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 8).sum(1) + y.sum()


def beside_its_root(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape[0] != 8 * y.shape[0]:
        raise ValueError("eight of x for each of y")
    return x.reshape(-1, 8).sum(1) + y


def beside_another(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[::2] + y if x.shape[0] > y.shape[0] else x + y


def with_one_more(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[1:].reshape(-1, 2).sum(1) * y.sum() if x.shape[0] % 2 else x - 1


def in_no_proportion(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 3).sum(1) * y.reshape(-1, 2).sum(1)


def halves(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 16).sum(1) if x.shape[0] % 16 == 0 else x + y.sum()


PROGRAMS: Mapping[str, tuple[Forward, Any, Any, Callable[[int], tuple[int, int]]]] = {
    "a test": (asked, 8 * K, None, lambda k: (8 * k, 3)),
    "a test, in bounds": (asked, 8 * Dim("k", min=1, max=64), None, lambda k: (8 * k, 3)),
    "a view": (cut, 8 * K, None, lambda k: (8 * k, 3)),
    "its root": (beside_its_root, 8 * K, K, lambda k: (8 * k, k)),
    "of one root": (beside_another, 8 * K, 4 * K, lambda k: (8 * k, 4 * k)),
    "one more": (with_one_more, 2 * K + 1, None, lambda k: (2 * k + 1, 3)),
    "no proportion": (in_no_proportion, 3 * K, 2 * K, lambda k: (3 * k, 2 * k)),
}


@pytest.mark.parametrize("rewrite", [(), "auto"], ids=["as it is", "rewritten"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.thinned(2)
def test_what_is_excluded_is_not_asked_for(name: str, rewrite: Any) -> None:
    function, x, y, sizes = PROGRAMS[name]

    def inputs(k: int) -> dict[str, torch.Tensor]:
        return {name: torch.randn(size) for name, size in zip("xy", sizes(k), strict=True)}

    axes = {"x": {0: x}, "y": {0: y} if y is not None else None}
    model = to_onnx(CalledWithTwo(function).eval(), kwargs=inputs(3), dynamic_shapes=axes, rewrite=rewrite)
    assert all(axis.kept for axis in model.axes)
    for k in (1, 2, 3, 4, 9):
        given = inputs(k)
        (got,) = model.run(given).values()
        torch.testing.assert_close(torch.as_tensor(got), function(**given))


def test_what_is_allowed_is_still_asked_for() -> None:
    axes = {"x": {0: 8 * K}, "y": None}
    with pytest.raises(AxisError, match="% 16"):
        to_onnx(CalledWithTwo(halves).eval(), (torch.randn(24), torch.randn(3)), dynamic_shapes=axes)


def test_who_loses_all_other_sizes_is_told_how_to_ask_for_multiples() -> None:
    example = (torch.randn(24), torch.randn(3))
    with pytest.raises(AxisError) as raised:
        to_onnx(CalledWithTwo(asked).eval(), example, dynamic_shapes={"x": {0: "n"}, "y": None})
    advice = "8 * torch.export.Dim('n')"
    assert f"or with {advice} for multiples of 8" in str(raised.value)
    axes = {"x": {0: eval(advice)}, "y": None}
    (axis,) = to_onnx(CalledWithTwo(asked).eval(), example, dynamic_shapes=axes).axes
    assert axis.kept
