"""`map`, `filter`, `list`, `tuple`, `functools.reduce` and functions of `itertools` over what has a symbolic length.

Where all lengths are known they are Python's own. Else they are loops over rows, put together as comprehensions are.
What Python makes an iterator of is computed when it is gone through, as Python does, and can be gone through once.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard.rewrites.collected import Collected, Grown, chosen, is_open, like_rows, number_rows, parts_of
from exportguard.rewrites.conditional import if_, ifexp
from exportguard.rewrites.data import depends_on_data, is_tracing
from exportguard.rewrites.gathering import comprehension
from exportguard.rewrites.iteration import Deferred, Rows, rows_of, zip_
from exportguard.rewrites.logic import and_, bool_, not_
from exportguard.rewrites.places import line_now
from exportguard.rewrites.runtime_loops import for_
from exportguard.source.errors import RewriteError

_PAIR = 2


def list_of(items: Any = ()) -> Any:
    """`list(items)` and `tuple(items)` where the length is symbolic."""
    if not is_tracing():
        return builtins.list(items)
    rows = rows_of(items)
    if rows is not None:
        return Grown([Collected(rows.tensors)])
    return Grown(items.parts) if isinstance(items, Grown) else builtins.list(items)


def concatenated(*parts: Any) -> Any:
    """`[*a, *b]`."""
    lists = [list_of(part) for part in parts]
    if not any(is_open(one) for one in lists):
        return [element for one in lists for element in one]
    return Grown([element for one in lists for element in parts_of(one)])


def tuple_of(items: Any = ()) -> Any:
    """`tuple(items)`; one of symbolic length is a list that nothing changes."""
    return list_of(items) if is_tracing() and (is_open(items) or rows_of(items) is not None) else builtins.tuple(items)


def map_(function: Callable[..., Any], *iterables: Any) -> Any:
    """`map(function, …)`."""
    if not _is_symbolic(iterables):
        return builtins.map(function, *iterables)
    if len(iterables) == 1:
        return Deferred(lambda: comprehension(iterables[0], function))
    return Deferred(lambda: comprehension(zip_(*iterables), lambda items: function(*items)))


def filter_(test: Callable[[Any], Any] | None, iterable: Any) -> Any:
    """`filter(test, …)`."""
    if not _is_symbolic((iterable,)) and not (is_tracing() and isinstance(iterable, Iterable)):
        return builtins.filter(test, iterable)
    return Deferred(lambda: comprehension(iterable, lambda item: item, test or (lambda item: item)))


def reduce_(function: Callable[[Any, Any], Any], iterable: Any, *start: Any) -> Any:
    """`functools.reduce(function, …)`."""
    rows = rows_of(iterable) if is_tracing() else None
    if rows is None:
        return functools.reduce(function, iterable, *start)
    first, rest = (start[0], rows) if start else _opened(rows)
    return for_(rest, lambda item, held: (True, (function(held, item),)), ("the result",), (first,))[0]


def next_(iterable: Any, make: Callable[[Any], Any], test: Callable[[Any], Any], default: Any, line: int = 0) -> Any:
    """`next((make(item) for item in iterable if test(item)), default)`."""

    def step(item: Any, held: Any) -> tuple[Any, tuple[Any]]:
        is_it = bool_(test(item))
        return not_(is_it), (ifexp(is_it, lambda: make(item), lambda: held, line),)

    return for_(iterable, step, ("the result",), (default,), line)[0]


def accumulate_(iterable: Any, function: Callable[[Any, Any], Any] = operator.add, *, initial: Any = None) -> Any:
    """`itertools.accumulate(…)`."""
    if not _is_symbolic((iterable,)):
        return itertools.accumulate(iterable, function, initial=initial)

    def made() -> Any:
        rows = rows_of(iterable)
        assert rows is not None
        first, rest = (initial, rows) if initial is not None else _opened(rows)
        results = Grown([first])

        def step(item: Any, held: Any) -> tuple[bool, tuple[Any]]:
            after = function(held, item)
            results.append(after)
            return True, (after,)

        for_(rest, step, ("the result",), (first,))
        return results

    return Deferred(made)


def chain_(*iterables: Any) -> Any:
    """`itertools.chain(…)`."""
    if not _is_symbolic(iterables):
        return itertools.chain(*iterables)
    return Deferred(lambda: Grown([part for iterable in iterables for part in parts_of(list_of(iterable))]))


def takewhile_(test: Callable[[Any], Any], iterable: Any) -> Any:
    """`itertools.takewhile(test, iterable)`."""
    if not _has_tensors(iterable):
        return itertools.takewhile(test, iterable)
    return Deferred(lambda: _first_ones(test, iterable))


def _first_ones(test: Callable[[Any], Any], iterable: Any) -> Any:
    made = Grown()

    def step(item: Any) -> tuple[Any, tuple[()]]:
        is_in = bool_(test(item))
        if_(is_in, lambda: _put(made, item), tuple)
        return is_in, ()

    for_(iterable, step, (), ())
    return made if made.is_open else made.parts


def dropwhile_(test: Callable[[Any], Any], iterable: Any) -> Any:
    """`itertools.dropwhile(test, iterable)`."""
    if not _has_tensors(iterable):
        return itertools.dropwhile(test, iterable)
    return Deferred(lambda: _last_ones(test, iterable))


def _last_ones(test: Callable[[Any], Any], iterable: Any) -> Any:
    made = Grown()

    def step(item: Any, is_left_out: Any) -> tuple[bool, tuple[Any]]:
        still = and_(lambda: is_left_out, lambda: test(item))
        if_(still, tuple, lambda: _put(made, item))
        return True, (still,)

    for_(iterable, step, ("whether elements are left out",), (True,))
    return made if made.is_open else made.parts


def _put(made: Any, item: Any) -> tuple[()]:
    made.append(item)
    return ()


def filterfalse_(test: Callable[[Any], Any] | None, iterable: Any) -> Any:
    """`itertools.filterfalse(test, iterable)`."""
    if not _has_tensors(iterable):
        return itertools.filterfalse(test, iterable)
    told = test or (lambda item: item)
    return Deferred(lambda: comprehension(iterable, lambda item: item, lambda item: not_(told(item))))


def starmap_(function: Callable[..., Any], iterable: Any) -> Any:
    """`itertools.starmap(function, iterable)`."""
    if not _is_symbolic((iterable,)):
        return itertools.starmap(function, iterable)
    return Deferred(lambda: comprehension(iterable, lambda items: function(*items)))


def islice_(iterable: Any, *bounds: Any) -> Any:
    """`itertools.islice(…)`."""
    rows = rows_of(iterable) if is_tracing() else None
    return itertools.islice(iterable, *bounds) if rows is None else rows.mapped(lambda leaf: leaf[slice(*bounds)])


def pairwise_(iterable: Any) -> Any:
    """`itertools.pairwise(…)`."""
    rows = rows_of(iterable) if is_tracing() else None
    return itertools.pairwise(iterable) if rows is None else zip_(rows, rows.behind_the_first())


def product_(*iterables: Any, repeat: int = 1) -> Any:
    """`itertools.product(…)`."""
    if not _is_symbolic(iterables):
        return itertools.product(*iterables, repeat=repeat)
    factors = [_as_rows(iterable) for iterable in iterables] * repeat
    made = [factors[0].tensors]
    length = factors[0].length
    for factor in factors[1:]:
        made = [_each_many(part, factor.length) for part in made]
        made.append(_many_times(factor.tensors, length))
        length = length * factor.length
    return Rows(tuple(made))


def combinations_(iterable: Any, count: int) -> Any:
    """`itertools.combinations(…)`, of pairs where the length is symbolic."""
    rows = rows_of(iterable) if is_tracing() else None
    if rows is None:
        return itertools.combinations(iterable, count)
    if count != _PAIR:
        raise RewriteError(f"{line_now()}: combinations of {count} out of a symbolic length; write the loops out")
    numbers = torch.arange(rows.length)
    pairs = product_(rows, repeat=_PAIR)
    is_one = (numbers.unsqueeze(1) < numbers.unsqueeze(0)).flatten()
    return Rows(chosen(pairs.tensors, is_one).rows)


def _each_many(tensors: Any, count: Any) -> Any:
    """Rows with each one many times in turn."""
    return pytree.tree_map(lambda leaf: like_rows(leaf.repeat_interleave(count, 0), leaf), tensors)


def _many_times(tensors: Any, count: Any) -> Any:
    """All rows one time after the other."""
    return pytree.tree_map(lambda leaf: like_rows(leaf.repeat(count, *[1] * (leaf.dim() - 1)), leaf), tensors)


def _is_symbolic(iterables: Iterable[Any]) -> bool:
    return is_tracing() and any(isinstance(i, Deferred) or rows_of(i) is not None for i in iterables)


def _has_tensors(iterable: Any) -> bool:
    """Whether what is gone through is of symbolic length, or a list of tensors, so that tests of it may be of data."""
    is_listed = isinstance(iterable, builtins.list | builtins.tuple)
    return _is_symbolic((iterable,)) or (is_tracing() and is_listed and any(map(depends_on_data, iterable)))


def _opened(rows: Rows) -> tuple[Any, Rows]:
    """The first row, of which there has to be one, and the others."""
    torch._check(rows.length > 0)  # type: ignore[no-untyped-call]
    return rows.at(0), rows.behind_the_first()


def _as_rows(iterable: Any) -> Rows:
    rows = rows_of(iterable)
    if rows is not None:
        return rows
    if isinstance(iterable, range):
        return Rows(number_rows(torch.arange(iterable.start, iterable.stop, iterable.step)))
    return Rows(Grown(iterable).rows().rows)


def unzip_(pairs: Any, *, strict: bool = False) -> Any:
    """`zip(*pairs)`: of a list that a loop filled, one list for each place of its tuples, which are of one length."""
    if not is_open(pairs):
        return zip(*pairs, strict=strict)
    rows = pairs.rows().rows
    if not isinstance(rows, tuple | list):
        raise RewriteError(f"{line_now()}: zip(*…) of a list that a loop fills with something else than tuples")
    return tuple(Grown([Collected(part)]) for part in rows)
