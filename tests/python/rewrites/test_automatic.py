"""An export that stops at a test on tensor data goes on with that function rewritten."""

from __future__ import annotations

import pytest
import torch
from control_flow_program import up
from test_conditions import CallsSuper, ConditionInsideACalledMethod, ConditionInsideASubmodule, Elif
from torch.nn import Module

from exportguard import export_with_rewriting, to_onnx, torch_export_patches

ROWS = ({0: torch.export.Dim.DYNAMIC},)


def clamped(x):
    if x.max() > 1:
        x = x / x.max()
    return x


class CallsAFunction(Module):
    def forward(self, x):
        x = clamped(x)
        return x if x.min() > 0 else -x


class WithoutRemedy(Module):
    def forward(self, x):
        return torch.zeros(int(x.sum())) + torch.ones(3)


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (Elif, ["Elif.forward"]),
        (ConditionInsideACalledMethod, ["ConditionInsideACalledMethod.clamped"]),
        (ConditionInsideASubmodule, ["EarlyReturn.forward"]),
        (CallsSuper, ["CallsSuper.forward", "AssignInBoth.forward"]),
        (CallsAFunction, ["clamped", "CallsAFunction.forward"]),
    ],
)
def test_the_functions_that_stop_an_export_are_rewritten_one_after_the_other(
    cls: type[Module], names: list[str]
) -> None:
    model = cls()
    cases = [up(3), up(2, -1), up(5, 4), up(4, -9)]
    expected = [model(case) for case in cases]
    result = export_with_rewriting(model, (cases[0],), dynamic_shapes=ROWS)
    assert len(result.rewritten) == len(names)
    assert all(patch.target.endswith(f".{name}") for patch, name in zip(result.rewritten, names, strict=True))
    for case, output in zip(cases, expected, strict=True):
        torch.testing.assert_close(result.program.module()(case), output)
        (found,) = to_onnx(result.program).run({"x": case}).values()
        torch.testing.assert_close(found, output)


def test_the_report_shows_each_difference() -> None:
    report = export_with_rewriting(CallsAFunction(), (up(3),), dynamic_shapes=ROWS).report()
    assert "clamped: line" in report
    assert "-    if x.max() > 1:" in report
    assert "CallsAFunction.forward: line" in report


def test_what_was_rewritten_can_be_given_to_the_guard_again() -> None:
    rewritten = export_with_rewriting(CallsAFunction(), (up(3),), dynamic_shapes=ROWS).rewritten
    with torch_export_patches(rewrite=rewritten):
        torch.export.export(CallsAFunction(), (up(3),), dynamic_shapes=ROWS)


def test_nothing_is_rewritten_for_a_model_that_exports() -> None:
    assert export_with_rewriting(torch.nn.Linear(4, 2), (up(3),)).rewritten == ()


def test_an_export_that_cannot_be_mended_raises_torchs_error_and_keeps_nothing() -> None:
    before = (vars(WithoutRemedy)["forward"], clamped)
    with pytest.raises(Exception, match="data-dependent") as caught:
        export_with_rewriting(WithoutRemedy(), (up(3),), dynamic_shapes=ROWS)
    assert "rewritten so far: nothing" in caught.value.__notes__[-1]
    assert before == (vars(WithoutRemedy)["forward"], clamped)
