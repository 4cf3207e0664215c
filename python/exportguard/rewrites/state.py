"""Python objects that a branch changes: `self.x = t`, `d["k"] = t`, `items.append(t)`, a cache that is updated.

A body that becomes a graph runs more than once at trace time and must not leave its Python effects behind; what it
changed must come out of the graph instead. A `Snapshot` of the mutable objects that a closure can reach tells what a
run changed, puts it back, and applies the change with other values.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch

MISSING = object()


class _Undefined:
    """Stands for a local variable that has no value yet."""

    def __repr__(self) -> str:
        return "<undefined>"


UNDEFINED = _Undefined()

_OPAQUE = (
    torch.Tensor,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    torch.device,
    torch.dtype,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
)


#: They hold nothing.
_PLAIN = frozenset({bool, bytes, complex, float, int, str, type(None)})


def is_opaque(item: Any) -> bool:
    """Whether the content of an object is its own business: tensors, classes, functions, symbolic numbers."""
    return isinstance(item, _OPAQUE)


@dataclass(frozen=True)
class Slot:
    """A place that holds a value: an attribute, an entry of a dict, an element of a list."""

    owner: Any
    key: Hashable
    kind: str  # "attribute", "entry", "element", "global", or "variable" of an enclosing function

    def identity(self) -> tuple[int, str, Hashable]:
        return id(self.owner), self.kind, self.key

    def describe(self) -> str:
        if self.kind in ("global", "variable"):
            return f"the {self.kind} {self.key}" if self.kind == "global" else "an enclosing variable"
        name = type(self.owner).__name__
        return f"{name}.{self.key}" if self.kind == "attribute" else f"{name}[{self.key!r}]"

    def as_value(self, held: Any) -> Any:
        """What a place holds, where a variable without a value is undefined, as a local one is."""
        return UNDEFINED if held is MISSING and self.kind == "variable" else held

    def put(self, value: Any) -> None:
        if self.kind == "attribute":
            _put_entry(self.owner.__dict__, self.key, value)
        elif self.kind == "entry":
            _put_entry(self.owner, self.key, value)
        elif self.kind == "global":
            _put_entry(self.owner.entries, self.key, value)
        elif self.kind == "variable":
            _put_variable(self.owner, value)
        else:
            self._put_element(value)

    def _put_element(self, value: Any) -> None:
        place: Any = self.key
        if value is MISSING:
            list.__delitem__(self.owner, slice(place, None))
        elif place == list.__len__(self.owner):  # a list that a loop fills does not tell its length
            list.append(self.owner, value)
        else:
            list.__setitem__(self.owner, place, value)


@dataclass(frozen=True, eq=False)
class GlobalNames:
    """The globals that functions of one module assign."""

    entries: dict[str, Any]
    names: tuple[str, ...]


def _put_variable(cell: types.CellType, value: Any) -> None:
    if value is MISSING or value is UNDEFINED:
        if _content_of_cell(cell):
            del cell.cell_contents
    else:
        cell.cell_contents = value


def _put_entry(entries: dict[Any, Any], key: Any, value: Any) -> None:
    if value is MISSING:
        entries.pop(key, None)
    else:
        entries[key] = value


@dataclass(frozen=True, slots=True)
class _Content:
    """What an object holds: the kind of its slots, and their values by key."""

    kind: str
    values: Mapping[Any, Any]


def _content(owner: Any) -> _Content | None:
    if isinstance(owner, dict):
        return _Content("entry", dict(owner.items()) if owner else {})
    if isinstance(owner, GlobalNames):
        return _Content("global", {name: owner.entries[name] for name in owner.names if name in owner.entries})
    if isinstance(owner, types.CellType):
        return _Content("variable", _content_of_cell(owner))
    if isinstance(owner, list):
        return _Content("element", dict(enumerate(list.__iter__(owner))))
    attributes = getattr(owner, "__dict__", None)
    if isinstance(owner, _OPAQUE) or not isinstance(attributes, dict):
        return None
    return _Content("attribute", attributes.copy())


def _is_unchanged(before: _Content, now: _Content) -> bool:
    """Whether the same keys hold the same objects, in the same order."""
    one, other = before.values, now.values
    return len(one) == len(other) and all(map(is_, one.values(), other.values())) and all(map(is_, one, other))


def _content_of_cell(cell: types.CellType) -> dict[str, Any]:
    try:
        return {"cell_contents": cell.cell_contents}
    except ValueError:  # a variable that is not assigned yet
        return {}


class Snapshot:
    """The mutable objects within reach of some roots, with what they hold now.

    Submodules are not entered: a branch that assigns to an attribute of a submodule calls it, and that call's own
    effects on tensors are seen as writes.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self._owners: dict[int, tuple[Any, _Content]] = {}
        pending = [(root, True) for root in roots]
        while pending:
            owner, is_root = pending.pop()
            if id(owner) in self._owners or (isinstance(owner, torch.nn.Module) and not is_root):
                continue
            content = None if type(owner) in _PLAIN else _content(owner)
            if content is None:
                pending.extend((item, False) for item in _held_by(owner))
                continue
            self._owners[id(owner)] = (owner, content)
            pending.extend([(value, False) for value in content.values.values()])

    def changes(self) -> list[tuple[Slot, Any]]:
        """Slots that hold another object than at the time of the snapshot, with that object, in a stable order."""
        found: list[tuple[Slot, Any]] = []
        for owner, before in self._owners.values():
            now = _content(owner) or _Content(before.kind, {})
            if _is_unchanged(before, now):
                continue
            for key in (*before.values, *(key for key in now.values if key not in before.values)):
                value = now.values.get(key, MISSING)
                if value is not before.values.get(key, MISSING):
                    found.append((Slot(owner, key, before.kind), value))
        return found

    def knows(self, owner: Any) -> bool:
        """Whether an object was within reach when the snapshot was taken."""
        return id(owner) in self._owners

    def before(self, slot: Slot) -> Any:
        return self._owners[id(slot.owner)][1].values.get(slot.key, MISSING)

    def restore(self, changes: list[tuple[Slot, Any]]) -> None:
        for slot, _ in reversed(changes):
            slot.put(self.before(slot))


def _held_by(item: Any) -> Iterable[Any]:
    """What an object that is not changed itself leads to."""
    if isinstance(item, types.MethodType):
        return (item.__self__,)
    return reachable_roots([item]) if isinstance(item, types.FunctionType) else item if isinstance(item, tuple) else ()


def reachable_roots(functions: Iterable[Callable[..., Any]]) -> list[Any]:
    """What the closures of these functions hold, without the functions of the rewriting itself."""
    roots: list[Any] = []
    seen: set[int] = set()
    pending = list(functions)
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        roots += _assigned_outside(function)
        for cell in getattr(function, "__closure__", None) or ():
            value = next(iter(_content_of_cell(cell).values()), None)
            if isinstance(value, types.FunctionType):
                pending.append(value)
            else:
                roots.append(value)
    return roots


def _assigned_outside(function: Any) -> list[Any]:
    """The variables of enclosing functions and of the module that a function assigns."""
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    stores = list(_stores(code))
    names = dict.fromkeys(i.argval for i in stores if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"))
    free = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    cells = [free[name] for name in dict.fromkeys(i.argval for i in stores) if name in free]
    return [*cells, *([GlobalNames(function.__globals__, tuple(names))] if names else [])]


def _stores(code: types.CodeType) -> Iterator[dis.Instruction]:
    """The assignments of a function and of those defined in it to what may be outside of it."""
    kinds = ("STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF")
    yield from (instruction for instruction in dis.get_instructions(code) if instruction.opname in kinds)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _stores(constant)
