"""Loops over tensors: unrolled where Python knows the trip count, `scan` or `while_loop` where tensor data or a
symbolic size decides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.carrying import UnstableError
from exportguard.rewrites.collected import number_rows, truth_of
from exportguard.rewrites.conditional import Run, if_
from exportguard.rewrites.data import depends_on_data, is_tracing
from exportguard.rewrites.drawn import drawn, may_have_no_end
from exportguard.rewrites.iteration import Rows, Steps, SymbolicRange, rows_of, steps_between, steps_of
from exportguard.rewrites.leaving_by_size import leaves_by_size
from exportguard.rewrites.logic import not_
from exportguard.rewrites.loop import Body, Loop
from exportguard.rewrites.own_lists import OwnLists, ReadsOwnListError, refusal, with_own_lists
from exportguard.rewrites.packed_rows import as_elements, has_parts
from exportguard.rewrites.places import line_now
from exportguard.rewrites.recording import Captured, record
from exportguard.rewrites.resizing import asked_of, unbound
from exportguard.rewrites.state import Snapshot
from exportguard.rewrites.streams import Mapped, Stream
from exportguard.rewrites.watch import is_stop
from exportguard.source.errors import RewriteError, forget

_FIRST = 3  # steps of a range that are looked at for sizes that leave the loop
_STEPS = 32  # of a loop over what may have no end, which tensor data may leave


def for_(
    iterable: Any, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int = 0, *, breaks: bool = False
) -> tuple[Any, ...]:
    """`for … in iterable: body` with the carried variables `names`; returns their values behind the loop.

    :param breaks: whether the body holds a `break`
    """
    if isinstance(iterable, Stream) and not iterable.is_pythons:
        return _of_stream(iterable, body, names, values, line, breaks=breaks)
    if isinstance(iterable, Steps):
        return _counted(iterable, body, names, values, line)
    if isinstance(iterable, SymbolicRange) and not _appends(iterable, body, names, values, line):
        return _counted(iterable.steps, body, names, values, line, iterable.length)
    rows = rows_of(iterable)
    if rows is None and breaks and isinstance(iterable, range) and is_tracing():
        return _of_numbers(iterable, body, names, values, line)
    return _unrolled(iterable, body, values) if rows is None else _through(rows, body, names, values, line)


def _of_numbers(
    numbers: range, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int
) -> tuple[Any, ...]:
    """A loop over a range that Python knows. Where a size may leave it before its end, its steps are one, but for the
    first ones, in which the bounds of the size may answer."""
    for place in range(min(len(numbers), _FIRST)):
        if leaves_by_size(body, numbers[place], *values):
            rest = numbers[place:]
            steps = steps_between(rest.start, rest.stop, rest.step)
            return _counted(steps, body, names, values, line, len(rest))
        goes_on, values = body(numbers[place], *values)
        if depends_on_data(goes_on):
            return _unrolled(numbers[place + 1 :], body, values, goes_on)
        if not goes_on:
            return values
    return _unrolled(numbers[_FIRST:], body, values)


def _of_stream(
    stream: Stream, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int, *, breaks: bool
) -> tuple[Any, ...]:
    """A loop whose steps are between those of what makes its elements."""
    if not isinstance(stream, Mapped):
        return stream.through(body, names, values)
    source, function = stream.parts()
    return for_(source, lambda item, *current: body(function(item), *current), names, values, line, breaks=breaks)


def _appends(numbers: SymbolicRange, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int) -> bool:
    """Whether a loop over a range fills a list."""
    steps = numbers.steps
    try:
        return (
            Loop(body, names, values, line, lambda: (steps.number(torch.zeros_like(steps.count)),)).analysed().appends
        )
    except (ReadsOwnListError, UnstableError) as reason:  # which a loop over its numbers may come past
        forget(reason)
        return True


def _through(
    rows: Rows, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int, *, may_be_empty: bool = False
) -> tuple[Any, ...]:
    """A loop over rows. Where its steps need that, it carries the ends of lists, or its first step is written before
    it."""
    if has_parts(rows.tensors):
        body = _of_elements(body)
    try:
        return with_own_lists(
            lambda own: own.behind(
                _over_rows(rows, own.around(body), own.names, own.start(), line, may_be_empty=may_be_empty)
            ),
            body,
            names,
            values,
            line,
        )
    except UnstableError as error:
        reason: RewriteError = error
    except ReadsOwnListError as error:
        if error.is_of_another_loop:
            raise
        reason = error
    if may_be_empty:
        raise reason
    return _behind_the_first(rows, body, names, values, line, reason)


def _of_elements(body: Body) -> Body:
    """A body that takes elements of a pool, and reads the pool itself."""
    return lambda item, *current: body(as_elements(item), *current)


def _over_rows(
    rows: Rows, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int, *, may_be_empty: bool = False
) -> tuple[Any, ...]:
    loop = Loop(body, names, values, line, lambda: (rows.like_one(),)).analysed()
    if loop.gives_shapes and not _has_steps(rows.length):
        return values
    packing = loop.packing()
    if packing is not None:
        step = packing.around(lambda i, *current: body(rows.at(i), *current))
        made = _counted(steps_of(rows), step, [*names, *packing.names], (*values, *packing.start()), line, rows.length)
        packing.fill(made[len(values) :], None if loop.breaks else rows.length)
        return made[: len(values)]
    loop.require_steps_to_differ()
    if loop.breaks and loop.appends and not loop.is_resized:
        until = _until_left(body)
        return _over_rows(rows, until, ["is left", *names], (False, *values), line, may_be_empty=may_be_empty)[1:]
    may_be_empty = may_be_empty or has_free_unbacked_symbols(rows.length)
    if loop.breaks or loop.is_resized or (may_be_empty and not loop.appends):
        return _counted(
            steps_of(rows), lambda i, *current: body(rows.at(i), *current), names, values, line, rows.length
        )
    return loop.scan(rows, has_steps=loop.gives_shapes and not has_free_unbacked_symbols(rows.length))


def _has_steps(length: Any) -> bool:
    """Whether a loop has a step, which is a question of sizes as any other: without one its variables are what they
    were, and may be of another kind. Where tensor data decides the length it is taken for granted."""
    return has_free_unbacked_symbols(length) or bool(length > 0)


def _until_left(body: Body) -> Body:
    """A body that tensor data may leave as one that does nothing in the steps behind that: a scan has all steps."""

    def step(item: Any, is_left: Any, *values: Any) -> tuple[bool, tuple[Any, ...]]:
        goes_on, after = if_(is_left, lambda: (False, values), lambda: body(item, *values))
        return True, (not_(goes_on), *after)

    return step


def _behind_the_first(
    rows: Rows, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int, reason: RewriteError
) -> tuple[Any, ...]:
    """A loop whose variables have their kind, or whose lists their end, only behind the first step, which is written
    before it.

    :raises RewriteError: the kinds change later, too
    """
    if not _has_steps(rows.length):
        return values
    torch._check(rows.length > 0)  # type: ignore[no-untyped-call]
    goes_on, after = body(rows.first(), *values)
    rest = rows.behind_the_first()
    try:
        result: tuple[Any, ...] = if_(
            goes_on,
            lambda: _through(rest, body, names, after, line, may_be_empty=True),
            lambda: after,
            names,
            line=line,
        )
    except (UnstableError, ReadsOwnListError):
        raise reason from None
    forget(reason)
    return result


def _unrolled(iterable: Iterable[Any], body: Body, values: tuple[Any, ...], goes_on: Any = True) -> tuple[Any, ...]:
    elements = drawn(iterable, lambda: depends_on_data(goes_on))
    for count, item in enumerate(elements):
        if depends_on_data(goes_on):
            if count >= _STEPS and may_have_no_end(iterable):
                raise RewriteError(
                    f"{line_now()}: a loop goes through a {type(iterable).__name__}, and only tensor data ends it "
                    f"within {_STEPS} steps, each of which is a part of the program: write it as `while`, or as a "
                    "`for` over range(…)"
                )
            current = values
            goes_on, values = if_(goes_on, lambda: body(item, *current), lambda: (False, current))  # noqa: B023
            continue
        goes_on, values = body(item, *values)
        if not depends_on_data(goes_on) and not goes_on:  # before another element is made
            break
    return values


def _counted(
    steps: Steps, body: Body, names: Sequence[str], values: tuple[Any, ...], line: int, length: Any = None
) -> tuple[Any, ...]:
    """A loop over a range that depends on tensor data, as `while position < count`.

    :param length: how many steps there are, if sizes tell
    """

    def goes_on(position: Any, *current: Any) -> Any:
        return position < steps.count

    def step_of(body: Body) -> Body:
        def step(position: Any, *current: Any) -> tuple[Any, tuple[Any, ...]]:
            flag, after = body(steps.number(position), *current)
            return flag, (position + 1, *after)

        return step

    def analysed(own: OwnLists) -> tuple[Loop, OwnLists, Body, tuple[Any, ...]]:
        step, start = step_of(own.around(body)), (torch.zeros_like(steps.count), *own.start())
        return Loop(step, ["position", *own.names], start, line, tuple, goes_on).analysed(), own, step, start

    loop, own, step, start = with_own_lists(analysed, body, names, values, line)
    is_asked = loop.gives_shapes and length is not None
    if is_asked and not _has_steps(length):
        return values
    has_steps = is_asked and not has_free_unbacked_symbols(length)
    return own.behind(_run_while(loop, step, ["position", *own.names], start, line, has_steps=has_steps)[1:])


def while_(
    test: Callable[..., Any],
    body: Body,
    names: Sequence[str],
    values: tuple[Any, ...],
    line: int = 0,
    *,
    breaks: bool = False,
) -> tuple[Any, ...]:
    """`while test: body`; a Python test is a Python loop, a test on tensor data a `while_loop`.

    :param breaks: whether the body holds a `break`
    """
    goes_on: Any = True
    if is_tracing() and _changes_something(test, values):
        test, body, breaks = _always, _testing_first(test, body), True
    while not depends_on_data(goes_on):
        if not goes_on:
            return values
        is_of_size = _asks_of_a_size(test, values)
        if is_of_size:
            resized = _resized(test, body, names, values, line)
            if resized is not None:
                return _run_while(resized, body, names, values, line)
        decision = truth_of(test(*values))
        if depends_on_data(decision):
            return _run_while(_while_loop(test, body, names, values, line), body, names, values, line)
        by_size = _attempted(test, body, names, values, line) if is_of_size else None
        if by_size is not None and not (by_size.gives_shapes and not decision):
            return _run_while(by_size, body, names, values, line, has_steps=by_size.gives_shapes)
        if not decision:
            return values
        left = _left_by_size(test, body, names, values, line) if breaks else None
        if left is not None:
            return _run_while(left, body, names, values, line)
        goes_on, values = body(*values)
    return _run_while(_while_loop(test, body, names, values, line), body, names, values, line, goes_on)


def _changes_something(test: Callable[..., Any], values: tuple[Any, ...]) -> bool:
    """Whether a test does more than to tell: a graph asks it apart from the step that follows."""
    snapshot = Snapshot(functions=[test])
    if snapshot.holds_iterators():  # whose elements cannot be put back
        return True
    captured, aliases = Captured(), aliases_now()
    before = aliases.stale_now()
    with unbound():
        run = Run(lambda: test(*values), snapshot, captured)
    aliases.set_stale(before)
    return bool(run.changes) or any(captured.mark_written())


def _testing_first(test: Callable[..., Any], body: Body) -> Body:
    """The steps of `while True: if not test: break; body`."""

    def step(*values: Any) -> tuple[Any, tuple[Any, ...]]:
        outcome: tuple[Any, tuple[Any, ...]] = if_(test(*values), lambda: body(*values), lambda: (False, values))
        return outcome

    return step


def _always(*_: object) -> bool:
    return True


def _while_loop(test: Callable[..., Any], body: Body, names: Sequence[str], values: tuple[Any, ...], line: int) -> Loop:
    def analysed(own: OwnLists) -> Loop:
        tested, step = own.around_while(test, body)
        loop = Loop(step, own.names, own.start(), line, tuple, tested).analysed()
        loop.behind = own.behind
        return loop

    return with_own_lists(analysed, body, names, values, line)


def _run_while(
    loop: Loop,
    body: Body,
    names: Sequence[str],
    values: tuple[Any, ...],
    line: int,
    goes_on: Any = True,
    *,
    has_steps: bool = False,
) -> tuple[Any, ...]:
    """An analysed loop with a test. Where it fills a list, whose rows only a scan makes, it is run once to count its
    steps, and once more with that many."""
    packing = loop.packing() if loop.is_resized else None
    if packing is not None:
        if len(loop.names) > len(names):  # the test and the steps read a list which they fill
            raise RewriteError(refusal(line_now()))
        step, start = packing.around(body), (*values, *packing.start())
        test = packing.around_test(loop.test)
        packed = Loop(step, [*names, *packing.names], start, line, tuple, test).analysed()
        made = packed.while_loop(goes_on, has_steps=has_steps)
        packing.fill(made[len(values) :])
        return made[: len(values)]
    if not loop.appends or loop.is_resized:
        return loop.behind(loop.while_loop(goes_on, has_steps=has_steps))[: len(values)]
    count = loop.count(goes_on).item()
    torch._check(count >= 0)  # type: ignore[no-untyped-call]
    steps = Rows(number_rows(torch.arange(count)))
    return _through(steps, lambda _, *current: body(*current), names, values, line, may_be_empty=True)


def _asks_of_a_size(test: Callable[..., Any], values: tuple[Any, ...]) -> bool:
    """Whether a test asks Python about sizes of the inputs, or is such a question: sizes that may decide the steps."""
    mode = torch._guards.detect_fake_mode()
    if mode is None or mode.shape_env is None:
        return False
    with unbound(), asked_of(mode.shape_env) as asked:
        decision = record(lambda: truth_of(test(*values)), Captured())
    return bool(asked) or (isinstance(decision, torch.SymBool | torch.SymInt) and not depends_on_data(decision))


def _resized(
    test: Callable[..., Any], body: Body, names: Sequence[str], values: tuple[Any, ...], line: int
) -> Loop | None:
    """The loop whose steps give its variables other sizes, which decide about its steps."""
    try:
        return Loop(body, names, values, line, tuple, test).with_other_sizes()
    except RuntimeError as error:  # of a body that Python alone can run, one step after the other
        if is_stop(error):
            raise
        return None


def _left_by_size(
    test: Callable[..., Any], body: Body, names: Sequence[str], values: tuple[Any, ...], line: int
) -> Loop | None:
    """The loop which a size ends within a step."""
    if not is_tracing() or not leaves_by_size(body, *values):
        return None
    loop = _resized(test, body, names, values, line) or _attempted(test, body, names, values, line)
    return loop if loop is not None and loop.breaks else None


def _attempted(
    test: Callable[..., Any], body: Body, names: Sequence[str], values: tuple[Any, ...], line: int
) -> Loop | None:
    """The loop whose number of steps a size decides, if its variables have one kind in every step; else Python counts
    the steps, for one size."""
    try:
        return _while_loop(test, body, names, values, line)
    except RewriteError as reason:
        forget(reason)
        return None
    except RuntimeError as error:  # of a body that has no step left, such as one that takes elements out of a list
        if is_stop(error):
            raise
        return None
