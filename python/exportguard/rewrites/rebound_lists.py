"""Variables that branches or steps leave as lists of several lengths: `outs = outs + [row]`, `beams = beams[:2]`.

Such a variable has a list of its own within the branches or the steps. What one of them leaves in the variable is put
into that list: a change in place, which the graph carries as the rows of one tensor (`whole_lists`). For Python nothing
is changed in place, so whatever else has the list that was, or the one that takes its place, must not see the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils import _pytree as pytree

from exportguard.rewrites.carrying import UnstableError
from exportguard.rewrites.collected import Grown, joined, parts_of
from exportguard.rewrites.contents import Bookkeeping
from exportguard.rewrites.opening import is_object
from exportguard.rewrites.places import line_now
from exportguard.rewrites.recording import Captured, record
from exportguard.rewrites.sharing import are_one, copies_of_changed, has_another_name, held_together, lists_in
from exportguard.rewrites.state import UNDEFINED, Snapshot
from exportguard.rewrites.watch import note_containers
from exportguard.rewrites.whole_lists import Likeness, Whole
from exportguard.source.errors import RewriteError, forget


class ReboundLists(Bookkeeping):
    """Variables with a list of their own, which takes their place.

    :param functions: the branches, or the body of a loop
    :param before: the variables in front of them, none if what is left has no names
    :param is_loop: whether nobody reads behind it a variable that has no value in front of it
    :param reached: what is within reach of the functions in front of them; None: it is looked for when it is needed
    """

    def __init__(
        self,
        names: Sequence[str],
        functions: Sequence[Callable[..., Any]],
        before: Sequence[Any],
        line: int,
        *,
        is_loop: bool = False,
        reached: Snapshot | None = None,
    ) -> None:
        self._names = names
        self._functions = functions
        self._before = before
        self._line = line
        self._is_loop = is_loop
        self._reached = reached
        self._lists: dict[int, Grown] = {}  # by the place of the variable
        self._held: dict[int, list[Any]] = {}  # what the variables held in front of a loop
        self._rows: list[Whole] = []
        self._together: set[tuple[int, int]] = set()  # variables that were left as one list
        self._elsewhere: list[tuple[int, Any]] = []  # lists that one was left as and that have another name

    @property
    def lists(self) -> list[Grown]:
        """Those that are in the places of variables."""
        return [*self._lists.values()]

    def add(self, place: int | None, *left: Any) -> bool:
        """Gives a variable a list of its own; whether what it has, or is left as, can be rows of one tensor.

        :param left: what branches or a step leave in it
        """
        if place is None:  # of a loop within the loop
            return False
        start = self._start(place)
        try:
            kinds = [record(lambda: _likeness_of(item), Captured()) for item in (start, *left)]  # noqa: B023
        except RewriteError as reason:  # such as a list of texts
            forget(reason)
            return False
        known = next((kind for kind in kinds if kind is not None), None)
        if known is None:
            return False
        self._reached = self._reached or Snapshot(functions=self._functions)
        own = self._lists[place] = Grown(parts_of(start) if self._is_loop else [])
        own.is_carried = self._is_loop
        self._held[place] = parts_of(start) if isinstance(start, list) else []
        self._rows.append(Whole(own, known))
        return True

    def place_of(self, start: object) -> int | None:
        """The place of the first variable without a list of its own that was this in front of the loop."""
        return next((k for k, value in enumerate(self._before) if value is start and k not in self._lists), None)

    def begin(self) -> None:
        """Makes rows of what the lists hold in front of a loop, none of a list without elements."""
        for rows in self._rows:
            rows.become_rows()

    def hidden(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The variables as a graph carries them: not those that have lists."""
        return tuple(None if place in self._lists else value for place, value in enumerate(values))

    def shown(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The variables as code has them."""
        return tuple(self._lists.get(place, value) for place, value in enumerate(values))

    def taken(self, values: Sequence[Any], *, was: Sequence[list[Any]] | None = None) -> tuple[Any, ...]:
        """What a branch or a step leaves, with what it leaves in the variables put into their lists.

        :param was: what the lists held when the step began
        :raises RewriteError: something else has one of those lists and sees that it is changed in place
        """
        is_changed = was is not None and not all(map(_are_same, was, [own.parts for own in self.lists]))
        for place in self._lists:
            self._require_apart(place, values, is_changed=is_changed)
        own = {id(grown): grown.parts for grown in self.lists}
        left = {place: parts_of(values[place]) for place in self._lists}
        for place, grown in self._lists.items():
            list.__setitem__(grown, slice(None), left[place])
        self.begin()
        return self.hidden([Grown(own[id(value)]) if id(value) in own else value for value in values])

    def behind(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The variables behind the branches or the loop."""
        made = self.shown(values)
        shared = [(place, self._start(place)) for place in self._lists if self._is_loop and self._is_shared(place)]
        together = [(place, made[other]) for place, other in self._together if isinstance(made[other], list)]
        found = [(self._name(place), item, made[place]) for place, item in (*shared, *self._elsewhere, *together)]
        note_containers(found, self._line)
        return made

    @property
    def _snapshot(self) -> Snapshot:
        assert self._reached is not None, "a variable was given a list"
        return self._reached

    def _start(self, place: int) -> Any:
        return self._before[place] if place < len(self._before) else UNDEFINED

    def _name(self, place: int) -> str:
        return f"`{self._names[place]}`" if place < len(self._names) == len(self._before) else "a list"

    def _require_apart(self, place: int, values: Sequence[Any], *, is_changed: bool) -> None:
        """Refuses a list that a variable has, or is left as, which something else has that sees it changed in place."""
        left = values[place]
        if not isinstance(left, list):
            raise RewriteError(
                f"{line_now()}: {self._name(place)} is left as lists of several lengths, and as a "
                f"{type(left).__name__}; let it be a list on every way"
            )
        is_older = self._is_older(left)
        if is_older:
            self._elsewhere.append((place, left))
        is_refused = is_changed and (is_older or self._is_shared(place))
        is_refused |= self._is_loop and not _are_same(self._held[place], parts_of(self._start(place)))
        is_refused |= self._is_loop and any(are_one(slot.owner, left) for slot, _ in self._snapshot.changes())
        is_refused |= not self._snapshot.knows(left) and Snapshot(functions=self._functions).holds(left)
        for other, value in enumerate(values):
            if other == place or (self._is_loop and self._start(other) is UNDEFINED):
                continue
            if are_one(value, left):
                self._together.add((place, other))
            is_refused |= are_one(value, left) and is_changed
            is_refused |= any(are_one(found, left) or found is self._lists[place] for found in lists_in(value))
        if is_refused:
            raise RewriteError(
                f"{line_now()}: {self._name(place)} is left as lists of several lengths, and has another name besides; "
                "what is changed under one name is changed under both in Python, and a graph has two: copy it, as by "
                "list(…)"
            )

    def _is_older(self, left: Any) -> bool:
        """Whether a list from before the branches or the step has, or may have, another name behind them."""
        if not self._is_loop and not getattr(left, "is_carried", False):
            return self._snapshot.knows(left)  # what is not used again is not taken for one that is
        # A function that returns what its branches make goes no further.
        return (self._is_loop or bool(self._names)) and has_another_name(left, self._names, self._snapshot)

    def _is_shared(self, place: int) -> bool:
        """Whether the list that a variable had in front of the branches or the loop has another name there."""
        start = self._start(place)
        if not isinstance(start, list):
            return False
        others = [value for other, value in enumerate(self._before) if other != place]
        if any(are_one(start, found) for value in others for found in (value, *lists_in(value))):
            return True
        return has_another_name(start, self._names, self._snapshot)


@contextmanager
def as_before(
    names: Sequence[str], values: Sequence[Any], reached: Snapshot
) -> Iterator[Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """While open, a step of an analysis may change the lists, dicts and objects that variables are; behind it they are
    what they were.

    Yields what gives what a step leaves, with copies of what it changed.

    :param reached: what is within reach of the loop
    """
    snapshot = Snapshot([value for value in values if isinstance(value, list | dict | tuple) or is_object(value)])
    sets = [(value, set(value)) for value in values if isinstance(value, set)]

    def kept(after: Sequence[Any]) -> tuple[Any, ...]:
        if any(now != before for now, before in sets):
            raise RewriteError(
                f"{line_now()}: a step of a loop over tensors changes a set in place, and no graph has one: add "
                "numbers to it one by one, `seen.add(k)`, or have a tensor of what was seen: seen[k] = True"
            )
        changes = snapshot.changes()
        read = [left for left, given in zip(after, values, strict=True) if given is not UNDEFINED]
        if changes and any(any(held_together(of)) for of in (values, read)):
            raise RewriteError(
                f"{line_now()}: a step of a loop over tensors changes a list, dict or object in place that a variable "
                "holds, and two variables hold one of them; in Python a change of the one is seen under both names in "
                "the next step, and a graph has two: copy it"
            )
        seen = next((slot for slot, _ in changes if has_another_name(slot.owner, names, reached)), None)
        if seen is not None:
            raise UnstableError(
                f"{line_now()}: a step of a loop over tensors gives a variable a list, dict or object, and changes in "
                "place the one that it had in front of the loop, which has another name there; a graph has two: copy it"
            )
        copies = copies_of_changed(after, (slot for slot, _ in changes))
        return tuple(copies.get(id(value), value) for value in after)

    try:
        yield kept
    finally:
        snapshot.restore(snapshot.changes())


def of_two_lengths(first: Sequence[Any], second: Sequence[Any]) -> Iterator[int]:
    """The variables that are lists of two structures."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        are_lists = isinstance(one, list) and isinstance(other, list) and one is not other
        if are_lists and pytree.tree_structure(one) != pytree.tree_structure(other):
            yield place


def _likeness_of(item: object) -> Likeness | None:
    """What the elements of a list are like; None if it has none."""
    parts = parts_of(item) if isinstance(item, list) else []
    return Likeness(joined(parts)) if parts else None


def _are_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
