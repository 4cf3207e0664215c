"""Lists that a step of a loop reads while the loop fills them: `outs.append(f(outs[-1], row))`.

What steps before appended is nowhere in the body of a scan. The last elements are therefore carried from step to step
as variables are, with the length of the list: `outs[-1]`, `outs[-2:]`, `outs[t - 1]` by the number of the step,
`outs[len(outs) - 2]` and `len(outs)` are answered with them. `outs[0]` is what it was before the loop, if it was there.
Where a step asks for anything else (`torch.stack(outs)`, `for o in outs`, `outs.pop()`), the loop carries the rows of
the whole list (`whole_lists`), and where it gives a variable another list, a list in the place of that variable
(`rebound_lists`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from torch.utils import _pytree as pytree

from exportguard.rewrites.carrying import UnstableError
from exportguard.rewrites.collected import Collected, Grown, Maybe, truth_of
from exportguard.rewrites.conditional import ifexp
from exportguard.rewrites.numbers import Affine, affine_of
from exportguard.rewrites.places import line_now
from exportguard.rewrites.rebound_lists import ReboundLists, of_two_lengths
from exportguard.rewrites.watch import containers_of_attempt
from exportguard.rewrites.whole_lists import Likeness, Whole
from exportguard.source.errors import RewriteError, forget

Body = Callable[..., tuple[Any, tuple[Any, ...]]]
Result = TypeVar("Result")

_DEEPEST = 8  # elements that are carried


class ReadsOwnListError(RewriteError):
    """A step of a loop reads lists that it appends to, or appends to them what no rows of a scan are.

    :param depth: how many elements at the end of them are asked for
    :param is_whole: whether all elements are needed
    :param likeness: for each list what its elements are like, where it may have none before the loop
    """

    def __init__(
        self,
        text: str,
        lists: Sequence[Grown],
        depth: int = 0,
        *,
        is_whole: bool = False,
        likeness: Sequence[Likeness | None] = (),
    ) -> None:
        super().__init__(text)
        self.lists = lists
        self.depth = depth
        self.is_whole = is_whole
        self.likeness = {id(one): like for one, like in zip(lists, likeness, strict=False) if like is not None}

    @property
    def is_of_another_loop(self) -> bool:
        """Whether a loop around the one that is analysed fills the list."""
        return any(grown.tail is not None for grown in self.lists)


def refusal(where: str) -> str:
    """Why a list cannot be read in a step that appends to it."""
    return (
        f"{where}: a step of a loop over tensors reads a list that it appends to, or puts elements elsewhere than at "
        "its end; keep what the next step needs in a variable (`last = …`), or write into a tensor of the loop's length"
    )


class Tail:
    """The last elements of a list that steps before the one that runs have filled.

    :param elements: the last one first
    :param count: the length of the list when the step began
    :param number: the number of the step, if the loop counts its steps and the list had a known length before it
    """

    def __init__(self, grown: Grown, elements: Sequence[Any], count: Any, number: Affine | None, start: int) -> None:
        self._grown = grown
        self._elements = [*elements]
        self._base = len(grown.parts)
        parts = enumerate(grown.parts)
        self._known = next((k for k, part in parts if isinstance(part, Collected | Maybe)), self._base)
        self._count = count
        self._number = number
        self._start = start  # how long the list was before the loop
        self._is_counted = False  # whether a number of the loop was the index

    def _appended(self) -> list[Any]:
        return self._grown.parts[self._base :]

    @property
    def is_filled(self) -> bool:
        """Whether the list surely has an element."""
        return bool(self._elements) or any(not isinstance(part, Maybe | Collected) for part in self._appended())

    def length(self) -> Any:
        """The length of the list now."""
        total = self._count
        for part in self._appended():
            if isinstance(part, Collected):
                self.refuse()
            total = total + (ifexp(part.is_there, lambda: 1, lambda: 0) if isinstance(part, Maybe) else 1)
        return total

    def item(self, index: Any) -> Any:
        """`outs[index]`."""
        if isinstance(index, int) and not isinstance(index, bool) and index < 0:
            return self._from_behind(-index)
        if _is_end(index):
            return Grown([self._from_behind(k) for k in range(-index.start, 0, -1)])
        if isinstance(index, int) and not isinstance(index, bool) and index < self._known:
            return self._grown.parts[index]
        place = self._place_of(index)
        if place is None or place < 1:
            self.refuse()
        if place > len(self._elements):
            self._require_deeper(place)
        return self._elements[place - 1]  # wherever the end is now: what was there keeps its place

    def _place_of(self, index: object) -> int | None:
        """How far behind the end, as the step found it, an index by the number of the step or by the length lies."""
        known, own, length = affine_of(index), self._number, affine_of(self._count)
        if known is not None and length is not None and known.root is length.root:
            return length.offset - known.offset
        if known is None or own is None or known.root is not own.root or not isinstance(own.low, int):
            return None
        self._is_counted = True
        return self._start - own.low - known.offset

    def _from_behind(self, place: int) -> Any:
        now = self.elements()
        if place > len(now):
            self._require_deeper(place)
        return now[place - 1]

    def _require_deeper(self, place: int) -> NoReturn:
        """Asks for more elements than are carried."""
        if place > _DEEPEST:
            self.refuse()
        raise ReadsOwnListError(refusal(line_now()), [self._grown], place)

    def elements(self) -> list[Any]:
        """The last elements now, as many as are carried and what the step has appended."""
        current = [*self._elements]
        for part in self._appended():
            if isinstance(part, Collected):
                self.refuse()
            if isinstance(part, Maybe):
                current = [self._either(part, k, current) for k in range(len(current))]
            else:
                current = [part, *current]
        return current

    @staticmethod
    def _either(part: Maybe, place: int, current: Sequence[Any]) -> Any:
        new = part.value if place == 0 else current[place - 1]
        return ifexp(part.is_there, lambda: new, lambda: current[place])

    def end(self) -> tuple[tuple[Any, ...], Any]:
        """What the next step finds: the last elements and the length."""
        if self._is_counted and (len(self._appended()) != 1 or isinstance(self._appended()[0], Maybe | Collected)):
            self.refuse()  # an index is then no place from behind
        return tuple(self.elements()[: len(self._elements)]), self.length()

    def refuse(self) -> NoReturn:
        """Says that the ends of the list do not tell this."""
        raise ReadsOwnListError(refusal(line_now()), [self._grown], is_whole=True)


class OwnLists:
    """Lists of which a loop carries the ends and the lengths: variables of its that are added to those of the model.

    :param names: the variables of the model
    :param values: what they are before the loop
    :param lists: each has `depth` elements at its end
    :param whole: lists of which it carries all rows
    :param rebound: variables that steps leave as lists of other lengths
    """

    def __init__(
        self,
        names: Sequence[str],
        values: Sequence[Any],
        lists: Sequence[Grown],
        depth: int,
        whole: Sequence[Whole],
        rebound: ReboundLists,
    ) -> None:
        self._names = names
        self._values = values
        self._lists = [*lists]
        self._depth = depth
        self._whole = [*whole]
        self._rebound = rebound
        self._lengths = [None if grown.is_open else len(grown.parts) for grown in lists]

    @property
    def names(self) -> list[str]:
        """Of the variables, with those that are added."""
        return [*self._names, *(name for _ in self._lists for name in ("the end of a list", "the length of a list"))]

    def start(self) -> tuple[Any, ...]:
        """What they hold before the loop."""
        for grown in self._whole:
            grown.become_rows()
        self._rebound.begin()
        ends = [tuple(grown.item(-k - 1) for k in range(self._depth)) for grown in self._lists]
        added = (part for end, grown in zip(ends, self._lists, strict=True) for part in (end, grown.length()))
        return (*self._rebound.hidden(self._values), *added)

    def behind(self, made: Sequence[Any]) -> tuple[Any, ...]:
        """The variables of the model behind the loop."""
        return self._rebound.behind(made[: len(self._values)])

    def around(self, body: Body) -> Body:
        """The body of a loop over items that carries them as well."""
        lists, whole, rebound = self._lists, self._whole, self._rebound
        own = rebound.lists  # what the body reads is found by the variables of functions
        if not lists and not whole and not own:
            return body

        def step(item: Any, *current: Any) -> tuple[Any, tuple[Any, ...]]:
            count = len(current) - 2 * len(lists)
            with self._begun(item, current[count:]):
                was = [grown.parts for grown in own]
                goes_on, after = body(item, *rebound.shown(current[:count]))
                ends = [grown.tail.end() for grown in lists]
            for grown in whole:
                grown.become_rows()
            return goes_on, (*rebound.taken(after, was=was), *(part for end in ends for part in end))

        return step

    def around_while(self, test: Callable[..., Any], body: Body) -> tuple[Callable[..., Any], Body]:
        """The test and the body of a `while` that carries them as well."""
        lists, rebound = self._lists, self._rebound
        own = rebound.lists  # for the variables of the test
        if not lists and not self._whole and not own:
            return test, body
        around = self.around(lambda _, *current: body(*current))

        def tested(*current: Any) -> Any:
            count = len(current) - 2 * len(lists)
            with self._begun(None, current[count:]):
                return truth_of(test(*rebound.shown(current[:count]))) if own else truth_of(test(*current[:count]))

        return tested, lambda *current: around(None, *current)

    @contextmanager
    def _begun(self, item: Any, carried: Sequence[Any]) -> Iterator[None]:
        """While open, the lists are what a step finds."""
        self._begin(item, carried)
        try:
            yield
        finally:
            for grown in self._lists:
                grown.tail = None

    def _begin(self, item: Any, carried: Sequence[Any]) -> None:
        number = next((known for leaf in pytree.tree_leaves(item) if (known := affine_of(leaf)) is not None), None)
        is_counted = number is not None and number.is_counted
        for place, (grown, length) in enumerate(zip(self._lists, self._lengths, strict=True)):
            known = number if is_counted and length is not None else None
            grown.tail = Tail(grown, carried[2 * place], carried[2 * place + 1], known, length or 0)


def with_own_lists(
    run: Callable[[OwnLists], Result], body: Body, names: Sequence[str], values: Sequence[Any], line: int
) -> Result:
    """What a function makes of a loop that carries the ends of the lists that its steps read, or all of them, as far as
    they ask, and the variables that they leave as lists of other lengths.

    :raises ReadsOwnListError: a list does not surely have what is asked for before the loop, or another loop fills it
    :raises UnstableError: the variables are not of one kind before the loop and behind a step
    :raises RewriteError: a list is asked for in vain, or its elements are not known to be of one size
    """
    rebound = ReboundLists(names, [body], values, line, is_loop=True)
    unstable: UnstableError | None = None
    while True:
        try:
            return _with_lists(run, names, values, rebound)
        except UnstableError as error:
            if not _is_rebound(rebound, error):
                raise unstable or error from None
            unstable = unstable or error
            forget(error)
        except RewriteError as error:
            if unstable is None:
                raise
            raise UnstableError(f"{unstable} ({error})") from None


def _is_rebound(rebound: ReboundLists, error: UnstableError) -> bool:
    """Takes in the variables that are lists of two structures; whether there are some."""
    pairs = [(error.before[k], error.behind[k]) for k in of_two_lengths(error.before, error.behind)]
    added = [rebound.add(rebound.place_of(start), start, end) for start, end in pairs]
    return any(added)


def _with_lists(
    run: Callable[[OwnLists], Result], names: Sequence[str], values: Sequence[Any], rebound: ReboundLists
) -> Result:
    own: list[Grown] = []
    whole: list[Grown] = []
    likeness: dict[int, Likeness] = {}
    depth = 0
    while True:
        rows = [Whole(grown, likeness.get(id(grown))) for grown in whole]
        try:
            with containers_of_attempt():
                return run(OwnLists(names, values, own, depth, rows, rebound))
        except ReadsOwnListError as error:
            if error.is_of_another_loop:
                raise
            known = len(own), depth, len(whole)
            found = whole if error.is_whole else own
            found += [grown for grown in error.lists if not _is_among(grown, [*whole, *found])]
            likeness |= error.likeness
            depth = max(depth, error.depth)
            whole += [
                grown for grown in own if not _is_among(grown, whole) and not can_be_carried(grown, max(depth - 1, 0))
            ]
            own = [grown for grown in own if not _is_among(grown, whole)]
            if not all(can_be_carried(grown, depth) for grown in own) or not all(
                grown.parts or id(grown) in likeness for grown in whole
            ):
                raise
            if known == (len(own), depth, len(whole)):
                raise RewriteError(str(error)) from error
            forget(error)


def _is_among(grown: Grown, others: Sequence[Grown]) -> bool:
    return any(grown is other for other in others)


def can_be_carried(grown: Grown, depth: int) -> bool:
    """Whether a list surely has that many elements at its end."""
    last = grown.parts[-depth:] if depth else []
    return len(last) == depth and not any(isinstance(part, Collected | Maybe) for part in last)


def _is_end(index: object) -> bool:
    """Whether an index is `-k:`."""
    is_open = isinstance(index, slice) and index.stop is None and index.step is None
    return is_open and isinstance(index.start, int) and index.start < 0  # type: ignore[attr-defined]
