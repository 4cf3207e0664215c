"""Comprehensions, and the built-in functions that go through something: `any`, `all`, `sum`, `min`, `max`."""

from __future__ import annotations

import builtins
import collections
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols, statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.choices import chosen_item
from exportguard.rewrites.collected import (
    Collected,
    Grown,
    Maybe,
    is_of_numbers,
    is_open,
    like_rows,
    parts_of,
)
from exportguard.rewrites.conditional import if_, ifexp
from exportguard.rewrites.data import as_flag, depends_on_data, is_tracing
from exportguard.rewrites.drawn import drawn
from exportguard.rewrites.ends_of_runs import entries
from exportguard.rewrites.functional import parts
from exportguard.rewrites.iteration import Rows, rows_of
from exportguard.rewrites.joining import require_elements
from exportguard.rewrites.logic import and_, bool_, not_, or_
from exportguard.rewrites.numbers import as_number, is_number, number_tensor, require_one_kind
from exportguard.rewrites.ordering import less
from exportguard.rewrites.places import line_now
from exportguard.rewrites.raising import require_no_handler
from exportguard.rewrites.recording import Captured, record
from exportguard.rewrites.runtime_loops import for_
from exportguard.rewrites.streams import Mapped, gathered, is_stream
from exportguard.source.errors import RewriteError

Element = Callable[[Any], Any]


def list_(elements: Iterable[Any] = ()) -> Any:
    """A list of the function's own, which a loop may fill."""
    if not is_tracing():
        return list(elements)
    elements = gathered(elements)
    rows = rows_of(elements)
    return Grown(parts_of(elements)) if rows is None else Grown([Collected(rows.tensors)])


def grow(held: Any, elements: Any) -> None:
    """`held += elements` of a list, which stays the same object."""
    if not isinstance(held, list | collections.deque):
        raise RewriteError(f"{line_now()}: a list is added in place to a {type(held).__name__}; write `a = a + …`")
    held.extend(elements)


def comprehension(iterable: Any, element: Element, test: Element | None = None, line: int = 0) -> Any:
    """`[element(i) for i in iterable if test(i)]`."""
    if not is_tracing():
        return [element(item) for item in iterable if test is None or test(item)]
    made = Grown()

    def append(item: object) -> tuple[()]:
        made.append(element(item))
        return ()

    def body(item: object) -> tuple[Any, tuple[()]]:
        if test is None:
            append(item)
        else:
            if_(test(item), lambda: append(item), tuple, line=line)
        return True, ()

    for_(iterable, body, (), (), line)
    return made if made.is_open else made.parts


def kept_parts(owner: Any, size: Any, *axis: Any) -> Any:
    """`owner.split(size, axis)` as a value: a list where the run decides how many parts there are."""
    found = parts(owner, size, *axis)
    return comprehension(found, lambda part: part) if isinstance(found, Mapped) else found


def nones(iterable: Any) -> Any:
    """`[None for _ in iterable]`."""
    rows = rows_of(iterable) if is_tracing() else None
    return [None for _ in iterable] if rows is None else Grown([None]) * rows.length


@dataclass(frozen=True)
class Lazily:
    """A generator that a call takes at once."""

    iterable: Any
    element: Element
    test: Element | None

    def through(self) -> Any:
        """All its elements, or a list that a loop filled."""
        if is_tracing() and (self.is_loop or self.test is not None):
            return comprehension(self.iterable, self.element, self.test)
        return (self.element(item) for item in self.iterable if self.test is None or self.test(item))

    @property
    def is_loop(self) -> bool:
        """Whether only a loop of the program goes through what it is made of."""
        is_symbolic = is_stream(self.iterable) or rows_of(self.iterable) is not None
        return is_tracing() and (is_symbolic or not isinstance(self.iterable, Iterable))

    def answer(self, item: Any, *, stops_at: bool) -> Any:
        """What an element says to the question whether one of them, or each, is true; those left out say nothing."""
        test = self.test
        if test is None:
            return self.element(item)
        if stops_at:
            return and_(lambda: test(item), lambda: self.element(item))
        return or_(lambda: not_(test(item)), lambda: self.element(item))


def lazily(iterable: object, element: Element, test: Element | None = None) -> Lazily:
    """`(element(i) for i in iterable if test(i))` as the argument of a call."""
    return Lazily(iterable, element, test)


def _all_of(items: Any) -> Any:
    """What a call takes that goes through all elements."""
    return items.through() if isinstance(items, Lazily) else gathered(items)


def any_(items: Any) -> Any:
    """`any(items)`."""
    return _decided(items, stops_at=True)


def all_(items: Any) -> Any:
    """`all(items)`."""
    return _decided(items, stops_at=False)


def _decided(items: Any, *, stops_at: bool) -> Any:
    """`any` or `all`: no element is made behind the first one that decides.

    :param stops_at: the truth value that decides
    """
    lazy = items if isinstance(items, Lazily) else Lazily(items, lambda item: item, None)
    if lazy.is_loop and (isinstance(items, Lazily) or is_stream(items)):
        return _decided_in_a_loop(lazy, stops_at=stops_at)
    rows = _rows(items)
    if rows is not None:
        flags = _flags(rows)
        return as_number(flags.any() if stops_at else flags.all())
    found: Any = not stops_at
    join = or_ if stops_at else and_
    for item in drawn(lazy.iterable, lambda: depends_on_data(found)):  # noqa: B023 - asked between the elements
        current = found
        found = join(lambda: current, lambda: lazy.answer(item, stops_at=stops_at))  # noqa: B023 - read at once
        if not depends_on_data(found) and bool(found) == stops_at:
            return stops_at
    return bool_(found)


def _decided_in_a_loop(lazy: Lazily, *, stops_at: bool) -> Any:
    def step(item: Any, _: Any) -> tuple[Any, tuple[Any]]:
        answer = bool_(lazy.answer(item, stops_at=stops_at))
        return (not_(answer) if stops_at else answer), (answer,)

    return for_(lazy.iterable, step, ("the answer",), (not stops_at,))[0]


def _rows(items: object) -> Rows | None:
    return rows_of(items) if is_tracing() else None


def _flags(rows: Rows) -> torch.Tensor:
    """The truth value of each row, which has to have one element."""
    leaf = pytree.tree_leaves(rows.tensors)[0]
    record(lambda: as_flag(rows.like_one()), Captured())
    return torch.ne(leaf.reshape(-1), 0)


def sum_(items: Any, start: Any = 0) -> Any:
    """`sum(items, start)`."""
    items = _all_of(items)
    rows = _rows(items)
    if rows is None:
        return builtins.sum(items, start)
    return for_(rows, lambda item, total: (True, (total + item,)), ("the sum",), (start,))[0]


def min_(*items: Any, **options: Any) -> Any:
    """`min(…)`."""
    return _extreme(builtins.min, less, items, options)


def max_(*items: Any, **options: Any) -> Any:
    """`max(…)`."""
    return _extreme(builtins.max, lambda new, best: less(best, new), items, options)


def _extreme(function: Callable[..., Any], is_better: Callable[[Any, Any], Any], items: Any, options: Any) -> Any:
    key = options.get("key")
    if not is_tracing():
        return function(*map(_all_of, items), **options)
    many = _all_of(items[0]) if len(items) == 1 else items
    rows = rows_of(many)
    if rows is not None:
        return _best_row(rows, _better(is_better, key), options)
    elements = list(many)
    if not elements and "default" in options:
        return options["default"]
    keys = [element if key is None else key(element) for element in elements]
    if not any(map(depends_on_data, pytree.tree_leaves(keys))):
        return function(elements, key=key)
    best = elements[0]
    for new in elements[1:]:
        _, (best,) = _better(is_better, key)(new, best)
    return best


def _best_row(rows: Rows, step: Callable[[Any, Any], tuple[bool, tuple[Any]]], options: dict[str, Any]) -> Any:
    def best() -> Any:
        return for_(rows.behind_the_first(), step, ("the result",), (rows.at(0),))[0]

    if "default" in options:
        return ifexp(rows.length > 0, best, lambda: options["default"])
    if has_free_unbacked_symbols(rows.length):
        require_no_handler(ValueError, "min(…) or max(…) of nothing")
    return best()


def _better(is_better: Callable[[Any, Any], Any], key: Element | None) -> Callable[[Any, Any], tuple[bool, tuple[Any]]]:
    """A step of the search for the best: the first one of those that are alike."""
    keyed = key or (lambda item: item)

    def step(new: Any, best: Any) -> tuple[bool, tuple[Any]]:
        return True, (ifexp(is_better(keyed(new), keyed(best)), lambda: new, lambda: best),)

    return step


def sorted_(items: Any, *, key: Element | None = None, reverse: bool = False) -> Any:
    """`sorted(items)`: of tensor data the elements in the order of their keys, which is stable."""
    items = _all_of(items)
    if not is_tracing():
        return builtins.sorted(items, key=key, reverse=reverse)
    rows = rows_of(items)
    if rows is None:
        return _sorted_list(list(items), key, reverse=reverse)
    keys = comprehension(rows, key or (lambda item: item))
    columns = [_of_one_element(column) for column in pytree.tree_leaves(keys.rows().rows)]
    order = _order_of(columns, reverse=reverse)
    return Grown([Collected(pytree.tree_map(lambda leaf: like_rows(leaf[order], leaf), rows.tensors))])


def _of_one_element(column: torch.Tensor) -> torch.Tensor:
    """The keys as numbers: of tensors with more elements Python could not tell which of two comes first."""
    if not all(statically_known_true(size == 1) for size in column.shape[1:]):
        raise RewriteError(
            f"{line_now()}: sorted(…) compares tensors of the shape {tuple(column.shape[1:])}, of which the truth "
            "value is ambiguous; give it a key with one element: key=lambda row: row.sum()"
        )
    return column.reshape(column.shape[0])


def sort_(items: Any, *, key: Element | None = None, reverse: bool = False) -> None:
    """`items.sort()`: of tensor data the elements in the order of their keys, in the same list."""
    if not isinstance(items, list) or not is_tracing():
        items.sort(**({} if key is None else {"key": key}), **({"reverse": True} if reverse else {}))
        return
    ordered = sorted_(items, key=key, reverse=reverse)
    parts = ordered.parts if isinstance(ordered, Grown) else ordered
    list.__setitem__(items, slice(None), parts)


def _sorted_list(elements: list[Any], key: Element | None, *, reverse: bool) -> Any:
    keys = [element if key is None else key(element) for element in elements]
    if not any(map(depends_on_data, pytree.tree_leaves(keys))):
        return builtins.sorted(elements, key=key, reverse=reverse)
    leaves = [pytree.tree_leaves(one) for one in keys]
    for one in pytree.tree_leaves(leaves):
        as_flag(one)  # which has one element, or Python could not tell which of two comes first
    if len({pytree.tree_structure(one) for one in keys}) > 1:
        raise RewriteError(
            f"{line_now()}: sorted(…) of tuples of several lengths, by tensor data; give them one length"
        )
    columns = [torch.stack([number_tensor(one).reshape(()) for one in column]) for column in zip(*leaves, strict=True)]
    order = _order_of(columns, reverse=reverse)
    return [_element_at(elements, order[place]) for place in range(len(elements))]


def _element_at(elements: list[Any], place: torch.Tensor) -> Any:
    """One of elements, of tuples of one structure a tuple."""
    specs = {pytree.tree_structure(element) for element in elements}
    if len(specs) > 1 or not all(isinstance(element, tuple) for element in elements):
        return chosen_item(elements, place)
    columns = zip(*map(pytree.tree_leaves, elements), strict=True)
    return pytree.tree_unflatten([chosen_item([*column], place) for column in columns], specs.pop())


def _order_of(columns: Sequence[torch.Tensor], *, reverse: bool) -> torch.Tensor:
    """The places of the keys in the order that Python sorts them.

    A key of NaN is neither before nor behind another one, and the order that Python leaves comes from how it goes about
    it, which no operator does: such a run ends, by an index behind the last one.

    :param columns: the keys, or the first elements of keys that are tuples, the second ones, and so on
    """
    last, *others = columns[::-1]
    order = torch.argsort(last, stable=True, descending=reverse)
    for column in others:
        order = order[torch.argsort(column[order], stable=True, descending=reverse)]
    are_nan = [torch.isnan(column).any() for column in columns if column.is_floating_point()]
    if not are_nan:
        return order
    count = last.shape[0]
    places = torch.arange(count)
    places = torch.where(functools.reduce(torch.logical_or, are_nan), places + count, places)
    return entries(order, places)


#: Classes of tensors that are called with what they hold.
TYPED = frozenset(
    f"{kind}Tensor" for kind in ("Long", "Int", "Short", "Byte", "Char", "Bool", "Float", "Double", "Half", "BFloat16")
)


def tensor(data: object, **options: Any) -> torch.Tensor:
    """`torch.tensor(data)`, of numbers that are tensors as well."""
    if isinstance(data, torch.Tensor) and data.dim() and is_tracing():
        return data.detach().clone().to(**options)
    return _made(torch.tensor, data, **options)


def as_tensor(data: object, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    """`torch.as_tensor(data)`, of numbers that are tensors as well."""
    return _made(torch.as_tensor, data, dtype=dtype, **options)


def new_tensor(like: Any, data: object, **options: Any) -> Any:
    """`like.new_tensor(data)`, which has its dtype."""
    if not isinstance(like, torch.Tensor) or isinstance(data, torch.Tensor):
        return like.new_tensor(data, **options)
    return _made(like.new_tensor, data, **{"dtype": like.dtype, **options})


def _made(function: Callable[..., torch.Tensor], data: object, **options: Any) -> torch.Tensor:
    leaves = [] if isinstance(data, torch.Tensor) else pytree.tree_leaves(data)
    # Of a size that data decide torch 2.11 to 2.13 asks the value where a branch is run on fake tensors alone.
    is_list = any(
        isinstance(leaf, torch.Tensor | Collected | Maybe)
        or (isinstance(leaf, torch.SymInt) and has_free_unbacked_symbols(leaf))
        for leaf in leaves
    ) and not is_number(data)
    if not is_tracing() or not is_list:
        return function(data, **options)
    dtype = options.get("dtype")
    made = _nested(data, is_typed=dtype is not None)
    if dtype is None:
        for leaf in leaves:
            require_one_kind(leaf, "decide the dtype of torch.tensor")
        dtype = functools.reduce(torch.promote_types, map(_dtype_of, leaves))
    return made.to(dtype)


def _dtype_of(leaf: object) -> torch.dtype:
    """What torch.tensor takes the dtype of an element for: floats are of the default one, beside tensors as well."""
    own = number_tensor(leaf).dtype
    return torch.get_default_dtype() if is_of_numbers(leaf) and own.is_floating_point else own


def typed_tensor(name: str, data: Any) -> torch.Tensor:
    """`torch.LongTensor(data)` and its kin, which make a tensor of a list and one of any size of a number."""
    made = getattr(torch, name)
    is_list = isinstance(data, list | tuple) and not isinstance(data, torch.Size)
    return tensor(data, dtype=made.dtype) if is_list and is_tracing() else made(data)


def _nested(data: Any, *, is_typed: bool) -> torch.Tensor:
    """:param is_typed: whether the call says a dtype"""
    if is_open(data):
        rows = _of_rows(data.rows().rows)
        is_default = all(_dtype_of(leaf) == torch.get_default_dtype() for leaf in pytree.tree_leaves(data))
        return rows if rows.dim() == 1 and (is_typed or is_default) else _with_elements(data, rows)
    if isinstance(data, list | tuple):
        return _beside_each_other([_nested(part, is_typed=is_typed) for part in parts_of(data)])
    return number_tensor(data)


def _with_elements(data: Grown, rows: torch.Tensor) -> torch.Tensor:
    """The rows of a list that has elements: of one without any, torch.tensor makes another dtype, and one axis.

    A file has no checks: the first row is looked for, which ends a run where there is none.
    """
    require_elements(data)
    count = rows.shape[0]
    if not has_free_unbacked_symbols(count):
        return rows
    places = torch.cat([torch.zeros(1, dtype=torch.int64), torch.arange(count)])
    return rows.index_select(0, places).narrow(0, 1, count)


def _of_rows(rows: Any) -> torch.Tensor:
    """One row for each element of a list, also where an element is a list or a tuple of numbers itself."""
    if isinstance(rows, list | tuple):
        return _beside_each_other([_of_rows(part) for part in parts_of(rows)], dim=1)
    return torch.as_tensor(rows)


def _beside_each_other(parts: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    dtype = functools.reduce(torch.promote_types, (part.dtype for part in parts))
    return torch.stack([part.to(dtype) for part in parts], dim)
