"""What stands in a container under an index that only the run knows: `experts[int(k)]`, `scales[i]`, `{0: f}[k]`.

Numbers of one kind and tensors of one shape are looked up in a tensor. Anything else is a `Choice`: what is asked of it
- to call it, to read an attribute or an element - is asked of every element of the container, each in a branch of its
own. As in Python an index out of bounds is an error, so that there is no further branch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from exportguard.rewrites.aliases import aliases_now
from exportguard.rewrites.collected import Grown, is_open
from exportguard.rewrites.conditional import ifexp, require_uncaught
from exportguard.rewrites.data import as_flag, depends_on_data
from exportguard.rewrites.ends_of_runs import place_of_one
from exportguard.rewrites.numbers import alternatives_of, as_number, is_number, number_tensor
from exportguard.rewrites.places import line_now
from exportguard.rewrites.size_keys import key_in
from exportguard.rewrites.texts import TextOfData, by_number, require_no_text_of_data
from exportguard.source.errors import RewriteError

_MOST = 64  # branches of one choice
SEQUENCES = (list, tuple, torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ParameterList)
MAPPINGS = (dict, torch.nn.ModuleDict, torch.nn.ParameterDict)

Test = Callable[[], Any]


def is_choice(container: object, index: object) -> bool:
    """Whether only the run knows which element of a container of Python's is meant."""
    if not isinstance(container, (*SEQUENCES, *MAPPINGS)) or is_open(container):
        return False  # such a list knows rows
    is_index = not isinstance(index, torch.Tensor) or (index.dim() == 0 and not index.is_floating_point())
    return is_index and depends_on_data(index) and _has_plain(container, "__getitem__")


def _has_plain(container: object, method: str) -> bool:
    """Whether a method of a container is that of Python or torch, and not one that a class of the model wrote anew."""
    own = getattr(type(container), method, None)
    return any(own is getattr(base, method, None) for base in (*SEQUENCES, *MAPPINGS, Grown))


def chosen_item(container: Any, index: Any) -> Any:
    """`container[index]`, where `is_choice`.

    Raises:
        RewriteError: an index out of bounds may be caught by the model, or there are too many elements.
    """
    if hasattr(type(container), "__missing__"):
        raise RewriteError(
            f"{line_now()}: a {type(container).__name__} makes what it does not have, and is asked for a key that only "
            f"the run knows; {'write the default out: table.get(key, default)' if container else _AS_A_TENSOR}"
        )
    elements, tests = _cases(container, index)
    require_uncaught(KeyError if isinstance(container, MAPPINGS) else IndexError)
    found = _from_a_table(container, elements, index)
    if found is not None:
        return found
    if len(elements) == 1:  # two branches, for what asks whether it is there must have a part in the result
        elements, tests = elements * 2, [*tests, lambda: False]
    return _asked(elements, _of_one(tests), lambda element: element)


def entry_or(container: Any, key: Any, *default: Any) -> Any:
    """`container.get(key, default)`, which may be anything's method of that name, with a default or without."""
    if isinstance(key, TextOfData) and isinstance(container, MAPPINGS) and _has_plain(container, "get"):
        container, key = by_number(container, key)  # type: ignore[arg-type]
    require_no_text_of_data(key)
    if not isinstance(container, dict) or not _has_plain(container, "get"):
        return container.get(key, *default)
    key = key_in(container, key)
    if not is_choice(container, key):
        return container.get(key, *default)
    elements, tests = _cases(container, key)
    return _branched([*elements, *(default or (None,))], tests, lambda element: element)


def put_chosen(content: object, container: Any, index: Any, *, is_there: bool = False) -> None:
    """`container[index] = content`, where `is_choice`.

    :param is_there: whether the container surely has an element there, as one that was read before
    """
    if isinstance(container, MAPPINGS) and not is_there:
        raise RewriteError(
            f"{line_now()}: a dict is given an entry under a key that only the run knows, and no graph can tell which "
            "entries it has then: make the entries before, or write into a tensor"
        )
    elements, tests = _cases(container, index)
    if not is_there:
        require_uncaught(IndexError)
        tests = _of_one(tests)
    places = [*container] if isinstance(container, MAPPINGS) else range(len(elements))
    for place, element, test in zip(places, elements, tests, strict=True):
        container[place] = ifexp(test(), lambda: content, lambda: element)  # noqa: B023 - read at once


_AS_A_TENSOR = (
    "no graph knows the keys of a dict that data fills: have a tensor with a place for each key, table = "
    "torch.zeros(n), table[key] += value, or, for the rows of a key, a mask: x[keys == key]"
)


def _cases(container: Any, index: Any) -> tuple[list[Any], list[Test]]:
    """The elements of a container, and for each whether it is the one."""
    if isinstance(container, MAPPINGS):
        keys = [*container]
        if not all(isinstance(key, int | float) for key in keys):
            raise RewriteError(
                f"{line_now()}: a dict with keys that are no numbers is asked for one that only the run knows; "
                "give it numbers for keys, or write the tests out"
            )
        elements, tests = [container[key] for key in keys], [_equals(index, key) for key in keys]
    else:
        elements = [*container]
        count = len(elements)
        if not count and isinstance(container, Grown):
            container.item(0)  # raises; a loop may fill it later
        tests = [_either(index, place, place - count) for place in range(count)]
    if not elements and isinstance(container, MAPPINGS):
        raise RewriteError(f"{line_now()}: an empty dict is asked for a key that only the run knows; {_AS_A_TENSOR}")
    if not elements or len(elements) > _MOST:
        raise RewriteError(
            f"{line_now()}: one of {len(elements)} elements of a {type(container).__name__} is chosen by a number that "
            f"only the run knows, each of which would be a branch; make it a tensor, or have from 1 to {_MOST}"
        )
    return elements, tests


def _equals(index: Any, key: object) -> Test:
    return lambda: index == key


def _either(index: Any, place: int, from_behind: int) -> Test:
    """Whether an index means a place, counted from either end."""
    if isinstance(index, torch.Tensor):
        return lambda: torch.logical_or(index == place, index == from_behind)
    if statically_known_true(index >= 0):
        return lambda: index == place
    return lambda: torch.logical_or(number_tensor(index) == place, number_tensor(index) == from_behind)


def _of_one(tests: Sequence[Test]) -> list[Test]:
    """The same tests, of which one is true: a run ends where none is, as Python's does."""
    place = place_of_one(torch.stack([as_flag(test()) for test in tests]))
    return [functools.partial(torch.eq, place, k) for k in range(len(tests))]


def _from_a_table(container: Any, elements: Sequence[Any], index: Any) -> Any:
    """The element out of a tensor of all of them; None if they do not fit into one."""
    if isinstance(container, Mapping | torch.nn.Module):
        return None
    position = number_tensor(index).reshape(1)
    if all(isinstance(element, bool | int | float) or is_number(element) for element in elements):
        numbers = [number_tensor(element) for element in elements]
        dtype = numbers[0].dtype
        if any(number.dtype != dtype or len(alternatives_of(number)) > 1 for number in numbers):
            return None
        is_plain = all(isinstance(element, bool | int | float) for element in elements)
        table = torch.tensor(elements, dtype=dtype) if is_plain else torch.stack(numbers)
        return as_number(table[position].squeeze(0))
    if not _are_alike(elements):
        return None
    row = torch.stack([*elements])[position].squeeze(0)
    aliases_now().link(row, elements)
    return row


def _are_alike(elements: Sequence[Any]) -> bool:
    first = elements[0]
    return all(
        isinstance(element, torch.Tensor)
        and not is_number(element)
        and element.dtype == first.dtype
        and element.dim() == first.dim()
        and all(statically_known_true(a == b) for a, b in zip(element.shape, first.shape, strict=True))
        for element in elements
    )


def _asked(elements: Sequence[Any], tests: Sequence[Test], ask: Callable[[Any], Any]) -> Any:
    """What the chosen one of the elements answers: a value that branches can give, or again a choice."""
    if any(_is_a_value(element) for element in elements):
        return _branched(elements, tests, ask)
    return Choice(elements, tests)


def _is_a_value(element: object) -> bool:
    return element is None or isinstance(
        element, torch.Tensor | bool | int | float | str | torch.SymInt | torch.SymFloat
    )


def _branched(elements: Sequence[Any], tests: Sequence[Test], ask: Callable[[Any], Any]) -> Any:
    """By halves: a branch runs more than once until it is a graph, and so does, each time, what lies in it."""
    if len(elements) == 1:
        return ask(elements[0])
    half = len(elements) // 2
    return ifexp(
        _any_of(tests[:half]),
        lambda: _branched(elements[:half], tests[:half], ask),
        lambda: _branched(elements[half:], tests[half:], ask),
    )


def _any_of(tests: Sequence[Test]) -> Any:
    """Whether one of several tests is true."""
    if len(tests) == 1:
        return tests[0]()
    found: Any = torch.zeros((), dtype=torch.bool)
    for test in tests:
        told = test()
        told = told if isinstance(told, torch.Tensor) else torch.scalar_tensor(told, dtype=torch.bool)
        found = torch.logical_or(found, told)
    return found


class Choice:
    """One of several objects, such as layers, functions or lists; which one only the run knows."""

    def __init__(self, elements: Sequence[Any], tests: Sequence[Test]) -> None:
        self._elements = elements
        self._tests = tests

    @property
    def elements(self) -> Sequence[Any]:
        """What may be the chosen one."""
        return self._elements

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _branched(self._elements, self._tests, lambda element: element(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        held = [getattr(element, name) for element in self._elements]
        return _asked(held, self._tests, lambda element: element)

    def __getitem__(self, index: Any) -> Any:
        return _asked([element[index] for element in self._elements], self._tests, lambda element: element)

    def __iter__(self) -> Iterator[Any]:
        if not all(isinstance(element, list | tuple) and not is_open(element) for element in self._elements):
            _refuse("goes through")
        return iter([self[place] for place in range(len(self))])

    def __len__(self) -> int:
        lengths = {len(element) for element in self._elements}
        if len(lengths) > 1:
            _refuse("counts, or takes apart,")
        return lengths.pop()

    def __bool__(self) -> NoReturn:
        _refuse("tests")


def _refuse(what: str) -> NoReturn:
    raise RewriteError(
        f"{line_now()}: the model {what} what it chose from a container by a number that only the run knows; call it, "
        "read its attributes, or write the tests out"
    )
