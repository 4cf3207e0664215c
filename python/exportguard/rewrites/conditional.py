"""Tests with two branches: a Python test stays what it is, a test on tensor data becomes `cond`."""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.model_code import is_models
from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.catching import handler_of
from exportguard.rewrites.checks import check_data, count_of_checks
from exportguard.rewrites.collected import Grown, Maybe, made_outside, truth_of
from exportguard.rewrites.data import as_predicate, depends_on_data
from exportguard.rewrites.merging import Merge
from exportguard.rewrites.recording import Captured, record, substituted
from exportguard.rewrites.sharing import has_another_name
from exportguard.rewrites.state import Slot, Snapshot
from exportguard.rewrites.watch import is_stop, note_containers, note_put
from exportguard.rewrites.whole_lists import Whole, leaving_rows, of_two_forms
from exportguard.source.errors import RewriteError

Branch = Callable[..., Any]


def if_(
    test: object,
    then: Branch,
    orelse: Branch,
    names: Sequence[str] = (),
    values: Sequence[Any] = (),
    line: int = 0,
    leaving: str = "",
) -> Any:
    """`if test: … else: …` where both branches take and return the variables `names`.

    Returns what the branch returns: the variables' values, or the function's result for branches that return.

    :param leaving: the branch, "then" or "else", behind which nobody reads what it does not assign

    Raises:
        RewriteError: the branches give values that one graph cannot hold, naming variable and line.
    """
    test = truth_of(test)
    if not depends_on_data(test):
        return then(*values) if test else orelse(*values)
    branches = (lambda: then(*values), lambda: orelse(*values))
    return Condition(*branches, tuple(names), line, leaving).build(as_predicate(test))


def ifexp(test: object, then: Callable[[], Any], orelse: Callable[[], Any], line: int = 0) -> Any:
    """`then if test else orelse`."""
    test = truth_of(test)
    if not depends_on_data(test):
        return then() if test else orelse()
    return Condition(then, orelse, ("the value",), line).build(as_predicate(test))


def came_to_its_end(way: object) -> bool:
    """Whether a block of which every way leaves it was not left: its manager swallowed an exception of Python's.

    :param way: the number of the way out, 0 for none
    """
    return not depends_on_data(way) and not way


class Run:
    """One branch, run once on fake tensors: its result and the Python objects it changed."""

    def __init__(self, function: Callable[[], Any], snapshot: Snapshot, captured: Captured) -> None:
        self.function = function
        self._snapshot = snapshot
        self.result: Any = None
        self.error: Exception | None = None  # what the model raises in this branch
        self.checks = 0
        before = count_of_checks()
        try:
            self.result = record(function, captured)
        except Exception as error:
            if not is_of_the_model(error):
                raise
            self.error = error
        finally:
            self.checks = count_of_checks() - before
            self.changes = snapshot.changes()
            snapshot.restore(self.changes)

    def outcome(self, slots: list[Slot]) -> Any:
        """Runs the branch again; returns its result and what the slots hold afterwards."""
        result = self.function()
        changes = self._snapshot.changes()
        now = {slot.identity(): new for slot, new in changes}
        held = [slot.as_value(now.get(slot.identity(), self._snapshot.before(slot))) for slot in slots]
        self._snapshot.restore(changes)
        return result, held

    def recorded(self, slots: list[Slot]) -> Any:
        now = {slot.identity(): new for slot, new in self.changes}
        return self.result, [slot.as_value(now.get(slot.identity(), self._snapshot.before(slot))) for slot in slots]


class Condition:
    """One data-dependent test with its two branches."""

    def __init__(
        self, then: Callable[[], Any], orelse: Callable[[], Any], names: tuple[str, ...], line: int, leaving: str = ""
    ) -> None:
        self._leaving = leaving
        self._branches = (then, orelse)
        self._names = names
        self._line = line

    def build(self, predicate: object) -> Any:
        stale = aliases_now().stale_now()
        captured = Captured()
        snapshot = Snapshot(functions=self._branches)
        for number in snapshot.numbers():  # a comparison of one in a branch is no function of torch's
            captured.add_number(number)
        runs = self._runs(snapshot, captured)
        if any(run.error is not None for run in runs):
            return self._without_error(predicate, [run.error for run in runs])
        slots = list({slot.identity(): slot for run in runs for slot, _ in run.changes}.values())
        outcomes = (runs[0].recorded(slots), runs[1].recorded(slots))
        lists = of_two_forms(slots, snapshot.before, [held for _, held in outcomes])
        if lists:
            aliases_now().set_stale(stale)
            return self._with_rows(lists).build(predicate)
        note_put(slots, snapshot)
        merge = Merge(
            outcomes, names=self._names, slots=slots, is_older=snapshot.knows, line=self._line, leaving=self._leaving
        )
        written = captured.mark_written()
        for tensor in merge.plain_tensors():
            captured.add(tensor)
        with aliases_now().internal():
            captured.add_sizes(())
        written += [False] * (len(captured.tensors) - len(written))
        if not merge.tensor_count and not any(written) and not any(run.checks for run in runs):
            return self._apply([], merge, snapshot, captured, written)  # a graph of it would have no result
        functions = [self._graph_function(run, slots, merge, captured, written) for run in runs]
        operands = (*captured.tensors, *captured.known_numbers())
        aliases = aliases_now()
        with aliases.internal():
            outputs = list(torch.ops.higher_order.cond(predicate, *functions, operands))
            result = self._apply(outputs, merge, snapshot, captured, written)
        for output, sources in zip(outputs[: merge.tensor_count], merge.sources(), strict=True):
            aliases.link(output, sources)
        return result

    def _with_rows(self, lists: Sequence[Grown]) -> Condition:
        """The test with these lists as rows of one tensor before it and behind both branches."""
        whole = [*map(Whole, lists)]
        for known in whole:
            known.become_rows()
        then, orelse = (leaving_rows(branch, whole) for branch in self._branches)
        return Condition(then, orelse, self._names, self._line, self._leaving)

    def _runs(self, snapshot: Snapshot, captured: Captured) -> list[Run]:
        """Both branches, run from the same state; what either makes stale is stale behind them."""
        aliases = aliases_now()
        before, runs = aliases.stale_now(), []
        after: dict[int, str] = {}
        for branch in self._branches:
            aliases.set_stale(before)
            captured.begin_of_a_branch()
            run = Run(branch, snapshot, captured)
            captured.hand_on(pytree.tree_leaves((run.result, [new for _, new in run.changes])))
            runs.append(run)
            after |= aliases.stale_now()
        aliases.set_stale(after)
        return runs

    def _without_error(self, predicate: object, errors: Sequence[Exception | None]) -> Any:
        """The branch that does not raise, behind a check that it is the one that runs."""
        then, orelse = errors
        if then is not None and orelse is not None:
            raise then
        error = then or orelse
        assert error is not None
        require_uncaught(type(error), self._line)
        check_data(_negated(predicate) if orelse is None else predicate)
        return self._branches[0 if then is None else 1]()

    def _graph_function(
        self, run: Run, slots: list[Slot], merge: Merge, captured: Captured, written: list[bool]
    ) -> Callable[..., list[torch.Tensor]]:
        def function(*operands: torch.Tensor) -> list[torch.Tensor]:
            tensors = operands[: len(written)]  # numbers follow, which stay what they are
            places = [o.clone() if w else o for o, w in zip(tensors, written, strict=True)]
            with substituted(captured.tensors, places) as replace:
                outputs = merge.tensors_of(replace(run.outcome(slots)))
                mutated = [place for place, w in zip(places, written, strict=True) if w]
                return [tensor.clone() for tensor in [*outputs, *mutated]]

        return function

    def _in_use(self, found: Sequence[tuple[str, Any, Any]], snapshot: Snapshot) -> list[tuple[str, Any, Any]]:
        """Without the objects that have no other name than the one that the test gives a new one."""
        return [
            (name, older, merged)
            for name, older, merged in found
            if isinstance(older, list | dict) or has_another_name(older, self._names, snapshot)
        ]

    def _apply(
        self, outputs: list[torch.Tensor], merge: Merge, snapshot: Snapshot, captured: Captured, written: list[bool]
    ) -> Any:
        result, held = merge.rebuild(outputs[: merge.tensor_count])
        mutated = [t for t, w in zip(captured.tensors, written, strict=True) if w]
        for tensor, content in zip(mutated, outputs[merge.tensor_count :], strict=True):
            tensor.copy_(content)
        for slot, new in zip(merge.slots, held, strict=True):
            if isinstance(new, Maybe) and not isinstance(slot.owner, Grown):
                raise made_outside(slot.owner, self._line, "one branch of a test on tensor data")
            slot.put(new)
        note_containers(self._in_use(merge.containers((result, held)), snapshot), self._line)
        return result


def _negated(predicate: Any) -> Any:
    is_tensor = isinstance(predicate, torch.Tensor)
    return torch.logical_not(predicate) if is_tensor else torch.sym_not(predicate)  # type: ignore[no-untyped-call]


# ---------------------------------------------------------------------------------------------------- checks


def check(test: object, fail: Callable[[], Any]) -> None:
    """`assert test` or `if not test: raise …`: on tensor data a check that the program keeps, else what it was.

    Raises:
        RewriteError: a handler of the model may catch what is raised.
    """
    if not depends_on_data(test):
        if not test:
            fail()
        return
    try:
        fail()
    except Exception as error:  # its class is what a handler goes by
        require_uncaught(type(error) if is_of_the_model(error) else Exception)
    check_data(test)


def require_uncaught(kind: type[BaseException], line: int = 0) -> None:
    """Refuses an exception that depends on tensor data if the model may catch it, for a graph cannot.

    Raises:
        RewriteError: with the handler.
    """
    handler = handler_of(kind)
    if handler is not None:
        where = f"line {line}: " if line else ""
        raise RewriteError(
            f"{where}{kind.__name__} is raised where tensor data says so, and {handler} may catch it; no graph can: "
            "write the test as an `if` with the handler's statements in its branch"
        )


def is_of_the_model(error: Exception) -> bool:
    """Whether the model's own code raised it by a `raise` or an `assert`, as eager mode would.

    What an expression raises (`round(x)`, `table[x]`) may come from what stands for its values while it is traced.
    """
    if isinstance(error, RewriteError) or is_stop(error):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not is_models(trace.tb_frame.f_code.co_filename):
        return False
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
