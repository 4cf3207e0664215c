"""Python objects that a branch changes: `self.x = t`, `d["k"] = t`, `items.append(t)`, a cache that is updated.

A body that becomes a graph runs more than once at trace time and must not leave its Python effects behind; what it
changed must come out of the graph instead. A `Snapshot` of the mutable objects that a closure can reach tells what a
run changed, puts it back, and applies the change with other values.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from exportguard.declaration.interrupts import DeferredInterrupts
from exportguard.devices import same_random_numbers
from exportguard.module_tree import named_buffers, named_modules, named_parameters
from exportguard.rewrites.contents import (
    ARRAY,
    DICTIONARIES,
    ENTRY,
    OF_TENSOR,
    ORDER,
    PROGRESS,
    RANDOM,
    Content,
    Dictionaries,
    Order,
    changed,
    content_of,
    content_of_cell,
    differs,
    held_by,
    is_reordered,
    slots_of,
)
from exportguard.rewrites.places import line_now, variable_of
from exportguard.rewrites.reach import Reach
from exportguard.rewrites.written import Before, UndoneWrites, has_memory
from exportguard.source.errors import RewriteError

MISSING = object()

#: What is said of containers that hold nothing.
_NEVER_FILLED: dict[type, Content] = {kind: Content(ENTRY, {}) for kind in DICTIONARIES} | {set: Content("member", {})}

_WITH_ATTRIBUTES = frozenset({kind for kind in _NEVER_FILLED if kind.__dictoffset__})
_CODE = (type, types.FunctionType)
_PLAIN = frozenset({bool, bytes, complex, float, int, str, type(None)})  # they hold nothing


class _Undefined:
    """Stands for a local variable that has no value yet."""

    def __repr__(self) -> str:
        return "<undefined>"


UNDEFINED = _Undefined()


def _class_of(value: object) -> str:
    """The name of the class that the model knows an object by: a list of which a loop knows more is a list."""
    return next(kind.__name__ for kind in type(value).__mro__ if not kind.__module__.startswith("exportguard."))


@dataclass(frozen=True)
class Slot:
    """A place that holds a value: an attribute, an entry of a dict, an element of a list."""

    owner: Any
    key: Hashable
    kind: str  # of `contents`: "attribute", "entry", "element", "member", "global", "variable" of a function around it

    def identity(self) -> tuple[int, str, Hashable]:
        return id(self.owner), self.kind, self.key

    def describe(self) -> str:
        if self.kind in ("global", "variable"):
            return f"the {self.kind} {self.key}" if self.kind == "global" else "an enclosing variable"
        if self.kind == ORDER:
            return f"the order of the keys of a {type(self.owner).__name__}"
        name = self.owner.__name__ if isinstance(self.owner, type) else _class_of(self.owner)
        if self.kind in ("member", ARRAY, RANDOM):
            return f"a {name}"
        return f"{name}.{self.key}" if "attribute" in self.kind else f"{variable_of(self.owner) or name}[{self.key!r}]"

    def as_value(self, held: object) -> Any:
        """What a place holds, where a variable without a value is undefined, as a local one is."""
        return UNDEFINED if held is MISSING and self.kind == "variable" else held

    def held(self) -> Any:
        """What the place holds now."""
        content = content_of(self.owner)
        return MISSING if content is None else self.found_in(content)

    def found_in(self, content: Content) -> Any:
        """What the place holds by what its owner held at some time."""
        return Order(content.values) if self.kind == ORDER else content.values.get(self.key, MISSING)

    def put(self, value: Any) -> None:
        if self.kind in ("attribute", "class attribute", OF_TENSOR):
            _put_attribute(self.owner, self.key, value)
        elif self.kind == ENTRY:
            _put_entry(self.owner, self.key, value)
        elif self.kind == ORDER:
            _put_order(self.owner, value)
        elif self.kind == "global":
            _put_entry(self.owner.entries, self.key, value)
        elif self.kind == "variable":
            _put_variable(self.owner, value)
        elif self.kind == "member":
            self.owner.discard(self.key) if value is MISSING else self.owner.add(value)
        elif self.kind == RANDOM:
            value.put_into(self.owner)
        elif self.kind == ARRAY:
            self.owner[:] = value.content
        elif self.kind == "element":
            self._put_element(value)

    def _put_element(self, value: object) -> None:
        place: Any = self.key
        if isinstance(self.owner, collections.deque):
            held = [*self.owner]
            held[place:] = [] if value is MISSING else [value, *held[place + 1 :]]
            self.owner.clear()
            self.owner.extend(held)
        elif value is MISSING:
            list.__delitem__(self.owner, slice(place, None))
        elif place == list.__len__(self.owner):  # a list that a loop fills does not tell its length
            list.append(self.owner, value)
        else:
            list.__setitem__(self.owner, place, value)


def _put_variable(cell: types.CellType, value: object) -> None:
    if value is MISSING or value is UNDEFINED:
        if content_of_cell(cell).values:
            del cell.cell_contents
    else:
        cell.cell_contents = value


def _put_entry(entries: dict[Any, Any], key: object, value: object) -> None:
    if value is MISSING:
        entries.pop(key, None)
    else:
        entries[key] = value


def _put_order(entries: dict[Any, Any], order: Order) -> None:
    if Order(entries) == order:
        return
    held = [(key, entries.pop(key)) for key in order.keys if key in entries]
    others = [*entries.items()]
    entries.clear()
    entries.update([*held, *others])


def _put_attribute(owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, type):
        delattr(owner, key) if value is MISSING else setattr(owner, key, value)
    elif key not in slots_of(owner):
        _put_entry(owner.__dict__, key, value)
    elif value is not MISSING:
        object.__setattr__(owner, key, value)
    else:
        object.__delattr__(owner, key)


class Snapshot:
    """The mutable objects within reach of some roots, with what they hold now; `tensors` are those among them.

    :param roots: objects
    :param functions: what their code leads to is within reach as well, and that an iterator goes on is an error
    """

    def __init__(self, roots: Iterable[Any] = (), functions: Sequence[Callable[..., Any]] = ()) -> None:
        self._owners: dict[int, tuple[Any, Content]] = {}
        # Of what a model holds, most are dictionaries of hooks without an entry: whether one got any is soon asked.
        self._empty: list[Any] = []
        self._filled: list[tuple[Any, Content]] = []
        self._dictionaries = Dictionaries()
        self._others: list[tuple[Any, Content]] = []
        self.tensors: list[torch.Tensor] = []
        self._reach = Reach(functions) if functions else None
        self._take_in([*roots, *(self._reach.more() if self._reach is not None else ())])

    def renewed(self, changes: Sequence[tuple[Slot, Any]]) -> Snapshot:
        """What is within reach holds now, if nothing but these places changed; for a snapshot of roots alone.

        What only they led to is within reach still.
        """
        changed = {id(slot.owner): slot.owner for slot, _ in changes}
        other = Snapshot()
        other._owners = {key: known for key, known in self._owners.items() if key not in changed}
        other._empty = [owner for owner in self._empty if id(owner) not in changed]
        other._filled = [known for known in self._filled if id(known[0]) not in changed]
        other._others = [known for known in self._others if id(known[0]) not in changed]
        other._dictionaries = self._dictionaries.without(changed)
        other.tensors = [*self.tensors]
        other._take_in([*changed.values()])
        return other

    def _take_in(self, pending: list[Any]) -> None:
        """Takes in these objects and all that they lead to."""
        owners, empty = self._owners, self._empty
        is_of_roots = self._reach is None
        while pending:
            while pending:
                owner = pending.pop()
                kind = type(owner)
                if kind in _PLAIN or id(owner) in owners:
                    continue
                if is_of_roots and kind in _NEVER_FILLED and not owner:
                    owners[id(owner)] = (owner, _NEVER_FILLED[kind])
                    empty.append(owner)
                    if kind in _WITH_ATTRIBUTES:
                        pending.append(vars(owner))
                else:
                    pending += self._enter(owner)
            pending = self._reach.more() if self._reach is not None else []
        self._dictionaries.note()

    def _enter(self, owner: object) -> Iterable[Any]:
        """Takes in an object; returns what it leads to."""
        if isinstance(owner, torch.Tensor):
            self.tensors.append(owner)
        if self._reach is not None:
            self._look(owner)
        elif isinstance(owner, _CODE):
            return ()
        content = content_of(owner)
        if content is None:
            return held_by(owner)
        known = self._owners[id(owner)] = (owner, content)
        self._filled.append(known)
        if not self._dictionaries.take(owner):
            self._others.append(known)
        inner = () if content.kind in (PROGRESS, ARRAY, RANDOM) else content.values.values()
        return [*inner, *held_by(owner)]

    def _look(self, owner: object) -> None:
        assert self._reach is not None
        if isinstance(owner, types.FunctionType | types.MethodType | torch.SymInt):
            self._reach.value(owner)
        elif not isinstance(owner, type):
            self._reach.kind(type(owner))

    def changes(self, moved: Container[int] = ()) -> list[tuple[Slot, Any]]:
        """Slots that hold another object than at the time of the snapshot, with that object, in a stable order.

        :param moved: iterators, by their ids, that may have gone on
        :raises RewriteError: code took elements from another iterator, which cannot be undone
        """
        found: list[tuple[Slot, Any]] = []
        for owner, before in changed(self._to_compare()):
            if before.kind != PROGRESS or id(owner) not in moved:
                found += self._changed(owner, before, content_of(owner) or Content(before.kind, {}))
        return found

    def _to_compare(self) -> Iterable[tuple[Any, Content]]:
        """What may hold something else than before."""
        if any(self._empty):
            return self._owners.values()
        return self._others if self._dictionaries.are_as_before() else self._filled

    def _changed(self, owner: object, before: Content, now: Content) -> Iterator[tuple[Slot, Any]]:
        for key in (*before.values, *(key for key in now.values if key not in before.values)):
            value = now.values.get(key, MISSING)
            if not differs(before.kind, before.values.get(key, MISSING), value):
                continue
            if before.kind == OF_TENSOR and self._reach is not None:
                _put_attribute(owner, key, before.values.get(key, MISSING))
                raise of_a_tensor(key)
            if before.kind != PROGRESS:
                yield Slot(owner, key, before.kind), value
            elif self._reach is not None:
                raise _of_an_iterator(owner)
        if is_reordered(before, now):
            yield Slot(owner, None, ORDER), Order(now.values)

    def numbers(self) -> list[torch.SymInt]:
        """The symbolic numbers that the functions find in their variables."""
        return [] if self._reach is None else self._reach.numbers

    def holds_iterators(self) -> bool:
        """Whether one is within reach."""
        return any(content.kind == PROGRESS for _, content in self._owners.values())

    def knows(self, owner: object) -> bool:
        """Whether an object was within reach when the snapshot was taken."""
        return id(owner) in self._owners

    def holds(self, item: object) -> bool:
        """Whether something within reach, other than a variable of a function, holds an object now."""
        owners = (owner for owner, _ in self._owners.values() if not isinstance(owner, types.CellType))
        contents = (content for owner in owners if (content := content_of(owner)) is not None)
        return any(value is item for content in contents for value in content.values.values())

    def before(self, slot: Slot) -> Any:
        return slot.found_in(self._owners[id(slot.owner)][1])

    def restore(self, changes: list[tuple[Slot, Any]]) -> None:
        """Puts back what the changed objects held."""
        refilled: set[int] = set()
        slots = [slot for slot, _ in reversed(changes)]
        for slot in [*(s for s in slots if s.kind != ORDER), *(s for s in slots if s.kind == ORDER)]:
            if slot.kind != "element":
                slot.put(self.before(slot))
            elif id(slot.owner) not in refilled:
                refilled.add(id(slot.owner))
                self._refill(slot.owner)

    def _refill(self, owner: Any) -> None:
        held = [*self._owners[id(owner)][1].values.values()]
        if isinstance(owner, list):
            list.__setitem__(owner, slice(None), held)
        else:
            owner.clear()
            owner.extend(held)


#: The modules of which snapshots were taken in this thread, within `shared_snapshots`.
_SHARED: ContextVar[dict[int, tuple[torch.nn.Module, Snapshot]] | None] = ContextVar(
    "exportguard.snapshots", default=None
)


@contextmanager
def shared_snapshots() -> Iterator[None]:
    """While the block runs, a snapshot of a module serves as long as the module holds what it did."""
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def snapshot_of(module: torch.nn.Module) -> Snapshot:
    """What a module and all in it hold now."""
    shared = _SHARED.get()
    known = None if shared is None else shared.get(id(module))
    changes = [] if known is None else known[1].changes()
    if known is not None and not changes:
        return known[1]
    snapshot = Snapshot(module.modules()) if known is None else known[1].renewed(changes)
    if shared is not None:
        shared[id(module)] = (module, snapshot)
    return snapshot


class KeptModule:
    """A module that is called again and again; after each call it holds what it held before the first."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.changed: dict[str, None] = {}  # what calls left otherwise than before, but for buffers, in words
        self._writes = UndoneWrites()

    @functools.cached_property
    def _before(self) -> Snapshot:
        return snapshot_of(self.module)

    @functools.cached_property
    def _weights(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Those that have a version."""
        return [(name, weight) for name, weight in named_parameters(self.module) if not weight.is_inference()]

    @functools.cached_property
    def _states(self) -> list[Before]:
        """What buffers and plain tensors hold, which a call may write into or not, as its sizes and data say."""
        weights = {weight.untyped_storage()._cdata for _, weight in named_parameters(self.module) if has_memory(weight)}
        buffers = (buffer for _, buffer in named_buffers(self.module))
        held = (tensor for tensor in (*buffers, *self._before.tensors) if has_memory(tensor))
        states = {tensor.untyped_storage()._cdata: tensor for tensor in held}
        return [Before.of(tensor) for storage, tensor in states.items() if storage not in weights]

    @functools.cached_property
    def _state_storages(self) -> frozenset[int]:
        return frozenset(before.tensor.untyped_storage()._cdata for before in self._states)

    @contextmanager
    def call(self, *, has_data: bool = True) -> Iterator[torch.nn.Module]:
        """Runs a block that calls the module; the module and the random numbers are then as before.

        A call with fake tensors has no data, and writes into none.

        :raises RewriteError: it wrote into a weight, where those before it wrote into nothing
        """
        states, before = self._states, self._before
        versions = [weight._version for _, weight in self._weights]
        try:
            with same_random_numbers(), self._writes.call() if has_data else nullcontext():
                yield self.module
        finally:
            with DeferredInterrupts():
                changes = before.changes()
                others = (slot for slot, _ in changes if slot.kind != ORDER and not self._is_of_buffers(slot))
                self.changed.update((slot.describe(), None) for slot in others)
                before.restore(changes)
                _put_back(states)
        pairs = zip(self._weights, versions, strict=True)
        written = next((name for (name, weight), version in pairs if weight._version != version), None)
        if written is not None:
            raise RewriteError(
                f"the model writes into its weight {written} where other sizes or other data do not make it: what "
                "changes while it runs has to be a buffer (register_buffer)"
            )

    def put_buffers_back(self) -> None:
        """Within a block of `call`: buffers are what they were before it, and all else what the call left there."""
        self._before.restore([change for change in self._before.changes() if self._is_of_buffers(change[0])])
        buffers = {buffer.untyped_storage()._cdata for _, buffer in named_buffers(self.module) if has_memory(buffer)}
        _put_back([before for before in self._states if before.tensor.untyped_storage()._cdata in buffers])

    def _is_of_buffers(self, slot: Slot) -> bool:
        return any(slot.owner is module._buffers for _, module in named_modules(self.module))

    def has_written(self, tensor: torch.Tensor) -> bool:
        """Whether a call was seen to write into a tensor that is older than it."""
        return has_memory(tensor) and self._writes.has_written(tensor)

    def left(self, value: Any) -> Any:
        """What an output, an input or a weight holds within the block, also behind it; see `UndoneWrites.left`."""
        is_state = isinstance(value, torch.Tensor) and has_memory(value)
        if is_state and value.untyped_storage()._cdata in self._state_storages:
            return value.detach().clone()
        return self._writes.left(value)


def _put_back(states: Iterable[Before]) -> None:
    for state in states:
        state.restore()


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data, but belongs to a trace."""
    return hasattr(tensor, "fake_mode")


def of_a_tensor(name: Hashable) -> RewriteError:
    """An attribute of a tensor, which is lost where a graph hands the tensor on."""
    return RewriteError(
        f"{line_now()}: a branch of a test on tensor data, or a step of a loop, sets the attribute {name} of a tensor "
        "or hands on a tensor that has it, which no graph can: keep what it holds in a variable"
    )


def _of_an_iterator(owner: object) -> RewriteError:
    return RewriteError(
        f"{line_now()}: a branch of a test on tensor data, or a step of a loop, takes elements from a "
        f"{type(owner).__name__} that was made outside of it, and Python would only where it runs: call next(…) "
        "outside, or use an index"
    )
