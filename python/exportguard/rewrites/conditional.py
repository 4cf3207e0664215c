"""Tests with two branches: a Python test stays what it is, a test on tensor data becomes `cond`."""

from __future__ import annotations

import dis
import itertools
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
from exportguard.rewrites.merging import Merge, Outcome, are_alike, parts_of_result, with_parts
from exportguard.rewrites.rebound_lists import ReboundLists, of_two_lengths
from exportguard.rewrites.recording import Captured, record, substituted
from exportguard.rewrites.sharing import copies_of_changed, has_another_name
from exportguard.rewrites.state import Slot, Snapshot
from exportguard.rewrites.watch import is_stop, note_containers, note_put
from exportguard.rewrites.whole_lists import Whole, of_two_forms
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
    return Condition(*branches, tuple(names), line, leaving, values).build(as_predicate(test))


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

    def __init__(
        self, function: Callable[[], Any], snapshot: Snapshot, captured: Captured, names: Sequence[str] = ()
    ) -> None:
        self.function = function
        self._names = names
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
            self._copies = self._copies_of(self.result, self.changes)
            snapshot.restore(self.changes)

    def outcome(self, slots: list[Slot], in_common: Sequence[bool]) -> Outcome:
        """Runs the branch again; returns its result and what the slots hold afterwards."""
        result = self.function()
        changes = self._snapshot.changes()
        copies, held = self._copies_of(result, changes), self._held(slots, changes)
        self._snapshot.restore(changes)
        return self._apart(result, held, copies, in_common)

    def recorded(self, slots: list[Slot], in_common: Sequence[bool] | None = None) -> Outcome:
        """The same of the first run.

        :param in_common: for each variable and slot, whether the other branch leaves the same object; None: as they are
        """
        held = self._held(slots, self.changes)
        return (self.result, held) if in_common is None else self._apart(self.result, held, self._copies, in_common)

    def _held(self, slots: list[Slot], changes: Sequence[tuple[Slot, Any]]) -> list[Any]:
        now = {slot.identity(): new for slot, new in changes}
        return [slot.as_value(now.get(slot.identity(), self._snapshot.before(slot))) for slot in slots]

    def _copies_of(self, result: Any, changes: Sequence[tuple[Slot, Any]]) -> dict[int, Any]:
        left = [*parts_of_result(result, self._names), *(new for _, new in changes)]
        return copies_of_changed(left, (slot for slot, _ in changes))

    def _apart(self, result: Any, held: Sequence[Any], copies: dict[int, Any], in_common: Sequence[bool]) -> Outcome:
        """What the branch leaves as it was behind the branch, where the other one leaves something else."""
        parts = parts_of_result(result, self._names)
        pairs = itertools.zip_longest([*parts, *held], in_common, fillvalue=False)
        left = [item if same else copies.get(id(item), item) for item, same in pairs]
        return with_parts(result, self._names, left[: len(parts)]), left[len(parts) :]


def _in_common(first: Outcome, second: Outcome, names: Sequence[str]) -> list[bool]:
    """For each variable and slot, whether two branches leave the same object."""
    if not are_alike(first[0], second[0], names):
        return []
    one, other = ([*parts_of_result(result, names), *held] for result, held in (first, second))
    return [a is b for a, b in zip(one, other, strict=True)]


class Condition:
    """One data-dependent test with its two branches."""

    def __init__(
        self,
        then: Callable[[], Any],
        orelse: Callable[[], Any],
        names: tuple[str, ...],
        line: int,
        leaving: str = "",
        values: Sequence[Any] = (),
    ) -> None:
        self._values = values  # of the variables, before
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
        in_common = _in_common(runs[0].recorded(slots), runs[1].recorded(slots), self._names)
        outcomes = (runs[0].recorded(slots, in_common), runs[1].recorded(slots, in_common))
        lists = of_two_forms(slots, snapshot.before, [held for _, held in outcomes])
        rebound = self._rebound([result for result, _ in outcomes], snapshot)
        if lists or rebound.lists:
            aliases_now().set_stale(stale)
            return self._with_rows(lists, rebound, predicate)
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
        functions = [
            self._graph_function(lambda run=run: run.outcome(slots, in_common), merge, captured, written)  # type: ignore[misc]
            for run in runs
        ]
        operands = (*captured.tensors, *captured.known_numbers())
        aliases = aliases_now()
        with aliases.internal():
            outputs = list(torch.ops.higher_order.cond(predicate, *functions, operands))
            sources = merge.sources()  # before something is put into lists that a branch leaves
            result = self._apply(outputs, merge, snapshot, captured, written)
        for output, made in zip(outputs[: merge.tensor_count], sources, strict=True):
            aliases.link(output, made)
        return result

    def _rebound(self, results: Sequence[Any], snapshot: Snapshot) -> ReboundLists:
        """The variables that the branches leave as lists of two lengths."""
        first, second = (parts_of_result(result, self._names) for result in results)
        are_variables = bool(self._names) and len(first) == len(self._values)
        before = self._values if are_variables else ()
        found = ReboundLists(self._names, self._branches, before, self._line, reached=snapshot)
        for place in of_two_lengths(first, second) if are_alike(results[0], results[1], self._names) else ():
            found.add(place, first[place], second[place])
        return found

    def _with_rows(self, whole: Sequence[Whole], rebound: ReboundLists, predicate: object) -> Any:
        """The test with these lists as rows of one tensor before it and behind both branches."""
        for known in whole:
            known.become_rows()
        own = rebound.lists  # what a branch changes is found by the variables of functions

        def around(branch: Branch) -> Branch:
            def made() -> Any:
                result = branch()
                for known in whole:
                    known.become_rows()
                if not own:
                    return result
                return with_parts(result, self._names, rebound.taken(parts_of_result(result, self._names)))

            return made

        then, orelse = map(around, self._branches)
        result = Condition(then, orelse, self._names, self._line, self._leaving).build(predicate)
        if not own:
            return result
        return with_parts(result, self._names, rebound.behind(parts_of_result(result, self._names)))

    def _runs(self, snapshot: Snapshot, captured: Captured) -> list[Run]:
        """Both branches, run from the same state; what either makes stale is stale behind them."""
        aliases = aliases_now()
        before, runs = aliases.stale_now(), []
        after: dict[int, str] = {}
        for branch in self._branches:
            aliases.set_stale(before)
            captured.begin_of_a_branch()
            run = Run(branch, snapshot, captured, self._names)
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
        self, outcome: Callable[[], Outcome], merge: Merge, captured: Captured, written: list[bool]
    ) -> Callable[..., list[torch.Tensor]]:
        def function(*operands: torch.Tensor) -> list[torch.Tensor]:
            tensors = operands[: len(written)]  # numbers follow, which stay what they are
            places = [o.clone() if w else o for o, w in zip(tensors, written, strict=True)]
            with substituted(captured.tensors, places) as replace:
                outputs = merge.tensors_of(replace(outcome()))
                mutated = [place for place, w in zip(places, written, strict=True) if w]
                return [tensor.clone() for tensor in [*outputs, *mutated]]

        return function

    def _in_use(self, found: Sequence[tuple[str, Any, Any]], snapshot: Snapshot) -> list[tuple[str, Any, Any]]:
        """Without the objects that have no other name than the one that the test gives a new one."""

        def is_in_use(older: Any) -> bool:
            if isinstance(older, Grown) and older.is_carried and not self._names:
                return False  # a function that returns what its branches make goes no further
            is_plain = isinstance(older, list | dict) and not (isinstance(older, Grown) and older.is_carried)
            return is_plain or has_another_name(older, self._names, snapshot)

        return [(name, older, merged) for name, older, merged in found if is_in_use(older)]

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
