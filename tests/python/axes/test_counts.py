"""What counts the tokens of a cache is tried with as many as the cache has."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from exportguard import observe_inputs, to_onnx
from exportguard.axes.counts import Counts
from exportguard.axes.resizing import InputsOfOtherSizes
from exportguard.inputs import CallInputs
from exportguard.validation.own_module import module_case

PAST = 6


def cache(past: int, rows: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(past)
    return [torch.randn(rows, 1, past, 4), torch.randn(rows, 1, past, 4)]


def counted(count: int, form: str, dtype: torch.dtype, rows: int = 2, past: int = PAST) -> torch.Tensor:
    row = torch.arange(past, past + count, dtype=dtype)
    return row if form == "a row" else row.expand(rows, -1).clone()


class Attends(torch.nn.Module):
    """Shows each token those at and before its position; the only one, behind all others, is shown all of them.

    Both are the same wherever positions count on behind the cache.
    """

    def forward(self, x: torch.Tensor, past: list[torch.Tensor], positions: torch.Tensor) -> torch.Tensor:
        keys, values = (torch.cat([each, x[:, None]], dim=2) for each in past)
        scores = x[:, None] @ keys.transpose(2, 3)
        if x.shape[1] > 1:
            rows = positions if positions.dim() == 1 else positions[0]
            scores = scores.masked_fill(torch.arange(keys.shape[2]) > rows[:, None], -1e9)
        return scores.softmax(-1) @ values


SHAPES: dict[str, Any] = {"x": {1: "seq"}, "past": [{2: "past"}, {2: "past"}]}


@pytest.mark.parametrize("form", ["a row", "rows"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.thinned(1)
def test_positions_count_on_behind_the_cache_that_is_tried(
    monkeypatch: pytest.MonkeyPatch, form: str, dtype: torch.dtype, count: int
) -> None:
    tried: list[CallInputs] = []
    made = InputsOfOtherSizes.__call__

    def recorded(inputs: InputsOfOtherSizes, sizes: Any) -> CallInputs | None:
        found = made(inputs, sizes)
        tried.extend([found] if found is not None else [])
        return found

    monkeypatch.setattr(InputsOfOtherSizes, "__call__", recorded)
    model, positions = Attends().eval(), counted(count, form, dtype)
    kwargs = {"x": torch.randn(2, count, 4), "past": cache(PAST), "positions": positions}
    dynamic_shapes = {**SHAPES, "positions": {positions.dim() - 1: "seq"}}
    # With positions of any other kind it does something else for one token than for more of them.
    to_onnx(model, kwargs=kwargs, dynamic_shapes=dynamic_shapes, on_fixed_axis="warn")
    pasts = {call.kwargs["past"][0].shape[2] for call in tried}
    assert len(pasts) > 1
    for call in tried:
        past, seq = call.kwargs["past"][0].shape[2], call.kwargs["x"].shape[1]
        assert torch.equal(call.kwargs["positions"], counted(seq, form, dtype, past=past))


def test_positions_count_on_at_sizes_of_a_validation() -> None:
    positions = counted(2, "rows", torch.int64)
    kwargs = {"x": torch.randn(2, 2, 4), "past": cache(PAST), "positions": positions}
    case = module_case(Attends().eval(), kwargs, {**SHAPES, "positions": {1: "seq"}})
    for seq, past in itertools.product((1, 4), (1, 9)):
        made = case.inputs({"seq": seq, "past": past})
        assert torch.equal(made["positions"], counted(seq, "rows", torch.int64, past=past))


def test_positions_of_an_enlarged_call_count_on() -> None:
    model = Attends().eval()
    with observe_inputs(model) as seen:
        for past in (3, 4):
            positions = counted(1, "rows", torch.int64, past=past)
            model(torch.randn(2, 1, 4), past=cache(past), positions=positions)
        model(torch.randn(2, 3, 4), past=cache(0), positions=counted(3, "rows", torch.int64, past=0))
        model(torch.randn(2, 1, 4), past=cache(4), positions=counted(1, "rows", torch.int64, past=4))
    args, kwargs = seen.example()
    (x,) = args
    first = kwargs["past"][0].shape[2]
    assert x.shape[1] > 1
    assert kwargs["positions"].tolist() == [[*range(first, first + x.shape[1])]] * 2


@pytest.mark.parametrize("name", ["tokens", "position_ids"])
@pytest.mark.parametrize("count", [1, 2])
def test_one_token_is_no_position_though_its_number_is_the_length(name: str, count: int) -> None:
    call = {name: counted(count, "rows", torch.int64), "past": cache(PAST)}
    leaves = [call[name], *call["past"]]
    other = [call[name].clone(), *cache(PAST + 2)]
    Counts.of(call, leaves).put(other)
    first = PAST if (name, count) == ("tokens", 1) else PAST + 2
    assert other[0].tolist() == [[*range(first, first + count)]] * 2


OTHERS = [
    torch.tensor([[PAST, PAST]]), torch.tensor([[PAST, PAST + 1], [PAST - 1, PAST]]), torch.tensor([[0, 1]]),
    torch.tensor([[PAST + 1, PAST + 2]]), torch.zeros(2, 0, dtype=torch.int64), torch.tensor(PAST),
    torch.tensor([[PAST, PAST + 1.0]]), torch.tensor([[True, True]]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(OTHERS)))
@pytest.mark.thinned(1)
def test_other_integers_stay_as_they_are(number: int) -> None:
    given = OTHERS[number]
    call = {"position_ids": given, "past": cache(PAST)}
    other = [given.clone(), *cache(PAST + 2)]
    Counts.of(call, [given, *call["past"]]).put(other)
    assert torch.equal(other[0], given)


def test_the_longest_of_the_caches_that_are_as_long_counts() -> None:
    call = {"position_ids": counted(2, "rows", torch.int64), "past": [*cache(PAST), *cache(PAST)]}
    for first, second in itertools.permutations((3, 9)):
        other = [call["position_ids"].clone(), *cache(first), *cache(second)]
        Counts.of(call, [call["position_ids"], *call["past"]]).put(other)
        assert other[0].tolist() == [[9, 10]] * 2
