"""Which lists, dicts and objects from before a test or a loop something new takes the place of.

What comes out of a branch or a loop is made anew, and may be in Python what has another name as well. Nobody can tell
the difference until one of the two is changed.
"""

from __future__ import annotations

import ast
import copy
import linecache
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

from exportguard.rewrites.catching import model_frames
from exportguard.rewrites.collected import Collected, Grown, Maybe
from exportguard.rewrites.opening import is_object
from exportguard.rewrites.state import UNDEFINED, Slot, Snapshot
from exportguard.rewrites.watch import are_two, pairs_of_two
from exportguard.source.errors import RewriteError

Path = tuple[Any, ...]
_DEPTH = 4  # containers in containers


def replaced(one: object, other: object, is_older: Callable[[Any], bool]) -> Iterator[tuple[Path, Any]]:
    """The places within two values for one variable at which they are two lists, dicts or objects, with those of them
    that were there before."""
    return _replaced(one, other, is_older, ())


def _replaced(one: Any, other: Any, is_older: Callable[[Any], bool], path: Path) -> Iterator[tuple[Path, Any]]:
    if one is other or len(path) > _DEPTH:
        return
    for item in (one, other):
        if _is_container(item) and is_older(item):
            yield path, item
    first, second = _parts_of(one), _parts_of(other)
    for key in first:
        if key in second:
            yield from _replaced(first[key], second[key], is_older, (*path, key))


def require_apart(
    names: Sequence[str], before: Sequence[Any], after: Sequence[Any], changed: Sequence[Slot], line: int
) -> None:
    """Refuses a step of a loop that gives a variable a list, dict or object which it changes under another name.

    The next step would have one under both names in Python, and two in a graph.

    :param before: the variables in front of the step
    :param after: the variables behind it
    :param changed: what the step changed of what was there before the loop
    """
    owners = {id(slot.owner) for slot in changed}
    pairs = pairs_of_two() if owners else []
    owners |= {one for pair in pairs for one, other in (pair, pair[::-1]) if other in owners}
    for name, old, new in zip(names, before, after, strict=True):
        if not owners or old is UNDEFINED:  # which a step gives a value before it reads it
            continue
        own = {id(part) for part in _containers(old)}
        taken = next((part for part in _containers(new) if id(part) in owners - own), None)
        if taken is not None:
            raise RewriteError(
                f"line {line}: a step of a loop over tensors gives `{name}` a {_KINDS.get(type(taken), 'container')} "
                "that it changes under another name; the next step has one under both names in Python, and two in a "
                "graph: copy it"
            )


def _is_container(item: Any) -> bool:
    is_of_a_list = isinstance(item, Collected | Maybe)  # which nobody changes
    return isinstance(item, list | dict) or (is_object(item) and not is_of_a_list)


def are_one(item: Any, other: Any) -> bool:
    """Whether two objects are one, or may be one in Python."""
    return item is other or are_two(item, other)


def held_together(values: Sequence[Any]) -> Iterator[tuple[tuple[int, Path], tuple[int, Path]]]:
    """The places of two values at which they are, or hold, one list, dict or object, or what are two in the trace and
    may be one in Python."""
    found: dict[int, tuple[int, Path]] = {}
    for place, value in enumerate(values):
        own = {id(item): path for path, item in _with_paths(value, ())}
        yield from ((found[key], (place, path)) for key, path in own.items() if key in found)
        found |= {key: (place, path) for key, path in own.items() if key not in found}
    known = ((found[one], found[other]) for one, other in pairs_of_two() if one in found and other in found)
    yield from (pair for pair in known if pair[0][0] != pair[1][0])


def _with_paths(item: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if _is_container(item):
        yield path, item
    for key, part in _parts_of(item).items() if len(path) < _DEPTH else ():
        yield from _with_paths(part, (*path, key))


def named_together(names: Sequence[str], values: Sequence[Any], made: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Names of values that are, or hold, one list, dict or object, with the two that what is made of them has there."""
    for (one, first), (other, second) in held_together(values):
        pair = at(made[one], first), at(made[other], second)
        if all(map(_is_container, pair)) and pair[0] is not pair[1]:
            name = names[other] if other < len(names) else "a variable"
            yield from ((name, *pair), (name, *pair[::-1]))  # whichever is changed


_KINDS: dict[type, str] = {list: "list", Grown: "list", dict: "dict"}


def _containers(item: Any) -> Iterator[Any]:
    """The lists, dicts and objects that a value is and holds."""
    return (part for _, part in _with_paths(item, ()))


def lists_in(item: Any) -> Iterator[Any]:
    """The lists, dicts and objects that a value holds, not itself."""
    return (part for part in _containers(item) if part is not item)


def copies_of_changed(values: Iterable[Any], changed: Iterable[Slot]) -> dict[int, Any]:
    """By their identity, copies of those values that are, or hold, lists, dicts and objects which a run changed: what
    it changed is undone behind it, and what it gives a variable is not.

    :param changed: where it changed something
    """
    owners = {id(slot.owner) for slot in changed}
    made: dict[int, Any] = {}

    def copied(item: Any, depth: int = 0) -> Any:
        if id(item) in made or depth > _DEPTH or not owners:
            return made.get(id(item), item)
        parts = {key: copied(part, depth + 1) for key, part in _parts_of(item).items()}
        is_same = all(part is old for part, old in zip(parts.values(), _parts_of(item).values(), strict=True))
        if id(item) not in owners and is_same:
            return item
        made[id(item)] = _like(item, parts)
        return made[id(item)]

    values = [*values]
    return {id(value): copied(value) for value in values if copied(value) is not value}


def _like(item: Any, parts: dict[Any, Any]) -> Any:
    """A list, dict, tuple or object of the same class with these parts."""
    if isinstance(item, list):
        return Grown(parts.values()) if isinstance(item, Grown) else [*parts.values()]
    if isinstance(item, tuple):
        return type(item)._make(parts.values()) if hasattr(item, "_make") else (*parts.values(),)
    if type(item) is dict:
        return parts
    made = object.__new__(type(item)) if not isinstance(item, dict) else copy.copy(item)
    (made if isinstance(item, dict) else vars(made)).update(parts)
    return made


def at(item: Any, path: Path) -> Any:
    """What stands at a place within a value; None if there is none."""
    for key in path:
        item = _parts_of(item).get(key)
    return item


def _parts_of(item: Any) -> dict[Any, Any]:
    if isinstance(item, dict):
        return item
    if isinstance(item, list):
        return dict(enumerate(list.__iter__(item)))
    if isinstance(item, tuple):
        return dict(enumerate(item))
    return vars(item) if is_object(item) else {}


def has_another_name(item: object, names: Container[str], snapshot: Snapshot) -> bool:
    """Whether a variable of the functions that run now, other than these, is an object or holds it, or an object within
    reach of the branches or of the loop does."""
    if snapshot.holds(item):
        return True
    for frame in model_frames():
        assigned = _assigned_at(frame.f_code.co_filename, frame.f_lineno)
        for name, value in frame.f_locals.items():
            if name not in names and name not in assigned and _is_or_holds(value, item):
                return True
    return False


def _is_or_holds(value: object, item: object) -> bool:
    return value is item or any(part is item for part in _parts_of(value).values())


def _assigned_at(file: str, line: int) -> set[str]:
    """The variables that a statement of one line assigns, which are other ones behind it."""
    try:
        tree = ast.parse(linecache.getline(file, line).strip())
    except SyntaxError:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
