"""Ranges with symbolic bounds whose number of steps is known all the same."""

from __future__ import annotations

from typing import Any

import torch
from control_flow_program import Programs, check, up

from exportguard import to_onnx

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


class Neighbours(torch.nn.Module):
    """Both ends of the inner range are numbers of the outer one."""

    def forward(self, x: torch.Tensor) -> Any:
        n = x.shape[0]
        out = []
        for i in range(n):
            total = torch.zeros(4)
            for j in range(max(0, i - 1), min(n, i + 2)):
                total = total + x[j] * (i - j + 2)
            for j in range(i + 1, i - 2, -1):
                total = total * 0.5 + x[j % n]
            for j in range(i, i + 4, 2):
                total = total - j
            out.append(total)
        return torch.stack(out)


def test_a_range_between_numbers_of_another_range() -> None:
    model = Neighbours()
    onnx = to_onnx(model, (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for rows in (1, 2, 3, 4, 7):
        (found,) = onnx.run({"x": up(rows)}).values()
        torch.testing.assert_close(found, model(up(rows)))
