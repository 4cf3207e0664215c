"""Random programs of blocks, each of which may do something else at any step, give the model of tracing everything."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from exportguard import ExportOptions, to_onnx

DEPTH, WIDTH, STEPS = 4, 4, 7
PROGRAMS = 24  # more are as well: they differ by their seed alone

Values = list[torch.Tensor]
Step = Callable[["RandomBlock", Values, dict[str, Any]], None]


def _pick(random_: random.Random) -> Callable[[Values], torch.Tensor]:
    back = random_.randint(1, 3)
    return lambda values: values[-min(back, len(values))]


def _steps(random_: random.Random) -> Step:
    """One step of a block: it takes some of the block's values and makes another, or writes one."""
    one, two, number = _pick(random_), _pick(random_), random_.choice([2, 0.5, -1.5])

    def add(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append(one(v) + two(v) * number)

    def linear(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append(b.lin(one(v)))

    def other_linear(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append(b.lin2(one(v)).tanh())

    def write(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append(one(v).clone())
        v[-1][:, 1:].mul_(number)

    def reshaped(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append(one(v).reshape(-1, WIDTH).view(v[0].shape))

    def attended(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append((one(v) @ two(v).transpose(1, 2)).softmax(-1) @ one(v))

    def split(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        first, second = one(v).chunk(2, -1)
        v.append(torch.cat([second, first], -1))

    def sized(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append(one(v) * (v[0].shape[1] + int(number)))

    def positions(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append(one(v) + torch.arange(v[0].shape[1])[:, None])

    def remembered(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        v.append(s["kept"] + one(v))

    def keep(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        s["kept"] = one(v)

    def shown(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        s["seen"].append(one(v))

    def cached(b: RandomBlock, v: Values, s: dict[str, Any]) -> None:
        s["cache"].add_(one(v).mean())
        v.append(one(v) * s["cache"].sum())

    return random_.choice(
        [
            add,
            linear,
            other_linear,
            write,
            reshaped,
            attended,
            split,
            sized,
            positions,
            remembered,
            keep,
            shown,
            cached,
        ]
    )


class RandomBlock(nn.Module):
    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.steps = steps
        self.lin, self.lin2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        values = [x]
        for step in self.steps:
            step(self, values, state)
        return values[-1].tanh()


class RandomModel(nn.Module):
    """Blocks of one program, with some of their steps exchanged, left out or done twice."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        random_ = random.Random(seed)
        common = [_steps(random_) for _ in range(STEPS)]
        self.layers = nn.ModuleList([RandomBlock(self._varied(random_, common)) for _ in range(DEPTH)])

    @staticmethod
    def _varied(random_: random.Random, common: list[Step]) -> list[Step]:
        steps = list(common)
        for _ in range(random_.choice([0, 0, 1, 2])):
            at = random_.randrange(len(steps))
            steps[at : at + random_.randint(0, 1)] = [_steps(random_) for _ in range(random_.randint(0, 2))]
        return steps or list(common)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> list[torch.Tensor]:
        state: dict[str, Any] = {"cache": cache, "kept": x, "seen": []}
        x = x * 1
        for layer in self.layers:
            x = layer(x, state)
        return [x, *state["seen"]]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_random_program_is_that_of_tracing_everything(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(seed)
    with caplog.at_level(logging.WARNING, logger="exportguard"):
        to_onnx(
            RandomModel(seed).eval(),
            (torch.randn(2, 6, WIDTH), torch.randn(3)),
            dynamic_shapes=({0: "batch", 1: "seq"}, None),
            options=ExportOptions(repeats="verify"),
        )
    assert "could not be traced once" not in caplog.text
