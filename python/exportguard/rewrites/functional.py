"""`map`, `filter`, `list`, `tuple`, `functools.reduce` and functions of `itertools` over what has a symbolic length.

Where all lengths are known they are Python's own. Else they are loops over rows, put together as comprehensions are.
What Python makes an iterator of is computed when it is gone through, as Python does, and can be gone through once.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from exportguard.rewrites.choices import SEQUENCES
from exportguard.rewrites.collected import Collected, Grown, chosen, is_open, like_rows, number_rows, parts_of
from exportguard.rewrites.conditional import if_, ifexp
from exportguard.rewrites.data import is_tracing
from exportguard.rewrites.endless import Endless, RowIterator, is_endless
from exportguard.rewrites.ends_of_runs import nothing_unless
from exportguard.rewrites.iteration import Rows, enumerate_rows, range_, reversed_, rows_of, zip_rows
from exportguard.rewrites.logic import and_, bool_, not_
from exportguard.rewrites.places import line_now
from exportguard.rewrites.raising import require_no_handler
from exportguard.rewrites.runtime_loops import for_
from exportguard.rewrites.runtime_stores import get_item
from exportguard.rewrites.streams import Mapped, Plain, Run, Step, Stream, gathered, is_stream
from exportguard.source.errors import RewriteError

_PAIR = 2


def list_of(items: Any = ()) -> Any:
    """`list(items)` and `tuple(items)` where the length is symbolic."""
    if not is_tracing():
        return builtins.list(items)
    items = gathered(items)
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


def repeated(left: Any, right: Any) -> Any:
    """`[a, b] * n` or `n * [a, b]`."""
    items, count = (left, right) if isinstance(left, list) else (right, left)
    return Grown(items) * count if is_tracing() and isinstance(count, torch.SymInt) else left * right


def apart(items: Any, before: int, behind: int) -> tuple[Any, ...]:
    """What `a, *b, c = items` binds, with as many names in front of the list and behind it."""
    elements = list_of(items)
    if not is_open(elements):
        elements = [*elements]
        if len(elements) < before + behind:
            at_least = f"expected at least {before + behind}, got {len(elements)}"
            raise ValueError(f"not enough values to unpack ({at_least})")
        return (*elements[:before], elements[before : len(elements) - behind], *elements[len(elements) - behind :])
    require_no_handler(ValueError, "too few values to unpack")
    first, last = (elements[place] for place in range(before)), (elements[place] for place in range(-behind, 0))
    return (*first, elements[before : -behind or None], *last)


def tuple_of(items: Any = ()) -> Any:
    """`tuple(items)`; one of symbolic length is a list that nothing changes."""
    items = gathered(items)
    return list_of(items) if is_tracing() and (is_open(items) or rows_of(items) is not None) else builtins.tuple(items)


def _parts(iterable: Any) -> tuple[Run, Plain | None]:
    """What calls a step for each element, and what Python goes through if it can."""
    if is_stream(iterable):
        run, plain = iterable.owned()
        return run, plain
    return _running(iterable, _same), None if _is_symbolic((iterable,)) else lambda: iter(iterable)


def _running(iterable: Any, function: Callable[[Any], Any]) -> Run:
    """Calls a step for what a function makes of each element."""
    return lambda step: for_(iterable, lambda item: (step(function(item)), ()), (), ())


def _same(item: Any) -> Any:
    return item


def _of_plain(make: Callable[..., Iterator[Any]], *plains: Plain | None) -> Plain | None:
    """What makes Python's own iterator of others, if Python can go through all of them."""
    known = [plain for plain in plains if plain is not None]
    return (lambda: make(*(plain() for plain in known))) if len(known) == len(plains) else None


def map_(function: Callable[..., Any], *iterables: Any) -> Any:
    """`map(function, …)`."""
    if not is_tracing():
        return builtins.map(function, *iterables)
    if len(iterables) == 1:
        return mapped(function, iterables[0])
    return mapped(lambda items: function(*items), zip_(*iterables))


def mapped(function: Callable[[Any], Any], iterable: Any) -> Stream:
    """What a function makes of each element, computed when it is the element's turn."""
    if isinstance(iterable, Mapped) and is_stream(iterable):
        source, own = iterable.parts()
        return mapped(lambda item: function(own(item)), source)
    if isinstance(iterable, Endless) and is_endless(iterable):
        at, made = iterable.taken(), iterable.plain
        return Endless(lambda position: function(at(position)), lambda: map(function, made()), has_effects=True)
    run, plain = _parts(iterable)
    own_plain = _of_plain(lambda items: builtins.map(function, items), plain)
    if is_stream(iterable):
        return Stream(lambda step: run(lambda item: step(function(item))), own_plain)
    return Mapped(iterable, function, _running(iterable, function), own_plain)


def parts(owner: Any, size: Any, *axis: Any) -> Any:
    """`owner.split(size, axis)` for a loop, which may be anything's method of that name."""
    dim = axis[0] if axis else 0
    if not isinstance(owner, torch.Tensor) or not isinstance(dim, int) or not is_tracing():
        return owner.split(size, *axis)
    before = (slice(None),) * (dim % owner.dim())
    if is_open(size):
        return mapped(lambda ends: get_item(owner, (*before, slice(*ends))), _ends_of(size, owner.shape[dim]))
    if not isinstance(size, int) or isinstance(owner.shape[dim], int):
        return owner.split(size, *axis)  # type: ignore[no-untyped-call]
    length = torch.sym_max(owner.shape[dim], 1)  # type: ignore[no-untyped-call]  # of nothing there is one part
    return mapped(lambda start: get_item(owner, (*before, slice(start, start + size))), range_(0, length, size))


def parts_backwards(found: Any) -> Any:
    """The parts from the last to the first: `split` makes all of them before a loop begins."""
    if not isinstance(found, Mapped):
        return builtins.reversed(found)
    source, function = found.parts()
    return mapped(function, reversed_(source))


def _ends_of(sizes: Grown, length: Any) -> Rows:
    """Where the parts of these sizes start and stop in something of a length, which they have to be all of."""
    require_no_handler(RuntimeError, "sizes of parts that do not add up to the size of what is split")
    numbers = torch.as_tensor(sizes.rows().rows)
    stops = numbers.cumsum(0)
    is_whole = torch.logical_and(numbers.sum() == length, torch.logical_not((numbers < 0).any()))
    stops = stops + nothing_unless(is_whole)
    return Rows((number_rows(stops - numbers), number_rows(stops)))


def zip_(*iterables: Any, strict: bool = False) -> Any:
    """`zip(…)`, where streams make their elements when it is their turn."""
    if any(map(is_endless, iterables)) and not strict:
        return _zip_endless(iterables)
    streams = [place for place, iterable in enumerate(iterables) if is_stream(iterable)]
    if not streams:
        return zip_rows(*iterables, strict=strict)
    if all(isinstance(iterables[place], Mapped) for place in streams):
        together = _zipped_rows(iterables, strict=strict)
        if together is not None:
            return together
    parts = [_parts(iterable) for iterable in iterables]
    plain = _of_plain(functools.partial(builtins.zip, strict=strict), *(plain for _, plain in parts))
    are_indexed = all(_is_indexed(iterable) for k, iterable in enumerate(iterables) if k not in streams)
    if len(streams) == 1 and are_indexed and not strict:
        place = streams[0]
        return Stream(lambda step: _zip(iterables, place, parts[place][0], step), plain)
    if plain is None:
        raise RewriteError(
            f"{line_now()}: zip of several iterators whose elements are computed in turn, or a strict one; make lists "
            "of them first"
        )
    return plain()


def _zip_endless(iterables: Sequence[Any]) -> Any:
    """`zip(…)` where some have no end: their elements are made of the number of those of the others."""
    others = [iterable for iterable in iterables if not is_endless(iterable)]
    if others and not _is_symbolic(others):
        return builtins.zip(*iterables, strict=False)
    last = max((place for place, iterable in enumerate(iterables) if not is_endless(iterable)), default=0)
    if any(is_endless(iterable) and iterable.has_effects for iterable in iterables[:last]):
        raise RewriteError(
            f"{line_now()}: zip takes an element of an endless iterator that a function makes before it finds that "
            "another one has ended; put the endless one last"
        )
    makers = [iterable.taken() if is_endless(iterable) else None for iterable in iterables]

    def together(position: Any, items: Sequence[Any]) -> tuple[Any, ...]:
        own = iter(items)
        return tuple(next(own) if make is None else make(position) for make in makers)

    if not others:
        return Endless(lambda position: together(position, ()), lambda: builtins.zip(*iterables, strict=False))
    return mapped(lambda pair: together(pair[0], pair[1]), enumerate_(zip_(*others)))


def zip_longest_(*iterables: Any, fillvalue: Any = None) -> Any:
    """`itertools.zip_longest(…)`: what has ended gives the value that fills up."""
    if not _is_symbolic(iterables):
        return itertools.zip_longest(*iterables, fillvalue=fillvalue)
    if any(is_stream(iterable) for iterable in iterables):
        raise RewriteError(f"{line_now()}: zip_longest of iterators over a symbolic length; make lists of them first")
    parts = [_as_rows(iterable) for iterable in iterables]
    length = functools.reduce(torch.sym_max, [part.length for part in parts])

    def at(part: Rows, position: Any) -> Any:
        if statically_known_true(part.length == length):
            return part.at(position)
        return ifexp(position < part.length, lambda: part.at(position), lambda: fillvalue)

    return mapped(lambda position: tuple(at(part, position) for part in parts), range_(length))


def iter_(iterable: Any) -> Any:
    """`iter(x)`."""
    rows = rows_of(iterable) if is_tracing() and isinstance(iterable, torch.Tensor) else None
    return iter(iterable) if rows is None else RowIterator(rows)


def _is_indexed(iterable: Any) -> bool:
    is_tensor = isinstance(iterable, torch.Tensor) and iterable.dim() > 0
    return is_tensor or isinstance(iterable, (*SEQUENCES, range)) or rows_of(iterable) is not None


def _zipped_rows(iterables: Sequence[Any], *, strict: bool) -> Stream | None:
    """Rows and functions of rows in turn, if there are as many of each for certain."""
    found = [rows_of(iterable.source if isinstance(iterable, Mapped) else iterable) for iterable in iterables]
    rows = [one for one in found if one is not None]
    are_alike = all(statically_known_true(one.length == rows[0].length) for one in rows)
    if len(rows) < len(found) or not are_alike:
        return None
    functions = [iterable.parts()[1] if isinstance(iterable, Mapped) else _same for iterable in iterables]
    return mapped(
        lambda items: tuple(function(item) for function, item in builtins.zip(functions, items, strict=True)),
        zip_rows(*rows, strict=strict),
    )


def _zip(iterables: Sequence[Any], place: int, run: Run, step: Step) -> None:
    """A stream with rows, lists and ranges beside it: it makes an element where those before it have one."""
    before, behind = [*iterables[:place]], [*iterables[place + 1 :]]
    counts = [_length_of(iterable) for iterable in before], [_length_of(iterable) for iterable in behind]
    if any(not bool(count > 0) for count in counts[0]):
        return
    held = {"position": 0}

    def one(item: Any) -> Any:
        position = held["position"]
        held["position"] = position + 1
        others = [*counts[1]]
        has_all = _all_above(others, position)
        goes_on = and_(
            lambda: has_all,
            lambda: step((*(_at(i, position) for i in before), item, *(_at(i, position) for i in behind))),
        )
        return and_(lambda: goes_on, lambda: _all_above(counts[0], position + 1))

    run(one)


def _all_above(counts: Sequence[Any], position: Any) -> Any:
    """Whether each of some things has an element at a position."""
    found: Any = True
    for count in counts:
        current = found
        found = and_(lambda: current, lambda: position < count)  # noqa: B023 - both are read at once
    return found


def _length_of(iterable: Any) -> Any:
    rows = rows_of(iterable)
    return len(iterable) if rows is None else rows.length


def _at(iterable: Any, position: Any) -> Any:
    rows = rows_of(iterable)
    return get_item(iterable, position) if rows is None else rows.at(position)


def enumerate_(iterable: Any, start: int = 0) -> Any:
    """`enumerate(…)`."""
    if not is_stream(iterable):
        return enumerate_rows(iterable, start)
    if isinstance(iterable, Endless):
        at, made, effects = iterable.taken(), iterable.plain, iterable.has_effects
        return Endless(lambda k: (start + k, at(k)), lambda: enumerate(made(), start), has_effects=effects)
    if isinstance(iterable, Mapped):
        source, own = iterable.parts()
        return mapped(lambda pair: (pair[0], own(pair[1])), enumerate_rows(source, start))
    source_run, plain = _parts(iterable)

    def run(step: Step) -> None:
        held = {"number": start}

        def one(item: Any) -> Any:
            number = held["number"]
            held["number"] = number + 1
            return step((number, item))

        source_run(one)

    return Stream(run, _of_plain(lambda items: enumerate(items, start), plain))


def later(iterable: Any, element: Callable[[Any], Any], test: Callable[[Any], Any] | None = None) -> Any:
    """`(element(i) for i in iterable if test(i))`, of which each element is made when it is its turn."""
    if not is_tracing():
        return (element(item) for item in iterable if test is None or test(item))
    return mapped(element, iterable if test is None else _filtered(test, iterable, builtins.filter))


def filter_(test: Callable[[Any], Any] | None, iterable: Any) -> Any:
    """`filter(test, …)`."""
    if not is_tracing():
        return builtins.filter(test, iterable)
    return _filtered(test or _same, iterable, builtins.filter)


def _filtered(test: Callable[[Any], Any], iterable: Any, python: Callable[..., Iterator[Any]]) -> Stream:
    source_run, plain = _parts(iterable)

    def run(step: Step) -> None:
        source_run(lambda item: if_(bool_(test(item)), lambda: step(item), lambda: True))

    return Stream(run, _of_plain(lambda items: python(test, items), plain))


def reduce_(function: Callable[[Any, Any], Any], iterable: Any, *start: Any) -> Any:
    """`functools.reduce(function, …)`."""
    iterable = gathered(iterable)
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
    if not is_tracing():
        return itertools.accumulate(iterable, function, initial=initial)
    source_run, plain = _parts(iterable)

    def run(step: Step) -> None:
        held = {"result": initial}

        def one(item: Any) -> Any:
            before = held["result"]
            held["result"] = item if before is None else function(before, item)
            return step(held["result"])

        goes_on = True if initial is None else step(initial)
        if_(goes_on, lambda: _none(source_run(one)), lambda: None)

    return Stream(run, _of_plain(lambda items: itertools.accumulate(items, function, initial=initial), plain))


def _none(_: object) -> None:
    """What a branch gives that is there for what it does."""


def chain_(*iterables: Any) -> Any:
    """`itertools.chain(…)`."""
    if not is_tracing():
        return itertools.chain(*iterables)
    parts = [_parts(iterable) for iterable in iterables]

    def run(step: Step) -> None:
        held: dict[str, Any] = {"goes on": True}

        def one(item: Any) -> Any:
            held["goes on"] = step(item)
            return held["goes on"]

        for source_run, _ in parts:
            if_(held["goes on"], lambda: _none(source_run(one)), lambda: None)  # noqa: B023 - it is called at once

    return Stream(run, _of_plain(itertools.chain, *(plain for _, plain in parts)))


def takewhile_(test: Callable[[Any], Any], iterable: Any) -> Any:
    """`itertools.takewhile(test, iterable)`."""
    if not is_tracing():
        return itertools.takewhile(test, iterable)
    source_run, plain = _parts(iterable)

    def run(step: Step) -> None:
        source_run(lambda item: and_(lambda: bool_(test(item)), lambda: step(item)))

    return Stream(run, _of_plain(lambda items: itertools.takewhile(test, items), plain))


def dropwhile_(test: Callable[[Any], Any], iterable: Any) -> Any:
    """`itertools.dropwhile(test, iterable)`."""
    if not is_tracing():
        return itertools.dropwhile(test, iterable)
    source_run, plain = _parts(iterable)

    def run(step: Step) -> None:
        held: dict[str, Any] = {"is left out": True}

        def one(item: Any) -> Any:
            still = and_(lambda: held["is left out"], lambda: bool_(test(item)))
            held["is left out"] = still
            return if_(still, lambda: True, lambda: step(item))

        source_run(one)

    return Stream(run, _of_plain(lambda items: itertools.dropwhile(test, items), plain))


def filterfalse_(test: Callable[[Any], Any] | None, iterable: Any) -> Any:
    """`itertools.filterfalse(test, iterable)`."""
    if not is_tracing():
        return itertools.filterfalse(test, iterable)
    told = test or _same
    return _filtered(lambda item: not_(told(item)), iterable, builtins.filter)


def starmap_(function: Callable[..., Any], iterable: Any) -> Any:
    """`itertools.starmap(function, iterable)`."""
    if not is_tracing():
        return itertools.starmap(function, iterable)
    return mapped(lambda items: function(*items), iterable)


def islice_(iterable: Any, *bounds: Any) -> Any:
    """`itertools.islice(…)`."""
    if is_stream(iterable):
        return _sliced(iterable, slice(*bounds))
    rows = rows_of(iterable) if is_tracing() else None
    return itertools.islice(iterable, *bounds) if rows is None else rows.mapped(lambda leaf: leaf[slice(*bounds)])


def _sliced(source: Stream, bounds: slice) -> Stream:
    """Elements by their numbers: behind the last one of them no other is made."""
    start, stop = bounds.start or 0, bounds.stop
    if bounds.step not in (None, 1):
        raise RewriteError(f"{line_now()}: islice of an iterator with a step; make a list of it and slice that")
    source_run, plain = _parts(source)

    def run(step: Step) -> None:
        held = {"position": 0}

        def one(item: Any) -> Any:
            position = held["position"]
            held["position"] = position + 1
            is_over = and_(lambda: position >= start, lambda: not_(step(item)))
            return and_(lambda: not_(is_over), lambda: True if stop is None else position + 1 < stop)

        if stop is None or stop > 0:
            source_run(one)

    return Stream(run, _of_plain(lambda items: itertools.islice(items, start, stop), plain))


def pairwise_(iterable: Any) -> Any:
    """`itertools.pairwise(…)`."""
    if is_stream(iterable):
        source_run, plain = _parts(iterable)
        return Stream(lambda step: _pairs(source_run, step), _of_plain(itertools.pairwise, plain))
    rows = rows_of(iterable) if is_tracing() else None
    return itertools.pairwise(iterable) if rows is None else zip_rows(rows, rows.behind_the_first())


def _pairs(source_run: Run, step: Step) -> None:
    held: dict[str, Any] = {"element": None}

    def one(item: Any) -> Any:
        before = held["element"]
        held["element"] = item
        return True if before is None else step((before, item))

    source_run(one)


def product_(*iterables: Any, repeat: int = 1) -> Any:
    """`itertools.product(…)`."""
    if not _is_symbolic(iterables):
        return itertools.product(*iterables, repeat=repeat)
    iterables = tuple(map(gathered, iterables))
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
    iterable = gathered(iterable)
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
    return is_tracing() and any(is_stream(i) or rows_of(i) is not None for i in iterables)


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
    pairs = gathered(pairs)
    if not is_open(pairs):
        return zip(*pairs, strict=strict)
    rows = pairs.rows().rows
    if not isinstance(rows, tuple | list):
        raise RewriteError(f"{line_now()}: zip(*…) of a list that a loop fills with something else than tuples")
    return tuple(Grown([Collected(part)]) for part in rows)
