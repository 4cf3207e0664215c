"""What a mutable Python object holds, by the kind of object: containers, attributes, slots, cells, classes, iterators.

All places of an object are of one kind, and each has a key. A kind that `Slot.put` cannot put back, as how far an
iterator has come, is only compared.
"""

from __future__ import annotations

import collections
import copy
import functools
import gc
import itertools
import random
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np
import torch

from exportguard.containers import elements_of, items_of
from exportguard.model_code import is_users_class


class Content(NamedTuple):
    """What an object holds: the kind of its places, and their values by key."""

    kind: str
    values: Mapping[Any, Any]


PROGRESS = "progress"  # of an iterator
OF_TENSOR = "attribute of a tensor"  # which no graph can hand on
ARRAY = "array"  # the numbers of an array of numpy, or the bytes of a bytearray
RANDOM = "random state"  # of a generator of random numbers
ENTRY = "entry"  # of a dict
ORDER = "order"  # in which a dict has its keys

#: A method of a list or a dict that somebody holds, `add = rows.append`, leads to it.
METHODS_IN_C = (types.BuiltinMethodType, types.MethodWrapperType)

_OPAQUE = (
    torch.Tensor,
    types.ModuleType,
    types.BuiltinFunctionType,
    torch.device,
    torch.dtype,
    torch._ops.OperatorBase,  # torch 2.11 to 2.13 keep there what each dispatch key leads to
    torch._ops.OpOverloadPacket,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
)

#: Modules of the standard library whose objects have attributes that a model changes; those of others are their own.
_WITH_ATTRIBUTES = (
    "builtins",
    "types",
    "collections",
    "dataclasses",
    "argparse",
    "contextlib",
    "functools",
    "copy",
    "abc",
    "random",
)
_FOREIGN = frozenset(sys.stdlib_module_names) - frozenset(_WITH_ATTRIBUTES)

_MADE: tuple[Any, ...] = ([], (), range(0), range(1 << 70), {}, set(), "", b"", bytearray(), {}.items(), {}.values())
_ITERATORS: tuple[type, ...] = (
    *(type(iter(made)) for made in _MADE),
    *(type(iter(collections.deque())), type(reversed([])), types.GeneratorType, type(iter(list, []))),
    *(zip, enumerate, map, filter, reversed),
    *(made for made in vars(itertools).values() if isinstance(made, type)),
)
_METHODS = (
    *(types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod, property),
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType),
)


@dataclass(frozen=True, eq=False)
class GlobalNames:
    """The globals that functions of one module assign."""

    entries: dict[str, Any]
    names: tuple[str, ...]


class Bookkeeping:
    """What this package notes while a body runs: no state of the model."""


def is_opaque(item: Any) -> bool:
    """Whether the content of an object is its own business: tensors, classes, functions, symbolic numbers."""
    return is_opaque_class(type(item))


def is_opaque_class(kind: type) -> bool:
    """Whether that of the objects of a class is."""
    is_foreign = _top(kind) in _FOREIGN and not issubclass(kind, _ITERATORS)
    return is_foreign or issubclass(kind, (*_OPAQUE, Bookkeeping, type, types.FunctionType))


def _top(kind: type) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


class Order:
    """The keys of a dict as they follow each other."""

    __slots__ = ("keys",)  # no attributes, which branches would merge one by one

    def __init__(self, keys: Iterable[Any]) -> None:
        self.keys = (*keys,)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Order) and len(self.keys) == len(other.keys) and all(map(_is_key, self.keys, other.keys))
        )

    __hash__ = None  # type: ignore[assignment]  # a key that is a dynamic size has none

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self.keys))}]"


def _is_key(one: object, other: object) -> bool:
    """Whether two are one key, without a test on sizes for those that are."""
    return one is other or (
        type(one) is type(other) and isinstance(one, bool | int | float | str | tuple) and one == other
    )


def is_reordered(before: Content, now: Content) -> bool:
    """Whether a dict got keys, or has them in another order than before; that it lacks some is no other order."""
    if before.kind != ENTRY:
        return False
    kept = [key for key in before.values if key in now.values]
    return len(kept) != len(now.values) or not all(map(_is_key, kept, now.values))


def content_of(owner: Any) -> Content | None:
    """What an object holds now; None for one that holds nothing of interest."""
    return _reader(type(owner))(owner)


def _reader(kind: type) -> Callable[[Any], Content | None]:
    read = _BY_TYPE.get(kind)
    if read is None:
        read = next((read for kinds, read in _READERS if issubclass(kind, kinds)), None) or _reader_of_attributes(kind)
        _BY_TYPE[kind] = read
    return read


def content_of_cell(cell: types.CellType) -> Content:
    """What a variable of a function holds that a nested one shares."""
    try:
        return Content("variable", {"cell_contents": cell.cell_contents})
    except ValueError:  # a variable that is not assigned yet
        return Content("variable", {})


def held_by(item: object) -> list[Any]:
    """What an object leads to beside its places."""
    if type(item) is dict or type(item) is list:
        return []
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, METHODS_IN_C):
        return [item.__self__]
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    if isinstance(item, types.FunctionType):
        cells = [content_of_cell(cell) for cell in item.__closure__ or ()]
        return [value for content in cells for value in content.values.values()]
    if isinstance(item, dict | list | set | collections.deque):
        return [vars(item)] if hasattr(item, "__dict__") else []
    return [*tuple.__iter__(item)] if isinstance(item, tuple) else []


def changed(known: Iterable[tuple[Any, Content]]) -> Iterator[tuple[Any, Content]]:
    """Those objects that hold other objects than before, or by other keys, or in another order.

    What has its places in one dictionary is not copied for it: of the thousands of objects of a model they are most.
    """
    for owner, before in known:
        kind = type(owner)
        read = _reader(kind)
        if kind in DICTIONARIES:
            now = owner
        elif read is _attributes:
            now = owner.__dict__
        else:
            content = read(owner)
            now = {} if content is None else content.values
        if not _same_entries(before.values, now):
            yield owner, before


def _same_entries(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    return len(one) == len(other) and (
        not one or (all(map(is_, one.values(), other.values())) and all(map(is_, one, other)))
    )


class Dictionaries:
    """The dictionaries in which most objects of a model hold all that they do, compared all at once.

    One by one, they take as long as to run a layer.
    """

    def __init__(self) -> None:
        self._taken: list[Any] = []
        self._owners: list[Any] = []  # of those that are the attributes of an object
        self._of_owners: list[Any] = []
        self._all: list[Any] = []
        self._sizes: list[int] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []

    def take(self, owner: Any) -> bool:
        """Takes the dictionary that has all of an object's places in; False if there is none."""
        kind = type(owner)
        if kind in DICTIONARIES:
            self._taken.append(owner)
            return True
        read = _reader(kind)
        if read is not _attributes and not (read is _of_tensor and kind.__dictoffset__):
            return False
        self._owners.append(owner)
        self._of_owners.append(owner.__dict__)
        return True

    def note(self) -> None:
        """Notes what those that were taken hold now."""
        self._all = [*self._taken, *self._of_owners]
        self._sizes = [*map(len, self._all)]
        self._keys = [*itertools.chain.from_iterable(self._all)]
        self._values = [*itertools.chain.from_iterable(map(dict.values, self._all))]

    def without(self, owners: Container[int]) -> Dictionaries:
        """Those of other objects, which are not noted yet."""
        other = Dictionaries()
        other._taken = [taken for taken in self._taken if id(taken) not in owners]
        pairs = zip(self._owners, self._of_owners, strict=True)
        for owner, held in pairs:
            if id(owner) not in owners:
                other._owners.append(owner)
                other._of_owners.append(held)
        return other

    def are_as_before(self) -> bool:
        """Whether they hold the same objects by the same keys, in the same order."""
        if not all(map(is_, map(_DICTIONARY, self._owners), self._of_owners)):
            return False
        if [*map(len, self._all)] != self._sizes:
            return False
        keys, values = itertools.chain.from_iterable(self._all), map(dict.values, self._all)
        return all(map(is_, keys, self._keys)) and all(map(is_, itertools.chain.from_iterable(values), self._values))


_DICTIONARY = attrgetter("__dict__")


def differs(kind: str, before: Any, now: Any) -> bool:
    """Whether a place holds something else than before."""
    return bool(before != now) if kind in (PROGRESS, ARRAY, RANDOM) else before is not now


def slots_of(owner: Any) -> list[str]:
    """The names of `__slots__`."""
    return _slots_of_class(type(owner))


def _slots_of_class(kind: type) -> list[str]:
    names = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    flat = [name for group in names for name in ((group,) if isinstance(group, str) else group)]
    return [name for name in flat if name not in ("__dict__", "__weakref__")]


# ---------------------------------------------------------------------------------------------------- by kind


def _reader_of_attributes(kind: type) -> Callable[[Any], Content | None]:
    """What reads the attributes of the objects of a class."""
    if is_opaque_class(kind):
        return _nothing
    if kind.__module__ != "builtins" and _slots_of_class(kind):
        return _attributes_and_slots
    return _attributes if kind.__dictoffset__ else _attributes_if_any


def _nothing(_: Any) -> None:
    return None


def _attributes(owner: Any) -> Content:
    return Content("attribute", owner.__dict__.copy())


def _attributes_of_recurrent_layer(owner: Any) -> Content:
    """Without torch's list of its parameters and what tells whether they are others now (`_update_flat_weights`, since
    torch 2.2): each call makes it anew of those that stand in for the parameters then."""
    return Content("attribute", {name: held for name, held in owner.__dict__.items() if name not in _LISTS_OF_WEIGHTS})


def _attributes_if_any(owner: Any) -> Content | None:
    held = getattr(owner, "__dict__", None)  # a property of the class
    return Content("attribute", held.copy()) if isinstance(held, dict) else None


def _attributes_and_slots(owner: Any) -> Content:
    slots = slots_of(owner)
    return Content("attribute", getattr(owner, "__dict__", {}) | _in_slots(owner, slots))


def _in_slots(owner: Any, slots: list[str]) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in slots if hasattr(owner, name)}


def _of_dict(owner: Any) -> Content:
    return Content(ENTRY, dict(items_of(owner)))


def _of_elements(owner: Any) -> Content:
    return Content("element", dict(enumerate(elements_of(owner) or ())))


def _of_set(owner: Any) -> Content:
    return Content("member", {member: member for member in elements_of(owner) or ()})


def _of_globals(owner: GlobalNames) -> Content:
    return Content("global", {name: owner.entries[name] for name in owner.names if name in owner.entries})


def _of_class(owner: type) -> Content | None:
    if not is_users_class(owner):
        return None
    held = {k: v for k, v in vars(owner).items() if not (k.startswith("__") or isinstance(v, _METHODS))}
    return Content("class attribute", {k: v for k, v in held.items() if not hasattr(type(v), "__get__")})


def _of_function(owner: types.FunctionType) -> Content:
    return Content("attribute", {k: v for k, v in owner.__dict__.items() if k != "__wrapped__"})


def _of_array(owner: Any) -> Content:
    return Content(ARRAY, {None: _Numbers(owner.copy())})


#: What torch 2.11 to 2.13 itself notes on a tensor that stands for another while a program is traced.
_TORCHS = frozenset(
    ("constant", "dispatch_keys", "fake_device", "fake_mode", "grad", "persistent", "pytype", "real_tensor")
)


def attributes_of_tensor(owner: torch.Tensor) -> dict[str, Any]:
    """What code has set on a tensor, without what torch and libraries note there under names with an underscore."""
    held = getattr(owner, "__dict__", {})
    return {k: v for k, v in held.items() if not (k.startswith(("_", "exportguard_")) or k in _TORCHS)}


def _of_tensor(owner: torch.Tensor) -> Content:
    return Content(OF_TENSOR, attributes_of_tensor(owner))


def _of_iterator(owner: Any) -> Content:
    return Content(PROGRESS, {None: _Progress(owner)})


def _of_random(owner: Any) -> Content:
    return Content(RANDOM, {None: RandomState(owner)})


class RandomState:
    """How far a generator of random numbers has come, which equals another state of the same numbers."""

    __slots__ = ("state",)

    def __init__(self, generator: Any) -> None:
        is_of_numpy = isinstance(generator, np.random.Generator)
        self.state = copy.deepcopy(generator.bit_generator.state) if is_of_numpy else _state_of(generator)

    def put_into(self, generator: Any) -> None:
        """Lets a generator go on from here."""
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = self.state
        elif isinstance(generator, random.Random):
            generator.setstate(self.state)
        else:
            generator.set_state(self.state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RandomState) and _is_state(self.state, other.state)

    __hash__ = None  # type: ignore[assignment]  # what it holds may change

    def __repr__(self) -> str:
        return "a state of random numbers"


def _is_state(one: Any, other: Any) -> bool:
    is_of_python = isinstance(one, tuple) and not any(isinstance(part, np.ndarray) for part in one)
    return bool(one == other) if is_of_python else repr(one) == repr(other)


def _state_of(generator: Any) -> Any:
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


class _Numbers:
    """A copy of an array, which equals another of the same numbers."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Numbers)
        return bytes(memoryview(self.content).tobytes()) == bytes(memoryview(other.content).tobytes())

    __hash__ = None  # type: ignore[assignment]  # what it holds may change

    def __repr__(self) -> str:
        return repr(self.content)


class _Progress:
    """How far an iterator has come, with all that it goes through."""

    def __init__(self, iterator: Any) -> None:
        self._held: list[Any] = []  # so that no id is used twice
        self._state = self._of(iterator, 0)

    def _of(self, item: Any, depth: int) -> Any:
        if isinstance(item, types.GeneratorType):
            frame = item.gi_frame
            return None if frame is None else (frame.f_lasti, self._of(tuple(frame.f_locals.values()), depth))
        if isinstance(item, _ITERATORS):
            return self._reduced(item, depth)
        if isinstance(item, tuple) and depth < _DEEPEST:
            return tuple(self._of(part, depth + 1) for part in item)
        self._held.append(item)
        return item if isinstance(item, int | str | range) else id(item)

    def _reduced(self, item: Any, depth: int) -> Any:
        """What Python's own iterators say of themselves to be copied, which CPython does up to 3.13."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                told = item.__reduce__()
            except TypeError:
                told = tuple(gc.get_referents(item))
        # An iterator over a dict or a set makes a list of what is left each time that it is asked.
        told = [tuple(part[0]) if len(told) == _PAIR and _is_list_alone(part) else part for part in told]
        return tuple(self._of(part, depth + 1) for part in told[1:]) if depth < _DEEPEST else id(item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Progress) and bool(self._state == other._state)

    __hash__ = None  # type: ignore[assignment]  # what it holds may change

    def __repr__(self) -> str:
        return "an iterator"


def _is_list_alone(part: object) -> bool:
    return isinstance(part, tuple) and len(part) == 1 and isinstance(part[0], list)


_BY_TYPE: weakref.WeakKeyDictionary[type, Callable[[Any], Content | None]] = weakref.WeakKeyDictionary()
DICTIONARIES = frozenset({dict, collections.OrderedDict, collections.defaultdict})
_DEEPEST = 6  # iterators over iterators
_PAIR = 2
_LISTS_OF_WEIGHTS = frozenset({"_flat_weights", "_flat_weight_refs"})

_READERS: list[tuple[Any, Callable[[Any], Content | None]]] = [
    (dict, _of_dict),
    ((list, collections.deque), _of_elements),
    (set, _of_set),
    (types.CellType, content_of_cell),
    (GlobalNames, _of_globals),
    (types.FunctionType, _of_function),
    (type, _of_class),
    (bytearray, _of_array),
    (_ITERATORS, _of_iterator),
    (np.ndarray, _of_array),
    ((random.Random, np.random.Generator, np.random.RandomState), _of_random),
    (torch.Tensor, _of_tensor),
    (torch.nn.RNNBase, _attributes_of_recurrent_layer),
]
