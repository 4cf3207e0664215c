"""What cannot be rewritten fails with the line and the reason, and leaves everything as it was."""

# ruff: noqa: SIM108 - the programs are what users write

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest
import torch
from control_flow_program import exported, up
from torch.nn import Module

from exportguard import InvalidArgumentError, RewriteError, torch_export_patches, torch_export_rewrite, transform_method


class DifferentKinds(Module):
    def forward(self, x):
        if x.sum() > 0:
            y = x
        else:
            y = None
        return x if y is None else y


class DifferentText(Module):
    def forward(self, x):
        if x.sum() > 0:
            mode = "add"
        else:
            mode = "mul"
        return x + 1 if mode == "add" else x * 2


class DifferentStructure(Module):
    def forward(self, x):
        if x.sum() > 0:
            items = (x,)
        else:
            items = (x, x)
        return items[0]


class AttributeOfOneBranch(Module):
    def __init__(self):
        super().__init__()
        self.state = None

    def forward(self, x):
        if x.sum() > 0:
            self.state = x + 1
        return x


class RankChangesInALoop(Module):
    def forward(self, x):
        y = x[0]
        for row in x:
            y = torch.stack([y, y * row.sum()])
        return y


class AmbiguousTest(Module):
    def forward(self, x):
        if x > 0:
            x = x + 1
        return x


class OtherTuples(Module):
    def forward(self, x):
        if x.sum() > 0:
            return (x * 2, x), x * 3
        return x * 2, (x, x * 3)


class TupleOfOne(Module):
    def forward(self, x):
        if x.sum() > 0:
            return (x * 2,)
        return x * 3


def _line_of(cls: type, keyword: str) -> int:
    lines, first = inspect.getsourcelines(cls)
    return next(first + k for k, line in enumerate(lines) if line.strip().startswith(keyword))


@pytest.mark.parametrize(
    ("cls", "keyword", "text"),
    [
        (DifferentKinds, "if", "give `y` values of different kinds: a float32 tensor of shape"),
        (DifferentText, "if", "give `mode` different Python values: 'add' and 'mul'"),
        (DifferentStructure, "if", "values of different structure: a tuple of 1 and a tuple of 2"),
        (OtherTuples, "if", "give the result values of different structure"),
        (TupleOfOne, "if", "a tuple of 1 and a float32 tensor"),
        (AttributeOfOneBranch, "if", "give `AttributeOfOneBranch.state` values of different kinds"),
        (RankChangesInALoop, "for", "give the variable the shape and dtype that the body makes before the loop"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_what_a_graph_cannot_hold_fails_with_line_and_reason(cls: type[Module], keyword: str, text: str) -> None:
    model = cls()
    methods, attributes = dict(vars(cls)), dict(vars(model))
    with pytest.raises(RewriteError) as caught:
        exported(model, (up(3),))
    assert f"line {_line_of(cls, keyword)}: " in str(caught.value)
    assert text in str(caught.value)
    assert dict(vars(cls)) == methods
    assert dict(vars(model)) == attributes


def test_a_test_on_many_elements_is_an_error_as_in_eager_mode() -> None:
    with pytest.raises(
        RewriteError, match=r"the truth value of a tensor of shape .* is ambiguous; use any\(\) or all\(\)"
    ):
        exported(AmbiguousTest(), (up(3),))


def test_an_error_in_the_block_restores_the_originals() -> None:
    original = vars(DifferentText)["forward"]

    def fail_inside() -> None:
        with torch_export_rewrite([DifferentText, DifferentKinds]):
            assert vars(DifferentText)["forward"] is not original
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert vars(DifferentText)["forward"] is original


def test_nothing_is_installed_when_one_of_several_cannot_be_rewritten() -> None:
    original = vars(DifferentText)["forward"]
    with (
        pytest.raises(RewriteError, match="is not a Python function"),
        torch_export_rewrite([DifferentText, torch.sin]),
    ):
        pass
    assert vars(DifferentText)["forward"] is original


@pytest.mark.parametrize("rewrite", ["forward", [3], [("forward", DifferentText)], 5])
def test_what_names_no_function_is_refused(rewrite: object) -> None:
    with pytest.raises(InvalidArgumentError, match="rewrite"), torch_export_patches(rewrite=rewrite):
        pass


def test_a_method_that_a_class_does_not_have_is_refused() -> None:
    with (
        pytest.raises(InvalidArgumentError, match="DifferentText has no method 'backward'"),
        torch_export_rewrite([(DifferentText, "backward")]),
    ):
        pass


def test_a_dict_with_an_unknown_key_is_refused() -> None:
    with (
        pytest.raises(InvalidArgumentError, match="has the key 'target' and may have filter_node"),
        torch_export_rewrite([{"target": DifferentText, "filter": None}]),
    ):
        pass


def test_a_function_without_source_cannot_be_rewritten() -> None:
    space: dict = {}
    exec("def f(x):\n    return x", space)
    with pytest.raises(RewriteError, match="has no source"):
        transform_method(space["f"])


def test_a_failing_assertion_still_fails_in_eager_mode() -> None:
    def checked(x):
        assert x.sum() > 0, "too small"
        return x

    rewritten = transform_method(checked).func
    with pytest.raises(AssertionError, match="too small"):
        rewritten(up(2, -1))


@dataclass
class Log:
    state: torch.Tensor
    seen: list[torch.Tensor]


class LogsAnew(Module):
    def forward(self, x):
        log = Log(torch.zeros(4), [torch.zeros(4)])
        for row in x:
            log = Log(log.state + row, [*log.seen, row])
        return log.state


class KeepsMore(Module):
    def forward(self, x):
        kept = (torch.zeros(4),)
        for row in x:
            kept = (row, *kept)
        return kept[0]


class AnotherKey(Module):
    def forward(self, x):
        found = {"first": x, "second": x} if x.sum() > 0 else {"first": x}
        return found["first"].sum() if "second" in found else x.sum()


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (LogsAnew, r"`log`\.seen from a list of 1 to a list of 2"),
        (KeepsMore, r"`kept` from a tuple of 1 to a tuple of 2"),
        (AnotherKey, r"different structure: a dict of 'first', 'second' and a dict of 'first'"),
    ],
)
def test_what_has_another_structure_is_named(program: type[Module], text: str) -> None:
    with pytest.raises(RewriteError, match=text):
        exported(program(), (up(3),))


class StackOfRows(Module):
    def forward(self, x):
        stack = []
        for row in x:
            if row[0] > 0 or len(stack) < 2:
                stack.append(row)
            else:
                stack.append(stack.pop() + stack.pop())
        return torch.stack(stack).sum(0)


def test_a_list_that_a_loop_takes_from_as_well_is_refused_in_words_of_the_model() -> None:
    with pytest.raises(RewriteError, match="reads a list that it appends to, or puts elements elsewhere"):
        exported(StackOfRows(), (up(3),))
