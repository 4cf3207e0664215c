"""An exception that tensor data decides is a check of the program where nothing can catch it, and refused where
something can."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch
from control_flow_program import Programs, check, up
from torch.nn import Module

from exportguard import ExportError, RewriteError, to_onnx

PROGRAMS = Programs()
POSITIVE = ((up(3),), (up(5, 4),), (up(2, 2),))


@PROGRAMS.add(POSITIVE)
class RaiseInElse(Module):
    def forward(self, x):
        if x.sum() > 0:
            y = x + 1
        else:
            raise ValueError("no positive sum")
        return y


@PROGRAMS.add(POSITIVE)
class RaiseInACalledFunction(Module):
    @staticmethod
    def fail():
        raise ValueError("no positive sum")

    def forward(self, x):
        return x + 1 if x.sum() > 0 else self.fail()


@PROGRAMS.add(POSITIVE)
class AssertionUnderATryOfAnotherError(Module):
    def forward(self, x):
        try:
            assert x.sum() > 0
            y = x * 2
        except KeyError:
            y = x
        return y


@PROGRAMS.add(POSITIVE)
class AssertionUnderNoGrad(Module):
    def forward(self, x):
        with torch.no_grad():
            assert x.sum() > 0
            return x * 2


@PROGRAMS.add(POSITIVE)
class AssertionUnderFinally(Module):
    def forward(self, x):
        try:
            assert x.sum() > 0
            y = x * 2
        finally:
            z = x + 1
        return y + z


@pytest.mark.parametrize("cls", PROGRAMS, ids=lambda cls: cls.__name__)
def test_an_exception_that_nothing_catches_is_a_check(cls: type[Module]) -> None:
    check(cls)


class RaiseUnderExcept(Module):
    def forward(self, x):
        try:
            if x.sum() > 0:
                raise ValueError("positive")
            y = x + 1
        except ValueError:
            y = x * 2
        return y


class AssertionWithElse(Module):
    def forward(self, x):
        try:
            assert x.sum() > 0
        except AssertionError:
            return x * 3
        else:
            return x + 1


class Suppressed(Module):
    def forward(self, x):
        y = x
        with contextlib.suppress(ValueError):
            if x.sum() > 0:
                raise ValueError
            y = x * 2
        return y


class Raises(Module):
    def forward(self, x):
        if x.sum() > 0:
            raise ValueError
        return x * 2


class SubmoduleUnderExcept(Module):
    def __init__(self):
        super().__init__()
        self.inner = Raises()

    def forward(self, x):
        try:
            return self.inner(x)
        except ValueError:
            return x - 7


class Swallows:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


class AManagerOfTheModel(Module):
    def forward(self, x):
        y = x
        with Swallows():
            assert x.sum() > 0
            y = x * 2
        return y


class ReturnInFinally(Module):
    def forward(self, x):
        y = x
        try:
            assert x.sum() > 0
            y = x + 1
        finally:
            return y  # noqa: B012


class ElseOfABranch(Module):
    def forward(self, x):
        try:
            if x.sum() > 0:
                y = x
            else:
                raise KeyError
        except LookupError:
            y = -x
        return y


REFUSED = [
    RaiseUnderExcept,
    AssertionWithElse,
    Suppressed,
    SubmoduleUnderExcept,
    AManagerOfTheModel,
    ReturnInFinally,
    ElseOfABranch,
]


@pytest.mark.parametrize("cls", REFUSED, ids=lambda cls: cls.__name__)
def test_an_exception_that_the_model_may_catch_is_refused(cls: type[Module]) -> None:
    with pytest.raises(RewriteError, match=r"is raised where tensor data says so, and the .* at line \d+ of .* may"):
        to_onnx(cls(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


class RaisesInASubmodule(Module):
    class Bounded(Module):
        def forward(self, x):
            if x.sum() > 1:
                raise RuntimeError("large")
            return x * 3

    def __init__(self):
        super().__init__()
        self.bounded = self.Bounded()

    def forward(self, x):
        try:
            return self.bounded(x)
        except RuntimeError:
            return -x


def test_what_a_submodule_raises_is_told_and_not_what_torch_says_of_it() -> None:
    with pytest.raises(RewriteError, match=r"RuntimeError is raised where tensor data says so, and the `except`"):
        to_onnx(RaisesInASubmodule(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


class DividesByACount(Module):
    def forward(self, x):
        count = int((x > 0.5).sum())
        try:
            scale = 1 / count
        except ZeroDivisionError:
            scale = 0.0
        return x * scale


class DividesByAFloat(Module):
    def forward(self, x):
        total = float(x.sum())
        try:
            return x * (3 // total)
        except ArithmeticError:
            return x


class RootOfANumber(Module):
    def forward(self, x):
        total = float(x.sum())
        try:
            return x * math.sqrt(total)
        except ValueError:
            return x


class WholeNumberOfNan(Module):
    def forward(self, x):
        try:
            count = int(x.sum())
        except (ValueError, OverflowError):
            count = 7
        return x + count


class IndexBehindTheEnd(Module):
    def forward(self, x):
        y = x.sum(0)
        with contextlib.suppress(IndexError):
            y = x[int(x.abs().sum())]
        return y


class StackOfNothing(Module):
    def forward(self, x):
        rows = [row for row in x if row.sum() > 1]
        try:
            return torch.stack(rows).sum(0)
        except RuntimeError:
            return x[0]


class FirstOfNothing(Module):
    def forward(self, x):
        rows = [row for row in x if row.sum() > 1]
        try:
            return rows[0]
        except IndexError:
            return x[0]


class GreatestOfNothing(Module):
    def forward(self, x):
        try:
            return max([row.sum() for row in x if row.sum() > 1])
        except ValueError:
            return x[0].sum()


class GreatestOfChosenNumbers(Module):
    def forward(self, x):
        try:
            return x[x > 1].max()
        except RuntimeError:
            return x[0].sum()


class NotPositiveDefinite(Module):
    def forward(self, x):
        try:
            return torch.linalg.cholesky(x.T @ x)
        except RuntimeError:
            return torch.eye(4)


RAISED_BY_DATA = [
    DividesByACount,
    DividesByAFloat,
    RootOfANumber,
    WholeNumberOfNan,
    IndexBehindTheEnd,
    StackOfNothing,
    FirstOfNothing,
    GreatestOfNothing,
    GreatestOfChosenNumbers,
    NotPositiveDefinite,
]


@pytest.mark.parametrize("cls", RAISED_BY_DATA, ids=lambda cls: cls.__name__)
def test_what_an_operation_raises_by_data_is_refused_where_the_model_may_catch_it(cls: type[Module]) -> None:
    with pytest.raises(RewriteError, match=r"line \d+ of .* raises \w+ in eager mode, .*`[^`]*` at line \d+"):
        to_onnx(cls(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


@PROGRAMS.add(POSITIVE)
class DividesUnderATryOfAnotherError(Module):
    def forward(self, x):
        try:
            y = x / int((x > 0).sum()) + x[int(x.sum()) * 0]
        except KeyError:
            y = x
        return y


def test_a_division_by_a_size_that_a_handler_catches_is_a_way_of_its_own() -> None:
    class DividesByASize(Module):
        def forward(self, x):
            try:
                scale = 1 / x.shape[0]
            except ZeroDivisionError:
                scale = 7.0
            return x.sum(0) + scale

    onnx = to_onnx(DividesByASize(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (up(2), up(1), torch.zeros(0, 4)):
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), DividesByASize()(x))


class SwallowsWhatTorchRaises(Module):
    def forward(self, x):
        try:
            y = x * 2 if x.sum() > 0 else x
        except Exception:
            y = x - 7
        return y


class SwallowsWhatCannotBeRewritten(Module):
    def forward(self, x):
        try:
            y = x * (1, 2, 3)[int(x.sum()) % 2]
        except Exception:
            y = x - 7
        return y


def test_a_handler_of_the_model_does_not_swallow_what_stops_an_export() -> None:
    onnx = to_onnx(SwallowsWhatTorchRaises(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    for x in (up(2, -1), up(4)):
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), SwallowsWhatTorchRaises()(x))


def test_a_handler_of_the_model_does_not_hide_what_cannot_be_rewritten() -> None:
    with pytest.raises(RuntimeError, match=r"int\(x\.sum\(\)\)"):
        to_onnx(SwallowsWhatCannotBeRewritten(), (up(3),), dynamic_shapes=({0: "rows"},), rewrite="auto")


class LooksUpInABranch(torch.nn.Module):
    def forward(self, x):
        m = x.sum()
        return x * ({0.5: 2}[float(m)] if m < 3 else 3)


class RoundsInABranch(torch.nn.Module):
    def forward(self, x):
        m = x.sum()
        return x * (round(float(m)) if m < 3 else 3)


def test_what_an_expression_raises_while_it_is_traced_is_no_check() -> None:
    x = torch.full((2, 4), 0.3)
    with pytest.raises((ExportError, RewriteError)):
        to_onnx(LooksUpInABranch().eval(), (x,), rewrite="auto")


def test_a_number_is_rounded_in_the_branch_that_runs() -> None:
    onnx = to_onnx(RoundsInABranch().eval(), (torch.full((2, 4), 0.3),), rewrite="auto")
    for x in (torch.full((2, 4), 0.3), torch.full((2, 4), 2.0), torch.full((2, 4), -0.3)):
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), RoundsInABranch()(x))
