"""A condition inside a condition, without gradients."""

from __future__ import annotations

import torch

from exportguard import torch_export_patches


class ConditionInACondition(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def scaled(y: torch.Tensor) -> torch.Tensor:
            return torch.cond(y.max() > 1, lambda z: z + 1, lambda z: z * 2, (y,))

        with torch.no_grad():
            return torch.cond(x.sum() > 0, scaled, lambda y: y * 3, (x,))


def keeps_the_inner_branches() -> None:
    with torch_export_patches():
        program = torch.export.export(ConditionInACondition(), (torch.ones(3),))
    for x in (torch.ones(3), torch.full((3,), 2.0), -torch.ones(3)):
        torch.testing.assert_close(program.module()(x), ConditionInACondition()(x))


PROGRAMS = {"bodies of control flow in bodies": keeps_the_inner_branches}
