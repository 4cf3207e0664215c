"""An export that stops at a test on tensor data goes on with that function rewritten."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from control_flow_program import up
from test_callables import CallsSuper, ConditionInsideACalledMethod, ConditionInsideASubmodule
from test_conditions import Elif
from test_faults import DifferentKinds, DifferentStructure, DifferentText
from test_returns import EarlyReturn
from torch.nn import Module

from exportguard import (
    ExportOptions,
    InvalidArgumentError,
    PatchDetails,
    RewriteError,
    export_with_rewriting,
    to_onnx,
    torch_export_patches,
)

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
        return x * ("a" * (int(x.sum()) % 2)).count("a")


class LeavesATrace(Module):
    """Writes to itself before it stops the export for good."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.last = None
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.seen.append(x.shape)
        self.last = x * 2
        self.register_buffer("count", x.sum())
        return x * ("a" * (int(x.sum()) % 2)).count("a")


class Helper:
    """Not a module."""

    @staticmethod
    def signed(x):
        return x if x.sum() > 0 else -x

    @property
    def scale(self):
        return 2 if self.limit.max() > 1 else 1

    def scaled(self, x):
        self.limit = x
        return x * self.scale


class CallsAHelper(Module):
    def forward(self, x):
        return Helper.signed(x) + Helper().scaled(x)


def on_positive(function):
    """Tests data itself and does not say what it wraps."""

    def wrapper(self, x):
        if x.sum() > 0:
            return function(self, x)
        return x * 3

    return wrapper


class DecoratorOnData(Module):
    @on_positive
    def forward(self, x):
        return x + 1 if x.max() > 2 else x - 1


class DefinesAFunction(Module):
    def forward(self, x):
        scale = x.abs().max()

        def shrunk(y):
            if y.sum() > 0:
                return y / scale
            z = y * 2
            return z

        return shrunk(x) + shrunk(-x)


class LambdaOnData(Module):
    def forward(self, x):
        signed = lambda y: y if y.sum() > 0 else y * 3  # noqa: E731
        return signed(x) + 1


class HelperReturnsATruthValue(Module):
    @staticmethod
    def is_large(x):
        return bool((x.abs() > 2).any())

    def forward(self, x):
        if self.is_large(x):
            return x / 2
        return x


class NumberFromData(Module):
    def forward(self, x):
        level = float(x.max())
        if level > 2:
            return x - level
        return x + int(x.sum())


class OverRows(Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            total = total * 0.5 + row
        return total


class OverRange(Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        for i in range(len(x)):
            y[i] = x[i] * 2
        return y


class DifferentResults(Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return x, x


class OneStatementCannotBeHeld(Module):
    """The first test is on Python values in the export; rewriting it as well would not be wrong, the string is."""

    def forward(self, x):
        mode = "double" if x.dim() == 2 else "none"
        if x.sum() > 0:
            x = x + 1
        return x * 2 if mode == "double" else x


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (Elif, ["Elif.forward"]),
        (ConditionInsideACalledMethod, ["ConditionInsideACalledMethod.clamped"]),
        (ConditionInsideASubmodule, ["Inner.forward"]),
        (CallsSuper, ["CallsSuper.forward", "Base.forward"]),
        (CallsAFunction, ["clamped", "CallsAFunction.forward"]),
        (CallsAHelper, ["Helper.signed", "Helper.scale"]),
        (DecoratorOnData, ["on_positive.<locals>.wrapper", "DecoratorOnData.forward"]),
        (DefinesAFunction, ["DefinesAFunction.forward"]),
        (LambdaOnData, ["LambdaOnData.forward"]),
        (HelperReturnsATruthValue, ["HelperReturnsATruthValue.is_large", "HelperReturnsATruthValue.forward"]),
        (NumberFromData, ["NumberFromData.forward"]),
        (OneStatementCannotBeHeld, ["OneStatementCannotBeHeld.forward"]),
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


@pytest.mark.parametrize("cls", [OverRows, OverRange])
def test_a_loop_that_fixed_a_dynamic_axis_is_rewritten(cls: type[Module]) -> None:
    model = cls().eval()
    onnx = to_onnx(model, (up(3),), dynamic_shapes=({0: "batch"},), rewrite="auto")
    assert [axis.kept for axis in onnx.axes] == [True]
    assert [step.stopped_at.split(": ")[1].split(" ")[0] for step in onnx.rewriting_steps] == ["for"]
    for case in (up(3), up(1), up(7, -2)):
        (found,) = onnx.run({"x": case}).values()
        torch.testing.assert_close(found, model(case))


def test_the_report_shows_each_difference() -> None:
    report = export_with_rewriting(CallsAFunction(), (up(3),), dynamic_shapes=ROWS).report()
    assert "test_automatic.py:" in report
    assert "if x.max() > 1:\n  Could not guard on data-dependent" in report
    assert "clamped: line" in report
    assert "-    if x.max() > 1:" in report
    assert "CallsAFunction.forward: line" in report


def test_what_was_rewritten_can_be_given_to_the_guard_again() -> None:
    rewritten = export_with_rewriting(CallsAFunction(), (up(3),), dynamic_shapes=ROWS).rewritten
    with torch_export_patches(rewrite=rewritten):
        torch.export.export(CallsAFunction(), (up(3),), dynamic_shapes=ROWS)


def test_nothing_is_rewritten_for_a_model_that_exports() -> None:
    assert export_with_rewriting(torch.nn.Linear(4, 2), (up(3),)).rewritten == ()


@pytest.mark.parametrize("rewrite", [True, "auto", ["auto", (EarlyReturn, "forward")]])
def test_an_export_in_the_block_of_a_guard_mends_itself(rewrite: object) -> None:
    with torch_export_patches(rewrite=rewrite) as guard:
        assert guard.rewriting_steps == ()
        program = torch.export.export(CallsAFunction(), (up(3),), dynamic_shapes=ROWS)
        assert [step.patch.target.rpartition(".")[2] for step in guard.rewriting_steps] == ["clamped", "forward"]
        torch.export.export(CallsAFunction(), (up(3),), dynamic_shapes=ROWS)
        assert len(guard.rewriting_steps) == 2
    torch.testing.assert_close(program.module()(up(2, -3)), CallsAFunction()(up(2, -3)))


def test_the_functions_stay_the_same_objects_with_the_same_code() -> None:
    functions = [clamped, CallsAFunction.forward]
    codes = [function.__code__ for function in functions]
    export_with_rewriting(CallsAFunction(), (up(3),), dynamic_shapes=ROWS)
    assert [clamped, CallsAFunction.forward] == functions
    assert [function.__code__ for function in functions] == codes


def test_to_onnx_tells_the_steps_and_writes_the_sources(tmp_path: Path) -> None:
    options = ExportOptions(guard={"dump_rewriting": str(tmp_path)})
    onnx = to_onnx(CallsAFunction(), (up(3),), dynamic_shapes=({0: "n"},), rewrite="auto", options=options)
    assert len(onnx.rewriting_steps) == 2
    names = sorted(path.name.split(".", 1)[1] for path in tmp_path.glob("*clamped*"))
    assert [name.split("clamped.")[1] for name in names] == ["diff", "original.py", "patched.py"]
    assert "if_(x.max() > 1" in next(tmp_path.glob("*clamped.patched.py")).read_text(encoding="utf-8")


def test_the_details_of_patches_have_what_was_rewritten() -> None:
    details = PatchDetails()
    with torch_export_patches(rewrite="auto", patch_details=details):
        program = torch.export.export(CallsAFunction(), (up(3),), dynamic_shapes=ROWS)
    involved = [function.function_to_patch for function in details.patches_involved_in_graph(program)]
    assert involved == [clamped, CallsAFunction.forward]


def test_without_a_guard_nothing_can_be_rewritten() -> None:
    with pytest.raises(InvalidArgumentError, match="rewrite needs the guard"):
        to_onnx(CallsAFunction(), (up(3),), rewrite="auto", options=ExportOptions(guard=None))


@pytest.mark.parametrize("cls", [WithoutRemedy, LeavesATrace])
def test_an_export_that_cannot_be_mended_raises_torchs_error_and_keeps_nothing(cls: type[Module]) -> None:
    model = cls()
    code, attributes, buffers = cls.forward.__code__, dict(vars(model)), dict(model.named_buffers())
    with pytest.raises(Exception, match="data-dependent") as caught:
        export_with_rewriting(model, (up(3),), dynamic_shapes=ROWS)
    assert f"{cls.__name__}.forward rewritten: " in caught.value.__notes__[-1]
    assert cls.forward.__code__ is code
    assert dict(vars(model)) == attributes
    assert dict(model.named_buffers()) == buffers
    assert getattr(model, "seen", []) == []


def test_the_reason_is_told_with_its_line_when_a_rewritten_function_cannot_be_held() -> None:
    line = DifferentResults.forward.__code__.co_firstlineno + 1
    text = f"line {line}: the branches of a test on tensor data give the result values of different structure"
    with pytest.raises(RewriteError, match=text) as caught:
        export_with_rewriting(DifferentResults(), (up(3),), dynamic_shapes=ROWS)
    assert "data-dependent" in str(caught.value.__cause__)


@pytest.mark.parametrize("cls", [DifferentKinds, DifferentText, DifferentStructure])
def test_a_test_takes_what_follows_into_its_branches_where_no_graph_can_hold_its_variables(cls: type[Module]) -> None:
    model = cls()
    onnx = to_onnx(model, (up(3),), dynamic_shapes=({0: "n"},), rewrite="auto")
    assert [step.form.absorb_rest for step in onnx.rewriting_steps] == [True]
    for case in (up(3), up(2, -1), up(5, 4), up(4, -9)):
        torch.testing.assert_close(next(iter(onnx.run({"x": case}).values())), model(case))


def test_an_error_of_the_model_is_not_mistaken_for_a_test_on_data() -> None:
    class Fails(Module):
        def forward(self, x):
            raise ZeroDivisionError("of the model")

    with pytest.raises(ZeroDivisionError, match="of the model"):
        export_with_rewriting(Fails(), (up(3),))
