"""How finely outputs are computed: what two right runs may differ by follows from the coarsest value on the way."""

from __future__ import annotations

import torch

from exportguard import validate_module
from exportguard.axes.rounding import agree
from exportguard.axes.traced_program import TracedProgram


class WideOutputs(torch.nn.Module):
    """Products in halves, returned wide; beside them sums of the input, and the places of the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64).half()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        product = self.linear(x.half())
        return product.float() * 3, x.cumsum(-1), (product * 2).argmax(-1)


class RoundedInABranch(torch.nn.Module):
    """A sum of which one part goes through halves where a choice says so."""

    def forward(self, x: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
        return torch.cond(choice.sum() > 0, lambda x: x.half().float(), lambda x: x.clone(), (x,)) + x


def test_each_output_has_the_coarsest_dtype_that_is_computed_on_the_way_to_it() -> None:
    program = torch.export.export(WideOutputs(), (torch.rand(3, 64),))
    assert TracedProgram(program).computed_in == [torch.float16, torch.float32, torch.float16]


def test_branches_count_and_inputs_do_not() -> None:
    inputs = (torch.rand(3), torch.ones(2, dtype=torch.float16))
    assert TracedProgram(torch.export.export(RoundedInABranch(), inputs)).computed_in == [torch.float16]
    program = torch.export.export(torch.nn.Identity(), (torch.ones(2, dtype=torch.float16),))
    assert TracedProgram(program).computed_in == [None]


def test_outputs_agree_by_the_dtype_that_they_are_computed_in() -> None:
    expected, got = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.001])
    assert not agree([expected], [got])
    assert not agree([expected], [got], [torch.float32])
    assert agree([expected], [got], [torch.float16])
    assert not agree([expected], [got + 1], [torch.float16])


def test_a_half_model_with_wide_outputs_keeps_its_axes() -> None:
    torch.manual_seed(0)
    report = validate_module(WideOutputs().eval(), (torch.rand(3, 64),), ({0: "batch"},))
    assert report.ok, report
    product, sums, _ = report.sets[0].outputs
    assert product.tolerance is not None
    assert sums.tolerance is not None
    assert product.tolerance.absolute > 10 * sums.tolerance.absolute
