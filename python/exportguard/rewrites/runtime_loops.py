"""Loops over tensors: unrolled where Python knows the trip count, `scan` or `while_loop` where tensor data or a
symbolic size decides it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.rewrites.numbers import as_number
from exportguard.rewrites.recording import Captured, record, substituted
from exportguard.rewrites.runtime import UNDEFINED, as_predicate, depends_on_data, describe, if_
from exportguard.rewrites.runtime_stores import get_item
from exportguard.rewrites.state import MISSING, Slot, Snapshot, reachable_roots
from exportguard.source.errors import RewriteError

Body = Callable[..., tuple[Any, tuple[Any, ...]]]

_SIZES = (int, torch.SymInt)
_WITH_STEP = 3  # bounds of a range
_CARRIED = (torch.Tensor, bool, int, float, torch.SymInt)  # what a loop of a graph can carry


@dataclass(frozen=True)
class Steps:
    """A range whose number of steps depends on tensor data."""

    start: Any
    step: int
    count: torch.Tensor

    def __iter__(self) -> Iterator[Any]:
        raise RewriteError("a range over tensor data can only be rewritten in a `for` statement of its own")


@dataclass(frozen=True)
class Rows:
    """Something to iterate over whose length is symbolic: a pytree of tensors with one common first axis."""

    tensors: Any

    def at(self, index: torch.Tensor) -> Any:
        """The row of a number that is a tensor itself."""
        return pytree.tree_map(lambda leaf: get_item(leaf, index), self.tensors)

    def __iter__(self) -> Iterator[Any]:
        raise RewriteError("a loop over a symbolic length can only be rewritten as a `for` statement of its own")


@dataclass(frozen=True)
class SymbolicRange:
    """The numbers of a range with a start and a symbolic bound."""

    numbers: tuple[Any, ...]
    steps: Steps

    def __iter__(self) -> Iterator[Any]:
        raise RewriteError("a range of a symbolic size can only be rewritten in a `for` statement of its own")


def rows_of(iterable: Any) -> Rows | None:
    """The rows of a tensor of symbolic length; None for everything that Python can iterate over."""
    if isinstance(iterable, Rows):
        return iterable
    if isinstance(iterable, SymbolicRange):
        return Rows(torch.arange(*iterable.numbers))
    is_symbolic = (
        isinstance(iterable, torch.Tensor) and iterable.dim() > 0 and isinstance(iterable.shape[0], torch.SymInt)
    )
    return Rows(iterable) if is_symbolic else None


def len_(sized: Any) -> Any:
    """`len`, which leaves a symbolic size as it is."""
    return sized.shape[0] if isinstance(sized, torch.Tensor) and sized.dim() else len(sized)


def div(number: Any, divisor: Any, *, rounding_mode: str | None = None, **options: Any) -> Any:
    """`torch.div`, which leaves the quotient of sizes a size."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    numbers = (number, divisor)
    are_sizes = any(isinstance(n, torch.SymInt) for n in numbers) and all(isinstance(n, _SIZES) for n in numbers)
    is_exact = rounding_mode == "floor" or (
        rounding_mode == "trunc" and are_sizes and all(statically_known_true(n >= 0) for n in numbers)
    )
    if not are_sizes or not is_exact:
        return torch.div(number, divisor, rounding_mode=rounding_mode, **options)
    return number // divisor


def range_(*bounds: Any) -> Iterable[Any]:
    """`range`, with symbolic bounds and bounds from tensor data as well."""
    if any(depends_on_data(bound) for bound in bounds):
        return _steps(*bounds) if len(bounds) > 1 else _steps(0, *bounds)
    numbers: list[Any] = [b.item() if isinstance(b, torch.Tensor) else b for b in bounds]
    if not any(isinstance(number, torch.SymInt) for number in numbers):
        return builtins.range(*numbers)
    if len(numbers) == _WITH_STEP and _is_one_step(*numbers):
        return [numbers[0]]
    return Rows(torch.arange(*numbers)) if len(numbers) == 1 else SymbolicRange(tuple(numbers), _steps(*numbers))


def _is_one_step(start: Any, stop: Any, step: Any) -> bool:
    """Whether a range steps from its start to its end at once, whatever its length is."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(step > 0) and statically_known_true(stop - start == step)


def _steps(start: Any, stop: Any, step: Any = 1) -> Steps:
    if not isinstance(step, int):
        raise RewriteError(f"the step of a range over tensor data must be a number, got {describe(step)}")
    first, last = _as_tensor(start), _as_tensor(stop)
    beyond = step - 1 if step > 0 else step + 1
    count = torch.div(last - first + beyond, step, rounding_mode="floor")
    return Steps(first, step, torch.clamp(count, min=0))


def enumerate_(iterable: Any, start: int = 0) -> Iterable[Any]:
    """`enumerate`, over a symbolic length as well."""
    rows = rows_of(iterable)
    if rows is None:
        return builtins.enumerate(iterable, start)
    length = pytree.tree_leaves(rows.tensors)[0].shape[0]
    return Rows((torch.arange(start, start + length), rows.tensors))


def zip_(*iterables: Any, strict: bool = False) -> Iterable[Any]:
    """`zip`, over symbolic lengths as well."""
    rows = [rows_of(iterable) for iterable in iterables]
    if all(r is None for r in rows):
        return builtins.zip(*iterables, strict=strict)
    parts = [r.tensors if r is not None else i for r, i in builtins.zip(rows, iterables, strict=True)]
    if not all(isinstance(leaf, torch.Tensor) for part in parts for leaf in pytree.tree_leaves(part)):
        raise RewriteError("zip of a tensor of symbolic length with a Python list; make the list a tensor")
    length = min(pytree.tree_leaves(part)[0].shape[0] for part in parts) if not strict else None
    cut = parts if length is None else [pytree.tree_map(lambda t: t[:length], part) for part in parts]
    return Rows(tuple(cut))


# ---------------------------------------------------------------------------------------------------- collected rows


@dataclass(frozen=True)
class Collected:
    """What a loop of symbolic length appended to a list, as one tensor with the rows along the first axis."""

    rows: torch.Tensor


def stack(tensors: Any, dim: int = 0, **options: Any) -> torch.Tensor:
    """`torch.stack`, of a list that a loop filled as well."""
    if not _has_collected(tensors):
        return torch.stack(tensors, dim, **options)
    parts = [part.rows if isinstance(part, Collected) else part.unsqueeze(0) for part in tensors]
    joined = torch.cat(parts) if len(parts) > 1 else parts[0]
    return torch.movedim(joined, 0, dim)


def cat(tensors: Any, dim: int = 0, **options: Any) -> torch.Tensor:
    """`torch.cat`, of a list that a loop filled as well."""
    if not _has_collected(tensors):
        return torch.cat(tensors, dim, **options)
    return torch.cat([_side_by_side(p.rows, dim) if isinstance(p, Collected) else p for p in tensors], dim)


def _has_collected(tensors: Any) -> bool:
    return isinstance(tensors, list | tuple) and any(isinstance(part, Collected) for part in tensors)


def _side_by_side(rows: torch.Tensor, dim: int) -> torch.Tensor:
    axis = dim if dim >= 0 else dim + rows.dim() - 1
    return torch.movedim(rows, 0, axis).flatten(axis, axis + 1)


# ---------------------------------------------------------------------------------------------------- statements


def for_(iterable: Any, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int = 0) -> tuple[Any, ...]:
    """`for … in iterable: body` with the carried variables `names`; returns their values behind the loop."""
    if isinstance(iterable, Steps):
        return _counted(iterable, body, names, values, line)
    if isinstance(iterable, SymbolicRange) and _may_be_counted(iterable.steps, body, names, values, line):
        return _counted(iterable.steps, body, names, values, line)
    rows = rows_of(iterable)
    if rows is None:
        return _unrolled(iterable, body, values)
    loop = _Loop(body, names, values, line)
    loop.analyse_rows(rows.tensors)
    if loop.breaks:
        return _counted(_steps_of(rows), lambda i, *current: body(rows.at(i), *current), names, values, line)
    return loop.scan(rows.tensors)


def _may_be_counted(steps: Steps, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int) -> bool:
    """Whether the body appends to no list; a scan can, but torch takes one of a single step for a constant."""
    loop = _Loop(body, names, values, line)
    loop.analyse_item(lambda: as_number(steps.start.clone()))
    return not loop.appends


def _steps_of(rows: Rows) -> Steps:
    length = pytree.tree_leaves(rows.tensors)[0].shape[0]
    return Steps(torch.zeros((), dtype=torch.int64), 1, torch.scalar_tensor(length, dtype=torch.int64))


def _unrolled(iterable: Iterable[Any], body: Body, values: tuple[Any, ...]) -> tuple[Any, ...]:
    goes_on: Any = True
    for item in iterable:
        if depends_on_data(goes_on):
            current = values
            goes_on, values = if_(goes_on, lambda: body(item, *current), lambda: (False, current))  # noqa: B023
            continue
        if not goes_on:
            break
        goes_on, values = body(item, *values)
    return values


def _counted(steps: Steps, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int) -> tuple[Any, ...]:
    """A loop over a range that depends on tensor data, as `while position < count`."""

    def goes_on(position: Any, *current: Any) -> Any:
        return position < steps.count

    def step(position: Any, *current: Any) -> tuple[Any, tuple[Any, ...]]:
        flag, after = body(as_number(steps.start + position * steps.step), *current)
        return flag, (position + 1, *after)

    position = torch.zeros_like(steps.count)
    _, *after = _Loop(step, ["position", *names], (position, *values), line).while_loop(goes_on)
    return tuple(after)


def while_(
    test: Callable[..., Any], body: Body, names: Sequence[str], values: tuple[Any, ...], line: int = 0
) -> tuple[Any, ...]:
    """`while test: body`; a Python test is a Python loop, a test on tensor data a `while_loop`."""
    while True:
        decision = test(*values)
        if depends_on_data(decision):
            return _Loop(body, names, values, line).while_loop(test)
        if not decision:
            return values
        goes_on, values = body(*values)
        if depends_on_data(goes_on):
            return _Loop(body, names, values, line).while_loop(test, goes_on)
        if not goes_on:
            return values


class _Loop:
    """A loop that becomes a higher-order operator: what one run of its body reads, carries, writes and appends."""

    def __init__(self, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int) -> None:
        self._body = body
        self._names = names
        self._line = line
        self._values = values
        self._captured = Captured()
        self._written: list[bool] = []
        self._slots: list[Slot] = []
        self._appended: list[Slot] = []
        self._snapshot = Snapshot(reachable_roots([body]))
        self._spec: pytree.TreeSpec | None = None
        self._inner: list[bool] = []
        self._start: list[Any] = []
        self._is_carried: list[bool] = []

    # -------------------------------------------------------------------------------------- scan

    def analyse_rows(self, rows: Any) -> None:
        """Finds out what the body does with a row."""
        self.analyse_item(lambda: pytree.tree_map(lambda leaf: leaf[0], rows))

    def analyse_item(self, first: Callable[[], Any]) -> None:
        """Finds out what the body does with an item."""
        self._analyse(lambda values: self._body(record(first, Captured()), *values))

    @property
    def breaks(self) -> bool:
        """Whether tensor data may end the loop before its last step."""
        return self._goes_on is not True

    @property
    def appends(self) -> bool:
        """Whether the body appends to a list."""
        return bool(self._appended)

    def scan(self, rows: Any) -> tuple[Any, ...]:
        """The loop over rows that were analysed."""
        leaves, spec = pytree.tree_flatten(rows)
        initial = self._initial()

        def combine(*operands: torch.Tensor) -> list[torch.Tensor]:
            carried = list(operands[: len(initial)])
            items = operands[len(initial) : len(initial) + len(leaves)]
            item = pytree.tree_unflatten(list(items), spec)
            _, state, appended = self._step([item], carried, list(operands[len(initial) + len(leaves) :]))
            return [t.clone() for t in [*state, *appended]]

        outputs = torch.ops.higher_order.scan(combine, initial, leaves, tuple(self._reads()))
        return self._finish(list(outputs))

    # -------------------------------------------------------------------------------------- while_loop

    def while_loop(self, test: Callable[..., Any], goes_on: Any = True) -> tuple[Any, ...]:
        self._analyse(lambda values: self._body(*values), also=lambda values: test(*values))
        if self._appended:
            raise RewriteError(
                f"line {self._line}: a loop whose number of steps depends on tensor data cannot append to a list; "
                "write into a tensor of fixed size"
            )
        has_flag = self._goes_on is not True or goes_on is not True
        flag = [_as_flag(goes_on)] if has_flag else []
        initial = [*flag, *self._initial()]

        def again(*operands: torch.Tensor) -> torch.Tensor:
            carried, reads = list(operands[: len(initial)]), list(operands[len(initial) :])
            with substituted(self._read_tensors(), reads):
                decision = _as_flag(test(*self._with(carried[len(flag) :])))
            return torch.logical_and(carried[0], decision) if flag else decision

        def step(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            carried, reads = list(operands[: len(initial)]), list(operands[len(initial) :])
            new_flag, state, _ = self._step([], carried[len(flag) :], reads)
            return tuple(t.clone() for t in [*([_as_flag(new_flag)] if flag else []), *state])

        outputs = torch.ops.higher_order.while_loop(again, step, tuple(initial), tuple(self._reads()))
        return self._finish(list(outputs)[len(flag) :])

    # -------------------------------------------------------------------------------------- one run of the body

    def _analyse(self, run: Callable[[Any], Any], also: Callable[[Any], Any] | None = None) -> None:
        """Runs the body once to learn what it carries; a number that it changes is carried as a tensor from then on."""
        values = self._values
        if also is not None:
            record(lambda: also(values), self._captured)
        goes_on, after = record(lambda: run(values), self._captured)
        changes = self._snapshot.changes()
        self._snapshot.restore(changes)
        self._goes_on = goes_on
        pairs = builtins.zip(values, after, strict=True)
        self._inner = [start is UNDEFINED and not isinstance(end, _CARRIED) for start, end in pairs]
        after = self._without_inner(after)
        self._written = self._captured.mark_written()
        self._appended = [
            slot for slot, _ in changes if slot.kind == "element" and self._snapshot.before(slot) is MISSING
        ]
        self._slots = [slot for slot, _ in changes if slot not in self._appended]
        now = {slot.identity(): new for slot, new in changes}
        before = (values, [self._snapshot.before(slot) for slot in self._slots])
        later = (after, [now[slot.identity()] for slot in self._slots])
        self._carry(before, later)

    def _without_inner(self, after: tuple[Any, ...]) -> tuple[Any, ...]:
        """The variables without those that the body alone uses and that no graph can carry, such as functions."""
        pairs = builtins.zip(after, self._inner, strict=True)
        return tuple(UNDEFINED if is_inner else end for end, is_inner in pairs)

    def _carry(self, before: Any, later: Any) -> None:
        is_leaf = lambda item: item is None or item is UNDEFINED  # noqa: E731
        self._start, _ = pytree.tree_flatten(before, is_leaf=is_leaf)
        ends, self._spec = pytree.tree_flatten(later, is_leaf=is_leaf)
        if len(ends) != len(self._start):
            raise RewriteError(
                f"line {self._line}: a loop over tensors changes the structure of {', '.join(self._names)}; "
                "carry tensors of fixed shape"
            )
        self._is_carried = []
        for i, (start, end) in enumerate(builtins.zip(self._start, ends, strict=True)):
            changes = start is not end and (isinstance(end, torch.Tensor) or not _equal(start, end))
            if changes and start is UNDEFINED and isinstance(end, torch.Tensor):
                self._start[i] = torch.zeros(end.shape, dtype=end.dtype, device=end.device)
            elif changes and start is UNDEFINED:
                self._start[i] = end
            elif changes and not isinstance(end, _CARRIED):
                raise RewriteError(
                    f"line {self._line}: a loop over tensors carries {describe(start)} → {describe(end)}; "
                    "only tensors and numbers can be carried"
                )
            self._is_carried.append(changes)
            self._require_same_type(self._start[i], end, changes)

    def _require_same_type(self, start: Any, end: Any, changes: bool) -> None:
        if not changes or not isinstance(end, torch.Tensor):
            return
        first = torch.as_tensor(start) if not isinstance(start, torch.Tensor) else start
        if first.shape != end.shape:
            raise RewriteError(
                f"line {self._line}: a loop over tensors carries {describe(first)} but its body makes {describe(end)}; "
                "give the variable the shape that the body makes before the loop"
            )

    def _initial(self) -> list[torch.Tensor]:
        carried = [_as_tensor(s) for s, c in builtins.zip(self._start, self._is_carried, strict=True) if c]
        written = [t for t, w in builtins.zip(self._captured.tensors, self._written, strict=True) if w]
        return [tensor.detach().clone() for tensor in [*carried, *written]]

    def _read_tensors(self) -> list[torch.Tensor]:
        return [t for t, w in builtins.zip(self._captured.tensors, self._written, strict=True) if not w]

    def _reads(self) -> list[torch.Tensor]:
        return [tensor.detach() for tensor in self._read_tensors()]  # the operators' autograd rules are not for export

    def _start_and_carried(self) -> list[tuple[Any, bool]]:
        return list(builtins.zip(self._start, self._is_carried, strict=True))

    def _with(self, carried: list[torch.Tensor]) -> tuple[Any, ...]:
        made = iter(carried)
        leaves = [_standing_for(s, next(made)) if c else s for s, c in self._start_and_carried()]
        assert self._spec is not None
        values, held = pytree.tree_unflatten(leaves, self._spec)
        for slot, content in builtins.zip(self._slots, held, strict=True):
            slot.put(content)
        return tuple(values)

    def _step(
        self, items: list[Any], carried: list[torch.Tensor], reads: list[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
        count = sum(self._is_carried)
        places = [tensor.clone() for tensor in carried[count:]]
        written = [t for t, w in builtins.zip(self._captured.tensors, self._written, strict=True) if w]
        with substituted([*self._read_tensors(), *written], [*reads, *places]) as replace:
            own = [tensor.clone() for tensor in carried[:count]] if any(self._written) else carried[:count]
            goes_on, after = self._body(*items, *self._with(own))
            changes = self._snapshot.changes()
            self._snapshot.restore(changes)
            now = {slot.identity(): new for slot, new in changes}
            held = [now.get(slot.identity(), self._snapshot.before(slot)) for slot in self._slots]
            appended = [replace(now[slot.identity()]) for slot in self._appended]
            state = self._carried_of(replace((self._without_inner(after), held)))
        return goes_on, [*state, *places], appended

    def _carried_of(self, after: Any) -> list[torch.Tensor]:
        leaves, _ = pytree.tree_flatten(after, is_leaf=lambda item: item is None or item is UNDEFINED)
        pairs = builtins.zip(leaves, self._start, self._is_carried, strict=True)
        return [_like(_as_tensor(leaf), _as_tensor(start)) for leaf, start, is_carried in pairs if is_carried]

    def _finish(self, outputs: list[torch.Tensor]) -> tuple[Any, ...]:
        count = sum(self._is_carried)
        written = [t for t, w in builtins.zip(self._captured.tensors, self._written, strict=True) if w]
        values = self._with(outputs[:count])
        for tensor, content in builtins.zip(written, outputs[count : count + len(written)], strict=True):
            tensor.copy_(content)
        by_list: dict[int, tuple[Slot, list[torch.Tensor]]] = {}
        for slot, rows in builtins.zip(self._appended, outputs[count + len(written) :], strict=True):
            by_list.setdefault(id(slot.owner), (slot, []))[1].append(rows)
        for slot, parts in by_list.values():
            rows = parts[0] if len(parts) == 1 else torch.stack(parts, 1).flatten(0, 1)
            slot.owner.append(Collected(rows))
        return values


def _standing_for(start: Any, tensor: torch.Tensor) -> torch.Tensor:
    return tensor if isinstance(start, torch.Tensor) else as_number(tensor)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return a is b
    if isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt):
        return bool(a.node.expr == b.node.expr)
    return type(a) is type(b) and bool(a == b)


def _as_tensor(item: Any) -> torch.Tensor:
    if isinstance(item, torch.Tensor):
        return item
    if isinstance(item, torch.SymInt):
        return torch.scalar_tensor(item, dtype=torch.int64)  # type: ignore[arg-type]
    return torch.tensor(item)


def _like(tensor: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == start.dtype else tensor.to(start.dtype)


def _as_flag(item: Any) -> torch.Tensor:
    predicate = as_predicate(item) if isinstance(item, torch.Tensor | torch.SymBool | torch.SymInt) else bool(item)
    return predicate if isinstance(predicate, torch.Tensor) else torch.scalar_tensor(predicate, dtype=torch.bool)
