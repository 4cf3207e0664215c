"""Large weights as ones of low rank while a model and its program are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from exportguard.axes import model_run, trial
from exportguard.axes.low_rank import LowRankWeights
from exportguard.axes.model_run import ModelRun, TriedCall
from exportguard.axes.traced_program import TracedProgram
from exportguard.axes.trial import Outcome, Trial
from exportguard.inputs import CallInputs
from exportguard.reading import Exported
from exportguard.request import ExportOptions, ExportRequest
from exportguard.tracing import exported_module

K, N = 300, 520  # no multiples of the rank
WIDTH = 1100  # of layers, so that two of them have more weights than are called few

Form = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

FORMS: dict[str, tuple[tuple[int, ...], Form]] = {
    "linear": ((N, K), torch.nn.functional.linear),
    "linear with a bias": ((N, K), lambda x, w: torch.nn.functional.linear(x, w, torch.arange(N, dtype=w.dtype))),
    "matmul": ((K, N), torch.matmul),
    "matmul of rows alone": ((K, N), lambda x, w: x.flatten(0, 1) @ w),
    "einsum": ((N, K), lambda x, w: torch.einsum("bsk,nk->bsn", x, w)),
    "weight in front": ((N, K), lambda x, w: w @ x.flatten(0, 1).mT),
    "addmm": ((K, N), lambda x, w: torch.addmm(torch.ones(N, dtype=w.dtype), x.flatten(0, 1), w, beta=2, alpha=0.5)),
    "experts": ((4, K, N), lambda x, w: torch.bmm(x.flatten(0, 1).expand(4, -1, -1), w)),
    "one expert": ((4, K, N), lambda x, w: x @ w[2]),
    "columns": ((K, 2 * N), lambda x, w: x @ w[:, N:]),
}


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.fixture(autouse=True)
def without_gradients_and_at_any_size(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(model_run, "_MANY_PRODUCTS", 1)
    with torch.no_grad():
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_products_are_those_with_a_weight_of_low_rank(form: str, dtype: torch.dtype) -> None:
    shape, product = FORMS[form]
    weight = torch.nn.Parameter(rows(*shape, dtype=dtype) * 0.1)
    x = rows(2, 3, K, dtype=dtype)
    true = product(x, weight)
    with LowRankWeights([weight]):
        found, of_zeros = product(x, weight), product(torch.zeros_like(x), weight)
    assert (found.shape, found.dtype, found.is_contiguous()) == (true.shape, dtype, true.is_contiguous())
    assert not torch.equal(found, true)
    spread = (found - of_zeros).float().std() / (true - of_zeros).float().std()
    assert 0.7 < float(spread) < 1.4, "the magnitudes are those of the weight itself"
    torch.testing.assert_close(of_zeros, product(torch.zeros_like(x), weight))


@pytest.mark.parametrize("form", FORMS)
def test_every_entry_of_a_row_counts(form: str) -> None:
    shape, product = FORMS[form]
    weight = torch.nn.Parameter(rows(*shape))
    x = rows(1, 1, K)
    with LowRankWeights([weight]):
        known = product(x, weight)
        others = [product(x + torch.nn.functional.one_hot(torch.tensor(place), K), weight) for place in range(K)]
    assert all(not torch.allclose(known, other) for other in others)


def test_sums_and_multiples_are_as_with_any_weight() -> None:
    weight = torch.nn.Parameter(rows(N, K).double())
    one, other = rows(5, K).double(), rows(5, K).double().flip(0)
    with LowRankWeights([weight]):
        whole = torch.nn.functional.linear(3 * one + other, weight)
        parts = 3 * torch.nn.functional.linear(one, weight) + torch.nn.functional.linear(other, weight)
    torch.testing.assert_close(whole, parts)


@pytest.mark.parametrize("shape", [(8, 2 * N), (100, 1000)], ids=str)
def test_what_gains_nothing_or_is_no_weight_is_as_it_was(shape: tuple[int, int]) -> None:
    weight, data = torch.nn.Parameter(rows(*shape)), rows(K, N)
    with LowRankWeights([weight]):
        assert torch.equal(rows(4, shape[0]) @ weight, rows(4, shape[0]) @ weight.detach().clone())
        found = rows(4, K) @ data
    assert torch.equal(found, rows(4, K) @ data)


def test_a_weight_that_was_written_into_is_read_again() -> None:
    weight, x = torch.nn.Parameter(rows(K, N)), rows(2, K)
    with LowRankWeights([weight]):
        before = x @ weight
        weight.mul_(2)
        torch.testing.assert_close(x @ weight, 2 * before)


def test_inference_mode() -> None:
    with torch.inference_mode():
        layer = torch.nn.Linear(K, N)
        x = rows(2, 3, K)
        with LowRankWeights(layer.parameters()):
            found = layer(x)
        assert not torch.allclose(found, layer(x))


class Wide(torch.nn.Module):
    """Layers of many weights, and `within` between them."""

    def __init__(self, within: Form | None = None) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.within = within or (lambda x, weight: x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.within(torch.tanh(layer(x)), layer.weight)
        return x


class Split(Wide):
    """The same, but that it adds up the sums over two halves of a row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            one, other = (x[..., :500] @ layer.weight[:, :500].mT), (x[..., 500:] @ layer.weight[:, 500:].mT)
            x = torch.tanh(one + other + layer.bias)
        return x


def exported(model: torch.nn.Module, x: torch.Tensor) -> Exported:
    return exported_module(ExportRequest.of(model, (x,), None, dynamic_shapes=({0: "n"},), options=ExportOptions()))


def sizes_of(found: Exported, size: int) -> dict[Any, int]:
    value = next(node.meta["val"] for node in found.program.graph.nodes if node.name == "x")
    return {value.shape[0].node.expr: size}


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, Outcome]]:
    """What comparisons found, and whether a mode was in the way."""
    found: list[tuple[bool, Outcome]] = []
    compared_as_it_is = trial.Trial._compared_as_it_is

    def noted(self: Trial, *arguments: Any) -> Outcome:
        count = torch._C._len_torch_dispatch_stack()
        found.append((count > 0, compared_as_it_is(self, *arguments)))
        return found[-1][1]

    monkeypatch.setattr(trial.Trial, "_compared_as_it_is", noted)
    return found


def test_a_wide_model_is_tried_with_them_alone(compared: list[tuple[bool, Outcome]]) -> None:
    x = rows(40, WIDTH)
    found = exported(Wide(), x)
    assert set(compared) == {(True, Outcome.AGREES)}
    assert [str(axis) for axis in found.axes()] == ["x axis 0 (n): kept as n"]


def test_two_ways_to_sum_are_compared_with_the_weights_they_have(compared: list[tuple[bool, Outcome]]) -> None:
    model, x = Split(), rows(40, WIDTH)
    found = exported(model, x)
    compared.clear()
    other = Wide()
    other.load_state_dict(model.state_dict(), assign=True)
    tried = Trial(ModelRun(other, CallInputs((x,), {})), TracedProgram(found.program))
    assert tried.outcome(sizes_of(found, 60)) == Outcome.AGREES
    assert compared == [(True, Outcome.DIFFERS), (False, Outcome.AGREES)]


def doubled_beyond(size: int) -> Form:
    return lambda x, weight: x * 2 if x.shape[0] > size else x


def other_weight_beyond(size: int) -> Form:
    return lambda x, weight: x @ weight if x.shape[0] > size else x


def of_its_last_row(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x + x[-1:] @ weight.mT


def of_a_table(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x + weight[: x.shape[0]]


WITHIN: dict[str, Form | None] = {
    "nothing": None,
    "doubled beyond 50": doubled_beyond(50),
    "another weight beyond 60": other_weight_beyond(60),
    "the last row": of_its_last_row,
    "a weight as a table": of_a_table,
    "mean of rows": lambda x, weight: x - x.mean(0),
    "softmax of scores": lambda x, weight: (x @ x.mT).softmax(-1) @ x,
}


@pytest.mark.parametrize("within", WITHIN)
def test_the_axes_are_what_they_are_without(within: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = exported(Wide(WITHIN[within]), rows(40, WIDTH))
    monkeypatch.setattr(TriedCall, "is_of_many_products", lambda self: False)
    expected = exported(Wide(WITHIN[within]), rows(40, WIDTH))
    assert [str(axis) for axis in found.axes()] == [str(axis) for axis in expected.axes()]
    assert [str(bound) for axis in found.axes() for bound in axis.bounds] == [
        str(bound) for axis in expected.axes() for bound in axis.bounds
    ]
