"""One loop as a higher-order operator: what its body reads, carries, writes and appends; `scan` and `while_loop`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols, has_free_unbacked_symbols
from torch.utils import _pytree as pytree

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.carrying import (
    Kind,
    Kinds,
    copied_for_a_step,
    have_sizes_of_a_step,
    is_inner,
    is_leaf,
    none_like,
    undefined_like,
    unstable_of,
)
from exportguard.rewrites.collected import (
    Collected,
    Grown,
    Maybe,
    is_of_numbers,
    linked,
    made_outside,
    mark_sizes,
    moment,
    number_rows,
    take_missed,
    truth_of,
)
from exportguard.rewrites.data import as_flag, require_no_attributes, structure_of
from exportguard.rewrites.growing import GrowingLists, in_turn
from exportguard.rewrites.iteration import Rows
from exportguard.rewrites.numbers import number_tensor, require_one_kind
from exportguard.rewrites.opening import Opening, closed, where_they_differ
from exportguard.rewrites.own_lists import ReadsOwnListError, refusal
from exportguard.rewrites.packing import Packing, packing_of
from exportguard.rewrites.places import line_now
from exportguard.rewrites.rebound_lists import as_before
from exportguard.rewrites.recording import Captured, record, substituted, versions_of
from exportguard.rewrites.resizing import symbols_of, unbound
from exportguard.rewrites.sharing import at, has_another_name, named_together, replaced, require_apart
from exportguard.rewrites.state import MISSING, UNDEFINED, Slot, Snapshot
from exportguard.rewrites.watch import note_containers, note_put
from exportguard.rewrites.whole_lists import Likeness, remade_in
from exportguard.source.errors import RewriteError, forget

Body = Callable[..., tuple[Any, tuple[Any, ...]]]

_RUNS = 8  # of a body until the kinds of its variables stay the same: bool, int, float, tensor, and one to see it


class Loop:
    """A loop that becomes a higher-order operator: what its body reads, carries, writes and appends."""

    def __init__(
        self,
        body: Body,
        names: Sequence[str],
        values: tuple[Any, ...],
        line: int,
        first: Callable[[], tuple[Any, ...]],
        test: Callable[..., Any] | None = None,
    ) -> None:
        self._body = body
        self._names = names
        self._line = line
        self._values = values
        self._first = first  # the item of a step, none for `while`
        self._test = test
        self._captured = Captured()
        self._written: list[bool] = []
        self._slots: list[Slot] = []
        self._appended: list[Slot] = []
        self._snapshot = Snapshot(functions=[body, *([test] if test is not None else [])])
        self._kinds = Kinds(line, names)
        self._opening: Opening | None = None
        self._spec: pytree.TreeSpec | None = None
        self._start: list[Any] = []
        self._ends: list[Any] = []
        self._made: dict[int, tuple[Kind, torch.Tensor]] = {}  # what stands for a variable in a run
        self._rows: dict[tuple[int, int], torch.Tensor] = {}  # what stands for the rows of a list
        self._elements: list[Any] = []  # what the last run appended
        self._goes_on: Any = True
        self._after: tuple[Any, ...] = ()  # the variables behind the last run
        self._stale_before: dict[int, str] = {}  # what was stale before the first
        self.behind: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple  # the model's variables among those behind it

    # -------------------------------------------------------------------------------------- analysis

    def analysed(self) -> Loop:
        """The loop after its body was run on tensors without data until the kinds of its variables stay the same.

        :raises UnstableError: they are not of one kind before the loop and behind a step
        """
        before = aliases_now().stale_now()
        probe = self.with_other_sizes()
        if probe is not None:
            return probe
        aliases_now().set_stale(before)
        self._analyse()
        return self

    def with_other_sizes(self) -> Loop | None:
        """The loop, analysed, if a variable that has a dynamic size before it has another one behind each step."""
        if not self._starts_at_a_size() or ShapeEnv._suppress_guards_tls():  # torch 2.11 to 2.13
            return None
        probe = Loop(self._body, self._names, self._values, self._line, self._first, self._test)
        return probe if probe._gives_other_sizes() else None

    def _starts_at_a_size(self) -> bool:
        """Whether a variable is a tensor of a dynamic size before the loop."""
        tensors = (leaf for leaf in pytree.tree_leaves(self._values) if isinstance(leaf, torch.Tensor))
        sizes: list[Any] = [size for tensor in tensors for size in tensor.shape]
        return any(isinstance(size, torch.SymInt) and not has_free_unbacked_symbols(size) for size in sizes)

    def _gives_other_sizes(self) -> bool:
        """Analyses the loop; whether its steps give a variable another size each.

        What the first run asks of sizes is asked of those before the loop. Where others follow, no step of the program
        has them, and nothing that was asked may bind the inputs.
        """
        try:
            with unbound():
                self._analyse()
        except RewriteError as reason:
            forget(reason)
            return False
        return self._kinds.steps_differ(self._captured.own_symbols)

    def _analyse(self) -> None:
        before = self._stale_before = aliases_now().stale_now()
        for _ in range(_RUNS):
            if not self._run_changes_kinds():
                if self._captured.writes:  # in the next step others may read what this one wrote
                    self._run_changes_kinds(again=True)
                self._kinds.require_known_sizes(self._captured.own_symbols)
                self._capture_sizes()
                return
            aliases_now().set_stale(before)
        raise RewriteError(
            f"line {self._line}: a loop over tensors makes other kinds of {', '.join(self._names)} in every step"
        )

    def _capture_sizes(self) -> None:
        for number in self._snapshot.numbers():
            self._captured.add_number(number)
        kinds = self._kinds.of
        known = [start for k, start in enumerate(self._start) if k not in kinds or not kinds[k].resized]
        with aliases_now().internal():
            self._captured.add_sizes(known)
        self._written += [False] * (len(self._captured.tensors) - len(self._written))

    @property
    def breaks(self) -> bool:
        """Whether tensor data may end the loop before its last step."""
        return self._goes_on is not True

    @property
    def gives_shapes(self) -> bool:
        """Whether a variable that is a number before the loop has axes behind a step: `total = 0`."""
        return self._kinds.give_shapes

    @property
    def names(self) -> Sequence[str]:
        """Of its variables."""
        return self._names

    @property
    def test(self) -> Callable[..., Any]:
        """What a `while` asks before each step."""
        return self._test if self._test is not None else lambda *_: True

    @property
    def appends(self) -> bool:
        """Whether the body appends to a list."""
        return bool(self._appended)

    @property
    def is_resized(self) -> bool:
        """Whether a step may leave a tensor of another size than it was given."""
        return self._kinds.are_resized

    def packing(self) -> Packing | None:
        """What packs the lists that it fills with elements of several sizes, if that was asked for.

        :raises SizesDifferError: a loop in it fills one
        """
        return packing_of(self._appended, self._elements, self._captured.own_symbols)

    def require_steps_to_differ(self) -> None:
        """Refuses a loop in which sizes differ before the first step alone.

        :raises UnstableError: what each step leaves has one size
        """
        self._kinds.require_steps_to_differ(self._captured.own_symbols)

    def _run_changes_kinds(self, *, again: bool = False) -> bool:
        """Runs the body once, its changed variables as tensors, and takes in what it makes of them.

        :param again: it is the step behind the one that was run before
        """
        begin = moment()
        self._captured = self._captured.of_the_next_step() if again else Captured()
        values, held, made = self._inputs()
        if again:
            for place, (_, tensor) in self._made.items():
                aliases_now().begin_again(tensor, self._ends[place])
        for tensor in made:
            self._captured.made[id(tensor)] = tensor
        for kind, tensor in self._made.values():
            self._captured.own_symbols |= symbols_of(tensor.shape[axis] for axis in kind.resized)
            self._captured.outer_symbols |= symbols_of(kind.shape)
        for slot, content in builtins.zip(self._slots, held, strict=True):
            slot.put(content)
        try:
            if self._test is not None:
                record(lambda: self._test(*values), self._captured)  # type: ignore[misc]
            take_missed()
            self._goes_on, after = record(lambda: self._one_step(values), self._captured)
        except IndexError as error:  # in a step behind the first the list may have elements
            missed = take_missed()
            if not missed:
                raise
            raise ReadsOwnListError(refusal(f"line {self._line}"), missed, 1) from error
        finally:
            changes = self._snapshot.changes()
            self._snapshot.restore(changes)
        changes_kinds = self._take_in(values, held, after, changes)
        self._require_appends_alone(begin)
        return changes_kinds

    def _require_appends_alone(self, begin: int) -> None:
        """Refuses a step that reads a list which it appends to: what steps before it appended is not there to be read.

        :param begin: the moment before the step
        """
        owners = {id(slot.owner): slot.owner for slot in self._appended if isinstance(slot.owner, Grown)}
        read = [owner for owner in owners.values() if owner.was_read_since(begin)]
        if read:
            raise ReadsOwnListError(refusal(f"line {self._line}"), read)

    def _one_step(self, values: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        items = record(self._first, Captured())
        versions = versions_of(items)
        with as_before(self._names, values, self._snapshot) as kept:
            goes_on, after = self._body(*items, *values)
            after = kept(after)
        if versions_of(items) != versions:
            raise RewriteError(
                f"line {self._line}: a step of a loop over tensors changes the row that it is at in place, which is a "
                "part of what the loop goes through: go through the numbers of the rows and write `y[i] = …`"
            )
        return goes_on, after

    def _inputs(self) -> tuple[tuple[Any, ...], list[Any], list[torch.Tensor]]:
        """The variables and the contents of the slots that a run starts with, and the tensors made for it."""
        if self._spec is None:
            return self._values, [], []
        for place, kind in self._kinds.of.items():
            if place not in self._made or self._made[place][0] != kind:
                self._made[place] = (kind, record(kind.make, Captured()))
                aliases_now().link(self._made[place][1], [self._start[place]])
        made = {place: tensor for place, (_, tensor) in self._made.items()}
        leaves = [made.get(place, start) for place, start in enumerate(self._start)]
        values, held = closed(pytree.tree_unflatten(leaves, self._spec))
        return tuple(values), held, [*made.values()]

    def _take_in(
        self, values: tuple[Any, ...], held: list[Any], after: tuple[Any, ...], changes: list[tuple[Slot, Any]]
    ) -> bool:
        self._after = after
        require_apart(self._names, values, after, [slot for slot, _ in changes], self._line)
        is_new = self._note_slots(changes)
        now = {slot.identity(): new for slot, new in changes}
        later = [slot.as_value(now.get(slot.identity(), self._snapshot.before(slot))) for slot in self._slots]
        earlier = [slot.as_value(self._snapshot.before(slot)) for slot in self._slots]
        starts = tuple(undefined_like(s, e) for s, e in builtins.zip(self._values, after, strict=True))
        ends = self._without_inner(starts, after)
        before = (starts, [undefined_like(s, e) for s, e in builtins.zip(earlier, later, strict=True)])
        self._opening = self._opening or Opening(before, (ends, later))
        self._start, self._spec = pytree.tree_flatten(self._opening.opened(before), is_leaf=is_leaf)
        behind = self._opening.opened((ends, later))
        leaves, spec = pytree.tree_flatten(behind, is_leaf=is_leaf)
        if spec != self._spec:
            text = self._of_another_structure(self._opening.opened(before), behind)
            raise unstable_of(starts, ends)(text, self._values, after)
        starts_and_inputs = self._inputs_of(values, held)
        changed = [self._widen(k, end, starts_and_inputs) for k, end in enumerate(leaves)]
        self._ends = leaves
        appended = [now[slot.identity()] for slot in self._appended]
        for leaf in [*leaves, *pytree.tree_leaves(appended)]:  # a tensor from outside that no function has seen
            if isinstance(leaf, torch.Tensor):
                require_no_attributes(leaf)
                self._captured.add(leaf)
        self._captured.hand_on([*leaves, *pytree.tree_leaves(appended)])
        self._written = self._captured.mark_written()
        self._elements = appended
        self._link_step(appended)
        return is_new or any(changed)

    def _link_step(self, appended: list[Any]) -> None:
        """The next step may find in a variable what this one left there, and a list keeps what it was given."""
        aliases = aliases_now()
        for place, (_, tensor) in self._made.items():
            if place < len(self._ends):
                aliases.link(tensor, [self._ends[place]])
        for k, element in enumerate(appended):
            for j, leaf in enumerate(pytree.tree_leaves(element)):
                if isinstance(leaf, torch.Tensor):
                    rows = self._rows.setdefault((k, j), record(lambda: torch.empty(1), Captured()))
                    aliases.link(rows, [leaf])

    def _inputs_of(self, values: tuple[Any, ...], held: list[Any]) -> list[Any]:
        """The leaves that the run started with, at the places that the spec has now."""
        return (
            [] if len(held) != len(self._slots) else pytree.tree_leaves(self._opened((values, held)), is_leaf=is_leaf)
        )

    def _opened(self, tree: object) -> Any:
        return tree if self._opening is None else self._opening.opened(tree)

    def _widen(self, place: int, end: object, inputs: list[Any]) -> bool:
        given = inputs[place] if place < len(inputs) else self._start[place]
        if place in self._kinds.of and end is given:
            return False  # a tensor that stands for the variable comes out as it went in
        own = self._captured.own_symbols
        return self._kinds.widen(place, self._start[place], end, lambda: self._name_of(place), own)

    def _of_another_structure(self, before: tuple[Any, Any], after: tuple[Any, Any]) -> str:
        names = [*(f"`{name}`" for name in self._names), *(f"`{slot.describe()}`" for slot in self._slots)]
        pairs = builtins.zip(names, [*before[0], *before[1]], [*after[0], *after[1]], strict=True)
        found = [part for pair in pairs if (part := where_they_differ(*pair)) is not None]
        told = [f"{name} from {structure_of(a)} to {structure_of(b)}" for name, a, b in found]
        return (
            f"line {self._line}: a step of a loop over tensors changes {', and '.join(told)}, and a graph carries "
            "values of one structure; have as many tensors before the loop as behind a step, or append to a list that "
            "the function makes"
        )

    def _name_of(self, place: int) -> str:
        assert self._spec is not None
        numbered = pytree.tree_unflatten([*range(len(self._start))], self._spec)
        for name, value in builtins.zip(self._names, numbered[0], strict=True):
            if place in pytree.tree_leaves(value):
                return f"`{name}`"
        for slot, value in builtins.zip(self._slots, numbered[1], strict=True):
            if place in pytree.tree_leaves(value):
                return f"`{slot.describe()}`"
        return "a variable"

    def _note_slots(self, changes: list[tuple[Slot, Any]]) -> bool:
        known = len(self._slots), [slot.identity() for slot in self._appended]
        self._appended = [slot for slot, _ in changes if self._is_appended(slot)]  # by the last run, as by every step
        for slot, _ in changes:
            if not self._is_appended(slot) and slot.identity() not in {other.identity() for other in self._slots}:
                self._slots.append(slot)
        for slot in self._appended:
            if not isinstance(slot.owner, Grown):
                raise made_outside(slot.owner, self._line, "a loop over tensors")
        remade, likeness = remade_in(changes, self._snapshot.before)
        if remade:
            raise ReadsOwnListError(refusal(f"line {self._line}"), remade, is_whole=True, likeness=likeness)
        return known != (len(self._slots), [slot.identity() for slot in self._appended])

    def _is_appended(self, slot: Slot) -> bool:
        return slot.kind == "element" and self._snapshot.before(slot) is MISSING

    @staticmethod
    def _without_inner(starts: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
        """The variables without those that the body alone uses and that no graph can carry."""
        return tuple(UNDEFINED if is_inner(*p) else none_like(*p) for p in builtins.zip(starts, after, strict=True))

    # -------------------------------------------------------------------------------------- scan

    def scan(self, rows: Rows, *, has_steps: bool = False) -> tuple[Any, ...]:
        """The loop over rows that were analysed; `has_steps` if there are rows at all sizes of the trace."""
        self._require_known_counts()
        leaves = pytree.tree_leaves(rows.tensors)
        initial = self._initial()
        made_by_a_step: list[pytree.TreeSpec] = []
        numbers: list[bool] = []

        def combine(*operands: torch.Tensor) -> list[torch.Tensor]:
            carried = list(operands[: len(initial)])
            items = [*operands[len(initial) : len(initial) + len(leaves)]]
            if self._captured.writes:  # what a row is copied into must not be taken for the row
                items = [item.clone() for item in items]
            reads = self._tensors_among(operands[len(initial) + len(leaves) :])
            _, state, appended = self._step([rows.item(list(items))], carried, reads)
            flat, spec = pytree.tree_flatten(appended)
            made_by_a_step[:] = [spec]
            for leaf in flat:
                require_one_kind(leaf, "be an element of a list that a loop over tensors fills")
            numbers[:] = [is_of_numbers(leaf) for leaf in flat]
            return [copied_for_a_step(t) for t in [*state, *(number_tensor(leaf) for leaf in flat)]]

        with aliases_now().internal():
            outputs = list(torch.ops.higher_order.scan(combine, initial, leaves, tuple(self._reads())))
        values = self._finish(outputs[: len(initial)], has_steps)
        collected = outputs[len(initial) :]
        for output, stand_in in builtins.zip(collected, self._rows.values(), strict=False):
            aliases_now().link(output, [stand_in])
        are_of_a_step = have_sizes_of_a_step(self._elements, self._captured.own_symbols)
        for output, is_of_a_step in builtins.zip(collected, are_of_a_step, strict=True):
            if is_of_a_step:
                mark_sizes(output, line_now())
        marked = [number_rows(r) if n else r for r, n in builtins.zip(collected, numbers, strict=True)]
        self._fill_lists(pytree.tree_unflatten(marked, made_by_a_step[0]))
        return values

    def _require_known_counts(self) -> None:
        """Asks for the rows of a list that a loop within the loop fills, and whose elements data leaves out in each
        step anew: a scan makes as many in each step."""
        own, parts = self._captured.own_symbols, [p.value if isinstance(p, Maybe) else p for p in self._elements]
        pairs = builtins.zip(self._appended, parts, strict=True)
        found = [(s.owner, p) for s, p in pairs if isinstance(p, Collected) and free_unbacked_symbols(p.length) & own]
        if found:
            text = (
                f"line {self._line}: a loop within a loop over tensors fills a list, and leaves out elements where "
                "tensor data or a number of the loops says so, so that each step has another number of them; compute "
                "all of them and what says which count, as with torch.where, or add them up instead"
            )
            likeness = [record(lambda: Likeness(part), Captured()) for _, part in found]  # noqa: B023
            raise ReadsOwnListError(text, [owner for owner, _ in found], is_whole=True, likeness=likeness)

    def _fill_lists(self, collected: list[Any]) -> None:
        """Appends the rows of each list, those of several elements of a step in turn."""
        by_list: dict[int, tuple[Slot, list[Any]]] = {}
        for slot, rows in builtins.zip(self._appended, collected, strict=True):
            by_list.setdefault(id(slot.owner), (slot, []))[1].append(rows)
        for slot, parts in by_list.values():
            list.append(slot.owner, linked(in_turn(parts), parts))

    # -------------------------------------------------------------------------------------- while_loop

    def while_loop(self, goes_on: object = True, *, has_steps: bool = False) -> tuple[Any, ...]:
        """The loop as `while` with its test; `has_steps` if it holds before the loop at all sizes of the trace."""
        if not self._appended:
            return self._finish(self._run_while(goes_on, []), has_steps)
        lists = GrowingLists(self._appended, self._elements, self._captured.own_symbols, self._line)
        outputs = self._run_while(goes_on, [], lists)
        count = len(outputs) - lists.count
        values = self._finish(outputs[:count], has_steps)
        lists.fill(outputs[count:], [*self._rows.values()])
        return values

    def count(self, goes_on: object = True) -> torch.Tensor:
        """How many steps the loop as `while` has: it runs, and nothing that it does stays."""
        return self._run_while(goes_on, [torch.zeros((), dtype=torch.int64)])[0]

    def _run_while(
        self, goes_on: object, counter: list[torch.Tensor], lists: GrowingLists | None = None
    ) -> list[torch.Tensor]:
        """What the loop carries behind its last step, before that the number of its steps if there is a counter, and
        behind it the rows of the lists that it fills."""
        has_flag = self._goes_on is not True or goes_on is not True
        flag = [as_flag(goes_on)] if has_flag else []
        own = len(flag) + len(counter)
        with aliases_now().internal():
            rows = lists.start() if lists is not None else []
        initial = [*flag, *counter, *self._initial(), *rows]
        behind = len(initial) - len(rows)

        def again(*operands: torch.Tensor) -> torch.Tensor:
            carried, reads = list(operands[: len(initial)]), self._tensors_among(operands[len(initial) :])
            decision = self._tested(carried[own:behind], reads)
            return torch.logical_and(carried[0], decision) if flag else decision

        def step(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            carried, reads = list(operands[: len(initial)]), self._tensors_among(operands[len(initial) :])
            new_flag, state, appended = self._step([], carried[own:behind], reads)
            grown = lists.grown(carried[behind:], appended) if lists is not None else []
            counted = [number + 1 for number in carried[len(flag) : own]]
            made = [copied_for_a_step(t) for t in [*([as_flag(new_flag)] if flag else []), *counted, *state]]
            return (*made[:own], *self._handed_on(made[own:], carried[own:behind]), *grown)

        with aliases_now().internal():
            outputs = torch.ops.higher_order.while_loop(again, step, tuple(initial), tuple(self._reads()))
        return list(outputs)[len(flag) :]

    def _tested(self, carried: list[torch.Tensor], reads: list[torch.Tensor]) -> torch.Tensor:
        places = carried[len(self._kinds.of) :]
        with substituted([*self._read_tensors(), *self._written_tensors()], [*reads, *places]):
            values = self._with(self._received(carried))
            try:
                return as_flag(truth_of(self.test(*values)))
            finally:
                self._snapshot.restore(self._snapshot.changes())

    # -------------------------------------------------------------------------------------- one step

    def _initial(self) -> list[torch.Tensor]:
        with aliases_now().internal():
            starts = [kind.start(self._start[place]) for place, kind in self._sorted_kinds()]
            return [
                copied_for_a_step(tensor.detach()) for tensor in [*self._received(starts), *self._written_tensors()]
            ]

    def _sorted_kinds(self) -> list[tuple[int, Kind]]:
        """The kinds of what the loop carries, in its order."""
        return sorted(self._kinds.of.items())

    def _received(self, carried: list[torch.Tensor]) -> list[torch.Tensor]:
        """The variables among what the loop carries, as code sees them."""
        return [kind.received(t) for (_, kind), t in builtins.zip(self._sorted_kinds(), carried, strict=False)]

    def _handed_on(self, made: list[torch.Tensor], carried: list[torch.Tensor]) -> list[torch.Tensor]:
        """What a step leaves, as the loop carries it; `carried` is what it was given."""
        count = len(self._kinds.of)
        pairs = builtins.zip(self._sorted_kinds(), made, carried, strict=False)
        return [*(kind.handed_on(tensor, given) for (_, kind), tensor, given in pairs), *made[count:]]

    def _written_tensors(self) -> list[torch.Tensor]:
        return [t for t, w in builtins.zip(self._captured.tensors, self._written, strict=True) if w]

    def _read_tensors(self) -> list[torch.Tensor]:
        return [t for t, w in builtins.zip(self._captured.tensors, self._written, strict=True) if not w]

    def _reads(self) -> list[Any]:
        """What the operator is given beside what it carries: tensors, and behind them numbers of tensor data."""
        with aliases_now().internal():
            tensors = [t.detach() for t in self._read_tensors()]  # the operators' autograd rules are not for export
            return [*tensors, *self._captured.known_numbers()]

    def _tensors_among(self, reads: Sequence[Any]) -> list[torch.Tensor]:
        """What a body was given of `_reads`, without the numbers, which stay what they are in its variables."""
        return list(reads[: len(self._read_tensors())])

    def _with(self, carried: list[torch.Tensor]) -> tuple[Any, ...]:
        made = iter(carried)
        kinds = self._kinds.of
        leaves = [kinds[k].standing_for(next(made)) if k in kinds else start for k, start in enumerate(self._start)]
        assert self._spec is not None
        values, held = closed(pytree.tree_unflatten(leaves, self._spec))
        for slot, content in builtins.zip(self._slots, held, strict=True):
            slot.put(content)
        return tuple(values)

    def _step(
        self, items: list[Any], carried: list[torch.Tensor], reads: list[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor], list[Any]]:
        count = len(self._kinds.of)
        places = [tensor.clone() for tensor in carried[count:]]
        with substituted([*self._read_tensors(), *self._written_tensors()], [*reads, *places]) as replace:
            own = self._received(carried)
            if self._captured.writes:
                own = [a.clone() if a is b else a for a, b in builtins.zip(own, carried, strict=False)]
            goes_on, after = self._body(*items, *self._with(own))
            changes = self._snapshot.changes()
            self._snapshot.restore(changes)
            now = {slot.identity(): new for slot, new in changes}
            held = [slot.as_value(now.get(slot.identity(), self._snapshot.before(slot))) for slot in self._slots]
            appended = [replace(now[slot.identity()]) for slot in self._appended]
            state = self._carried_of(replace((after, held)))
        return goes_on, [*state, *places], appended

    def _carried_of(self, tree: tuple[tuple[Any, ...], list[Any]]) -> list[torch.Tensor]:
        after, held = tree
        starts = tuple(undefined_like(s, e) for s, e in builtins.zip(self._values, after, strict=True))
        leaves = pytree.tree_leaves(self._opened((self._without_inner(starts, after), held)), is_leaf=is_leaf)
        return [kind.start(leaves[place]) for place, kind in self._sorted_kinds()]

    def _finish(self, outputs: list[torch.Tensor], has_steps: bool) -> tuple[Any, ...]:
        note_put(self._slots, self._snapshot)
        if has_steps:
            self._kinds.of = {place: kind.behind_a_step() for place, kind in self._kinds.of.items()}
        contents = outputs[len(self._kinds.of) :]
        aliases = aliases_now()
        with aliases.internal():
            outputs = self._received(outputs)
        values = self._with(outputs)
        with aliases.internal():
            for tensor, content in builtins.zip(self._written_tensors(), contents, strict=True):
                tensor.copy_(content)
        for output, (place, _) in builtins.zip(outputs, self._sorted_kinds(), strict=True):
            start, end = self._start[place], self._ends[place]
            is_stale_before = not has_steps and aliases.is_stale(start, self._stale_before)
            stale_from = [end, start] if is_stale_before else [end]
            aliases.link(output, [self._made[place][1], end], stale_from=stale_from)
        note_containers(self._replaced(values), self._line)
        return values

    def _replaced(self, values: tuple[Any, ...]) -> Iterator[tuple[str, Any, Any]]:
        """The containers that a variable was before the loop, or was given by a step, and that have another name."""
        for name, start, last, value in builtins.zip(self._names, self._values, self._after, values, strict=True):
            found = [*replaced(start, value, lambda item: True), *replaced(last, value, self._snapshot.knows)]
            for path, older in found:
                new = at(value, path)
                if new is not None and older is not new and has_another_name(older, self._names, self._snapshot):
                    yield f"`{name}`", older, new
        for held in (self._values, self._after):
            yield from named_together(self._names, held, values)
