"""Answers that are as exact as the original's own agree; what is further from the truth does not."""

from __future__ import annotations

import pytest
import torch

from exportguard import validate_module
from exportguard.validation import validate
from exportguard.validation.exactness import exact_leaves, is_as_exact
from exportguard.validation.own_module import module_case


class Cancels(torch.nn.Module):
    """Differences of large sums: float32 is off by far more than the tolerance, whoever computes them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4096, 8, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = (x * 1e2) @ self.weight.to(torch.float32)
        return wide.float() - (x.flip(-1) * 1e2) @ self.weight.flip(0) + x[:, :8]


def _example() -> torch.Tensor:
    return torch.randn(3, 4096, generator=torch.Generator().manual_seed(1))


def test_the_rounding_of_the_original_is_no_difference() -> None:
    report = validate_module(Cancels().eval(), (_example(),), ({0: "batch"},))
    assert report.ok, report.sets
    assert any(one.as_exact for one in report.sets)


@pytest.mark.parametrize("place", [0, 23])
def test_a_single_wrong_value_is_one(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    run = validate.OrtSession.run

    def wrong(self: object, feeds: object) -> list[torch.Tensor]:
        (found,) = run(self, feeds)  # type: ignore[arg-type]
        found.view(-1)[place] += 0.5
        return [found]

    monkeypatch.setattr(validate.OrtSession, "run", wrong)
    report = validate_module(Cancels().eval(), (_example(),), None)
    assert not report.ok
    assert not any(one.as_exact for one in report.sets)


@pytest.mark.parametrize(
    ("own", "other", "agrees"),
    [(1e-4, 1.5e-4, True), (1e-4, 3e-4, False), (0.0, 1e-4, False), (0.5, 0.5, False)],
    ids=["as near", "further", "the original is exact", "nothing but rounding"],
)
def test_the_distances_decide(own: float, other: float, agrees: bool) -> None:
    exact = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(2, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert is_as_exact(exact, exact + own * noise[0], exact + other * noise[1]) == agrees


def test_infinities_in_other_places_are_a_difference() -> None:
    exact = torch.tensor([0.0, 1.0, torch.inf], dtype=torch.float64)
    assert not is_as_exact(exact, exact, torch.tensor([0.0, torch.inf, 1.0]))


class Routed(torch.nn.Module):
    """Each row goes through the matrix of its group, as the experts of a mixture do it."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = torch.nn.Parameter(torch.randn(3, 16, 8, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ends = torch.tensor([2, 2, 5], dtype=torch.int32)
        return torch._grouped_mm(x, self.experts, offs=ends)  # type: ignore[attr-defined]


def test_products_of_groups_are_computed_in_float64() -> None:
    module, x = Routed().eval(), torch.randn(6, 16, generator=torch.Generator().manual_seed(1))
    case = module_case(module, (x,), None)
    (exact,) = exact_leaves(case, case.sets[0])
    assert exact.value.dtype == torch.float64
    groups, wide = (x[:2], x[2:2], x[2:5]), module.experts.double()
    expected = torch.cat([rows.double() @ matrix for rows, matrix in zip(groups, wide, strict=True)])
    torch.testing.assert_close(exact.value[:5], expected)
    torch.testing.assert_close(exact.value[:5].float(), module(x)[:5], atol=1e-4, rtol=1e-4)
