"""What rewritten code calls: each function decides at trace time whether a test depends on tensor data.

A test on a Python value stays the Python test it was. A test on tensor data becomes `torch.ops.higher_order.cond` while
a program is being exported, and a plain `bool(...)` in eager mode.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols
from torch.utils import _pytree as pytree

from exportguard.rewrites.catching import handler_of
from exportguard.rewrites.numbers import as_number
from exportguard.rewrites.opening import Opening, closed
from exportguard.rewrites.places import is_users
from exportguard.rewrites.recording import Captured, record, substituted
from exportguard.rewrites.state import MISSING, UNDEFINED, Slot, Snapshot, reachable_roots
from exportguard.rewrites.watch import is_stop
from exportguard.source.errors import RewriteError

Branch = Callable[..., Any]


def value(read: Callable[[], Any]) -> Any:
    """The value of a local variable, or UNDEFINED."""
    try:
        return read()
    except NameError:
        return UNDEFINED


def is_tracing() -> bool:
    """Whether torch.export runs, so that tensor data is not there."""
    return torch.compiler.is_exporting() or torch._guards.detect_fake_mode() is not None


def depends_on_data(test: Any) -> bool:
    """Whether Python cannot decide `test` at trace time because it depends on tensor data."""
    if isinstance(test, torch.Tensor):
        return is_tracing()
    is_symbolic = isinstance(test, torch.SymBool | torch.SymInt | torch.SymFloat)
    return is_symbolic and bool(has_free_unbacked_symbols(test))


def as_predicate(test: Any) -> Any:
    """`test` as cond takes it: a bool tensor of rank 0, or a SymBool."""
    if isinstance(test, torch.Tensor):
        if test.numel() != 1:
            raise RewriteError(
                f"the truth value of a tensor of shape {tuple(test.shape)} is ambiguous; use any() or all()"
            )
        flat = test.reshape(())
        return flat if flat.dtype == torch.bool else flat != 0
    return test if isinstance(test, torch.SymBool) else test != 0


# ---------------------------------------------------------------------------------------------------- conditions


def if_(
    test: Any, then: Branch, orelse: Branch, names: Sequence[str] = (), values: Sequence[Any] = (), line: int = 0
) -> Any:
    """`if test: … else: …` where both branches take and return the variables `names`.

    Returns what the branch returns: the variables' values, or the function's result for branches that return.

    Raises:
        RewriteError: the branches give values that one graph cannot hold, naming variable and line.
    """
    if not depends_on_data(test):
        return then(*values) if test else orelse(*values)
    return _Condition(lambda: then(*values), lambda: orelse(*values), tuple(names), line).build(as_predicate(test))


def ifexp(test: Any, then: Callable[[], Any], orelse: Callable[[], Any], line: int = 0) -> Any:
    """`then if test else orelse`."""
    if not depends_on_data(test):
        return then() if test else orelse()
    return _Condition(then, orelse, ("the value",), line).build(as_predicate(test))


class _Run:
    """One branch, run once on fake tensors: its result and the Python objects it changed."""

    def __init__(self, function: Callable[[], Any], snapshot: Snapshot, captured: Captured) -> None:
        self.function = function
        self._snapshot = snapshot
        self.result: Any = None
        self.error: Exception | None = None  # what the model raises in this branch
        self.checks = 0
        before = _CHECKS[0]
        try:
            self.result = record(function, captured)
        except Exception as error:
            if not is_of_the_model(error):
                raise
            self.error = error
        finally:
            self.checks = _CHECKS[0] - before
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


class _Condition:
    """One data-dependent test with its two branches."""

    def __init__(self, then: Callable[[], Any], orelse: Callable[[], Any], names: tuple[str, ...], line: int) -> None:
        self._branches = (then, orelse)
        self._names = names
        self._line = line

    def build(self, predicate: Any) -> Any:
        captured = Captured()
        snapshot = Snapshot(reachable_roots(self._branches))
        runs = [_Run(branch, snapshot, captured) for branch in self._branches]
        if any(run.error is not None for run in runs):
            return self._without_error(predicate, [run.error for run in runs])
        slots = list({slot.identity(): slot for run in runs for slot, _ in run.changes}.values())
        places = tuple(slot.describe() for slot in slots)
        merge = Merge(*(run.recorded(slots) for run in runs), names=self._names, places=places, line=self._line)
        written = captured.mark_written()
        for tensor in merge.plain_tensors():
            captured.add(tensor)
        written += [False] * (len(captured.tensors) - len(written))
        functions = [self._graph_function(run, slots, merge, captured, written) for run in runs]
        operands = (*captured.tensors, *captured.numbers.values())
        outputs = torch.ops.higher_order.cond(predicate, *functions, operands)
        return self._apply(list(outputs), slots, merge, captured, written)

    def _without_error(self, predicate: Any, errors: Sequence[Exception | None]) -> Any:
        """The branch that does not raise, behind a check that it is the one that runs."""
        then, orelse = errors
        if then is not None and orelse is not None:
            raise then
        error = then or orelse
        assert error is not None
        require_uncaught(type(error), self._line)
        check_data(not_(predicate) if orelse is None else predicate)
        return self._branches[0 if then is None else 1]()

    def _graph_function(
        self, run: _Run, slots: list[Slot], merge: Merge, captured: Captured, written: list[bool]
    ) -> Callable[..., list[torch.Tensor]]:
        def function(*operands: torch.Tensor) -> list[torch.Tensor]:
            tensors = operands[: len(written)]  # numbers follow, which stay what they are
            places = [o.clone() if w else o for o, w in zip(tensors, written, strict=True)]
            with substituted(captured.tensors, places) as replace:
                outputs = merge.tensors_of(replace(run.outcome(slots)))
                mutated = [place for place, w in zip(places, written, strict=True) if w]
                return [tensor.clone() for tensor in [*outputs, *mutated]]

        return function

    def _apply(
        self, outputs: list[torch.Tensor], slots: list[Slot], merge: Merge, captured: Captured, written: list[bool]
    ) -> Any:
        result, held = merge.rebuild(outputs[: merge.tensor_count])
        mutated = [t for t, w in zip(captured.tensors, written, strict=True) if w]
        for tensor, content in zip(mutated, outputs[merge.tensor_count :], strict=True):
            tensor.copy_(content)
        for slot, new in zip(slots, held, strict=True):
            slot.put(new)
        return result


class Merge:
    """The outcomes of two branches as one list of tensors and what both have in common."""

    def __init__(
        self, first: Any, second: Any, *, names: tuple[str, ...], places: tuple[str, ...] = (), line: int = 0
    ) -> None:
        self._names = names
        self._places = places  # attributes, entries and elements that a branch writes
        self._line = line
        self._opening = Opening(first, second)
        first, second = self._opening.opened(first), self._opening.opened(second)
        first_leaves, self._spec = pytree.tree_flatten(first, is_leaf=_is_leaf)
        second_leaves, spec = pytree.tree_flatten(second, is_leaf=_is_leaf)
        if spec != self._spec:
            raise self._error("have values of different structure", first[0], second[0])
        paths = [path for path, _ in pytree.tree_flatten_with_path(first, is_leaf=_is_leaf)[0]]
        self._common: list[Any] = []
        self._is_tensor: list[bool] = []
        self._tensors: list[torch.Tensor] = []
        for path, a, b in zip(paths, first_leaves, second_leaves, strict=True):
            self._add(path, a, b)

    @property
    def tensor_count(self) -> int:
        return sum(self._is_tensor)

    def plain_tensors(self) -> list[torch.Tensor]:
        """Tensors that a branch returns as they are, so that they may have been seen by no function."""
        return self._tensors

    def tensors_of(self, outcome: Any) -> list[torch.Tensor]:
        leaves = pytree.tree_leaves(self._opening.opened(outcome), is_leaf=_is_leaf)
        return [_as_tensor(leaf) for leaf, is_tensor in zip(leaves, self._is_tensor, strict=True) if is_tensor]

    def rebuild(self, tensors: list[torch.Tensor]) -> Any:
        made = iter(tensors)
        leaves = [
            next(made) if is_tensor else common for is_tensor, common in zip(self._is_tensor, self._common, strict=True)
        ]
        return closed(pytree.tree_unflatten(leaves, self._spec))

    def _add(self, path: Any, a: Any, b: Any) -> None:
        if a is UNDEFINED or b is UNDEFINED:  # a variable of one branch alone; reading it behind the test is an error
            a = b = UNDEFINED
        becomes_tensor = isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor) or _differ_as_numbers(a, b)
        if becomes_tensor:
            for leaf in (a, b):
                if not isinstance(leaf, torch.Tensor | _NUMBERS):
                    raise self._error(f"give {self._name(path)} values of different kinds", a, b)
            self._tensors += [leaf for leaf in (a, b) if isinstance(leaf, torch.Tensor)]
        elif not _is_same(a, b):
            raise self._error(f"give {self._name(path)} different Python values", a, b)
        self._is_tensor.append(becomes_tensor)
        self._common.append(a)

    def _name(self, path: Any) -> str:
        indices: list[Any] = [getattr(key, "idx", None) for key in path]
        if indices[0] == 1:
            return f"`{self._places[path[1].idx]}`{pytree.keystr(path[2:])}"
        is_variable = len(indices) > 1 and indices[0] == 0 and isinstance(indices[1], int)
        if is_variable and indices[1] < len(self._names):
            return f"`{self._names[indices[1]]}`{pytree.keystr(path[2:])}"
        return self._names[0] if self._names else "the result"

    def _error(self, what: str, a: Any, b: Any) -> RewriteError:
        where = f"line {self._line}: " if self._line else ""
        return RewriteError(
            f"{where}the branches of a test on tensor data {what}: {describe(a)} and {describe(b)}; "
            "give both branches tensors of one shape and dtype"
        )


def describe(item: Any) -> str:
    """A value as an error message shows it: tensors by dtype and shape."""
    if isinstance(item, torch.Tensor):
        sizes = ", ".join(str(size) for size in item.shape)
        return f"a {str(item.dtype).removeprefix('torch.')} tensor of shape [{sizes}]"
    if item is MISSING:
        return "nothing"
    text = repr(item)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_leaf(item: Any) -> bool:
    return item is None


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.SymInt | torch.SymFloat):
        return torch.scalar_tensor(leaf, dtype=torch.int64 if isinstance(leaf, torch.SymInt) else torch.float32)  # type: ignore[arg-type]
    return leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)


_NUMBERS = bool | int | float | torch.SymInt | torch.SymFloat


def _differ_as_numbers(a: Any, b: Any) -> bool:
    return isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and not _is_same(a, b)


def _is_same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, torch.SymInt | torch.SymFloat | torch.SymBool) and type(a) is type(b):
        return bool(a.node.expr == b.node.expr)
    return (
        type(a) is type(b) and isinstance(a, bool | int | float | str | bytes | torch.dtype | torch.device) and a == b
    )


# ---------------------------------------------------------------------------------------------------- and, or, not


def known(item: Any) -> Callable[[], Any]:
    """An operand that was read already."""
    return lambda: item


def and_(*operands: Callable[[], Any]) -> Any:
    """`a and b and …` that is tested; operands are read from left to right, and no further than Python would."""
    return _tested(operands, is_or=False)


def or_(*operands: Callable[[], Any]) -> Any:
    """`a or b or …` that is tested."""
    return _tested(operands, is_or=True)


def _tested(operands: Sequence[Callable[[], Any]], *, is_or: bool) -> Any:
    current = operands[0]()
    for read in operands[1:]:
        if depends_on_data(current):
            current = _either(current, read) if is_or else _both(current, read)
        elif bool(current) == is_or:
            return current
        else:
            current = read()
    return current


def _both(current: Any, read: Callable[[], Any]) -> Any:
    if _leaves_no_trace(read):
        return _combine(torch.logical_and, current, read())
    return _Condition(lambda: _truth(read()), lambda: False, ("the value",), 0).build(as_predicate(current))


def _either(current: Any, read: Callable[[], Any]) -> Any:
    if _leaves_no_trace(read):
        return _combine(torch.logical_or, current, read())
    return _Condition(lambda: True, lambda: _truth(read()), ("the value",), 0).build(as_predicate(current))


def _leaves_no_trace(read: Callable[[], Any]) -> bool:
    """Whether an operand may be read although Python would not: it changes nothing and cannot fail."""
    captured = Captured()
    run = _Run(read, Snapshot(reachable_roots([read])), captured)
    return run.error is None and not run.changes and not any(captured.mark_written()) and not run.checks


def and_value(*operands: Callable[[], Any], line: int = 0) -> Any:
    """`a and b and …` whose value is used: the first operand that is not true, or the last."""
    return _valued(operands, line, is_or=False)


def or_value(*operands: Callable[[], Any], line: int = 0) -> Any:
    """`a or b or …` whose value is used: the first operand that is true, or the last."""
    return _valued(operands, line, is_or=True)


def _valued(operands: Sequence[Callable[[], Any]], line: int, *, is_or: bool) -> Any:
    current, rest = operands[0](), operands[1:]
    if not rest:
        return current
    if not depends_on_data(current):
        return current if bool(current) == is_or else _valued(rest, line, is_or=is_or)
    branches = [lambda: current, lambda: _valued(rest, line, is_or=is_or)]
    then, orelse = branches if is_or else reversed(branches)
    return _Condition(then, orelse, ("the value",), line).build(as_predicate(current))


def not_(operand: Any) -> Any:
    """`not a`."""
    if not depends_on_data(operand):
        return not operand
    return torch.logical_not(operand) if isinstance(operand, torch.Tensor) else torch.sym_not(as_predicate(operand))  # type: ignore[no-untyped-call]


def bool_(item: Any) -> Any:
    """`bool(item)`; of tensor data a bool tensor."""
    return _truth(item) if depends_on_data(item) else bool(item)


def int_(item: Any) -> Any:
    """`int(item)`; of tensor data a symbolic number."""
    if not isinstance(item, torch.Tensor) or not depends_on_data(item):
        return torch.sym_int(item) if depends_on_data(item) else int(item)  # type: ignore[no-untyped-call]
    return item.to(torch.int64).reshape(()).item()


def float_(item: Any) -> Any:
    """`float(item)`; of tensor data a tensor of rank 0."""
    if not isinstance(item, torch.Tensor) or not depends_on_data(item):
        return torch.sym_float(item) if depends_on_data(item) else float(item)  # type: ignore[no-untyped-call]
    number = item if item.is_floating_point() else item.to(torch.get_default_dtype())
    return as_number(number.reshape(()))


def _combine(function: Callable[..., torch.Tensor], a: Any, b: Any) -> torch.Tensor:
    return function(_truth(a), _truth(b))


def _truth(item: Any) -> torch.Tensor:
    predicate = as_predicate(item) if depends_on_data(item) or isinstance(item, torch.Tensor) else bool(item)
    if isinstance(predicate, torch.Tensor):
        return predicate
    return torch.scalar_tensor(predicate, dtype=torch.bool)


# ---------------------------------------------------------------------------------------------------- assertions


def check(test: Any, fail: Callable[[], Any]) -> None:
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


_CHECKS = [0]  # how many were made


def check_data(test: Any) -> None:
    """A check of the program."""
    _CHECKS[0] += 1
    if isinstance(test, torch.Tensor):
        torch._assert_async(as_predicate(test), "an assertion of the model failed")
    else:
        torch._check(test)  # type: ignore[no-untyped-call]


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
    """Whether the model's own code raised it, as eager mode would: not torch and not the rewriting."""
    if isinstance(error, RewriteError) or is_stop(error):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and is_users(trace.tb_frame.f_code)


# ---------------------------------------------------------------------------------------------------- comparisons

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda a, b: a in b,
    "NotIn": lambda a, b: a not in b,
}


def compare(operators: Sequence[str], *operands: Callable[[], Any]) -> Any:
    """`a < b <= c`: each operand is read once, and no further than Python would."""
    left = operands[0]()
    result: Any = True
    for name, read in zip(operators, operands[1:], strict=True):
        right = read()
        link = _COMPARISONS[name](left, right)
        result = _combine(torch.logical_and, result, link) if depends_on_data(result) else link
        if not depends_on_data(result) and not result:
            return result
        left = right
    return result


# The rest of what rewritten code calls; loops build on the conditions above.
from exportguard.rewrites.runtime_loops import cat, div, enumerate_, for_, len_, range_, stack, while_, zip_  # noqa: E402
from exportguard.rewrites.runtime_stores import augmented, get_item, set_item, update_item  # noqa: E402

__all__ = [
    "UNDEFINED", "and_", "and_value", "augmented", "bool_", "cat", "check", "compare", "div", "enumerate_", "float_",
    "for_", "get_item", "if_", "ifexp", "int_", "known", "len_", "not_", "or_", "or_value", "range_", "set_item",
    "stack", "update_item", "value", "while_", "zip_",
]  # fmt: skip
