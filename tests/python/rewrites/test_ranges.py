"""Ranges with symbolic bounds whose number of steps is known all the same."""

from __future__ import annotations

from typing import Any

import torch
from control_flow_program import Programs, check, up

PROGRAMS = Programs()


@PROGRAMS.add(((up(3),), (up(2),), (up(5),)))
class OneStepOfAnyLength(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        length = x.shape[0]
        parts = []
        for start in range(0, length, length):
            parts.append(x[start : start + length] * 2)
        return torch.cat(parts)


def test_a_range_that_steps_to_its_end_at_once_has_one_step() -> None:
    check(OneStepOfAnyLength)
