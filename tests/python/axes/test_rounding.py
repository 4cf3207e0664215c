"""How finely outputs are computed: what two right runs may differ by follows from the coarsest value on the way."""

from __future__ import annotations

import pytest
import torch

from exportguard import AxisError, to_onnx, validate_module
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


class OtherwiseForFew(torch.nn.Module):
    """Of few rows something else than of many."""

    def __init__(self, few: object) -> None:
        super().__init__()
        self.few = few

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.shape[0] > 3 else self.few(x)  # type: ignore[operator]


FEW = {
    "scaled": lambda x: x * 1.2,
    "nothing": torch.zeros_like,
    "moved": lambda x: x + 1,
    "the other way round": lambda x: x.flip(1),
    "one element": lambda x: torch.cat([x[:, :1] * 2, x[:, 1:]], 1),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", FEW)
def test_what_a_model_does_at_other_sizes_is_no_rounding_in_any_dtype(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = OtherwiseForFew(FEW[name]).eval(), torch.randn(5, 8).to(dtype)
    with pytest.raises(AxisError, match="does something else than the model"):
        to_onnx(model, (x,), dynamic_shapes=({0: "batch"},))
    written = to_onnx(model, (x,), dynamic_shapes=({0: "batch"},), rewrite="auto")
    few = torch.randn(2, 8).to(dtype)
    for rows in (x, few):
        torch.testing.assert_close(written.run({"x": rows})["output_0"], model(rows))


def test_rounding_of_halves_is_small_beside_the_largest_and_on_average() -> None:
    torch.manual_seed(0)
    expected = torch.randn(1000).bfloat16()
    noise = 1 + torch.finfo(torch.bfloat16).eps * torch.randn(1000)
    assert agree([expected], [(expected * noise).bfloat16()])
    assert not agree([expected], [expected * 1.1])
    assert not agree([expected], [expected * 1.05 + 0.1])
    assert not agree([torch.zeros(3).bfloat16()], [torch.ones(3).bfloat16()])


@pytest.mark.parametrize("infinite", [float("inf"), float("-inf"), float("nan")])
def test_an_infinite_number_agrees_with_itself_alone(infinite: float) -> None:
    assert agree([infinite], [torch.tensor(infinite)])
    assert agree([infinite], [infinite])
    assert not agree([infinite], [5.0])
    assert not agree([infinite], [torch.tensor(5.0)])
    assert not agree([5.0], [infinite])
    assert not agree([float("inf")], [float("-inf")])


def test_complex_halves_are_compared() -> None:
    numbers = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.half)
    one, other = torch.view_as_complex(numbers), torch.view_as_complex(numbers + 1)
    assert agree([one], [one.clone()], [None])
    assert not agree([one], [other], [None])
