"""Who may use an object again: found in the code that runs, and in what holds the object."""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exportguard.rewrites.later_uses import later_use

Found = list[str | None]
_GLOBAL: list[Any] = []


def ask(item: Any, found: Found) -> None:
    found.append(later_use([item]))


def made() -> Iterator[int]:
    return iter([1, 2, 3])


class Holder:
    """Something of the model's that has attributes."""

    item: Any = None


# -- not used again


def passed_on(found: Found) -> None:
    ask(made(), found)


def in_a_variable(found: Found) -> None:
    item = made()
    ask(item, found)


def in_a_list(found: Found) -> None:
    items = [made(), 2]
    ask(items[0], found)


def read_before(found: Found) -> None:
    item = made()
    next(item)
    ask(item, found)


def given_another_value(found: Found) -> None:
    for _ in range(2):
        item = made()
        ask(item, found)
        item = None
    list(item or ())


def made_in_each_step(found: Found) -> None:
    for _ in range(2):
        item = made()
        next(item)
        ask(item, found)


def read_on_the_other_path(found: Found) -> None:
    item = made()
    if len(found) == 0:
        ask(item, found)
    else:
        list(item)


def by_a_callee(found: Found) -> None:
    def inner(item: Any) -> None:
        ask(item, found)

    inner(made())


def by_stars(found: Found) -> None:
    def inner(*items: Any, **others: Any) -> None:
        ask(items[0], found)
        ask(others["k"], found)

    inner(made(), k=made())


def shared_with_a_function_that_ran(found: Found) -> None:
    item = made()

    def first() -> int:
        return next(item)

    first()
    del first
    ask(item, found)


UNUSED = [
    passed_on, in_a_variable, in_a_list, read_before, given_another_value, made_in_each_step, read_on_the_other_path,
    by_a_callee, by_stars, shared_with_a_function_that_ran,
]  # fmt: skip

# -- used again, or maybe


def read_behind(found: Found) -> None:
    item = made()
    ask(item, found)
    list(item)


def read_in_the_next_step(found: Found) -> None:
    item = made()
    for _ in range(2):
        ask(item, found)


def read_by_a_handler(found: Found) -> None:
    item = made()
    try:
        ask(item, found)
        found.index("what is not there")
    except ValueError:
        list(item)


def read_in_the_end(found: Found) -> None:
    item = made()
    try:
        ask(item, found)
    finally:
        list(item)


def returned(found: Found) -> Any:
    item = made()
    ask(item, found)
    return item


def in_a_list_that_is_read(found: Found) -> None:
    items = [made(), 2]
    ask(items[0], found)
    items.clear()


def by_another_name(found: Found) -> None:
    item = other = made()
    ask(item, found)
    list(other)


def read_by_the_caller(found: Found) -> None:
    def inner(item: Any) -> None:
        ask(item, found)

    item = made()
    inner(item)
    list(item)


def shared_with_a_function(found: Found) -> None:
    item = made()

    def rest() -> list[int]:
        return list(item)

    ask(item, found)
    rest()


def shared_with_a_lambda_in_a_list(found: Found) -> None:
    item = made()
    functions = [lambda: list(item)]
    ask(item, found)
    functions[0]()


def by_a_function_that_runs(found: Found) -> None:
    item = made()

    def again(count: int) -> None:
        ask(item, found)
        if count:
            again(count - 1)

    again(1)


def a_default(found: Found) -> None:
    def rest(item: Any = made()) -> Any:  # noqa: B008 - what is looked for
        return item

    ask(rest.__defaults__[0], found)  # type: ignore[index]
    rest()


def an_attribute(found: Found) -> None:
    holder = Holder()
    holder.item = made()
    ask(holder.item, found)


def an_attribute_of_a_class(found: Found) -> None:
    Holder.item = made()
    ask(Holder.item, found)
    Holder.item = None


def a_global(found: Found) -> None:
    _GLOBAL[:] = [made()]
    ask(_GLOBAL[0], found)
    _GLOBAL.clear()


def partial(found: Found) -> None:
    item = made()
    rest = functools.partial(list, item)
    ask(item, found)
    rest()


def a_method(found: Found) -> None:
    item = made()
    step = item.__next__
    ask(item, found)
    step()


def in_another_iterator(found: Found) -> None:
    item = made()
    rest = enumerate(item)
    ask(item, found)
    next(rest)


def in_a_generator(found: Found) -> None:
    item = made()
    rest = (number for number in item)
    ask(item, found)
    next(rest)


def a_copy_of_an_iterator(found: Found) -> None:
    item, other = itertools.tee(made())
    (common,) = gc.get_referents(item)
    ask(common, found)
    next(other)


USED = [
    read_behind, read_in_the_next_step, read_by_a_handler, read_in_the_end, returned, in_a_list_that_is_read,
    by_another_name, read_by_the_caller, shared_with_a_function, shared_with_a_lambda_in_a_list,
    by_a_function_that_runs, a_default, an_attribute, an_attribute_of_a_class, a_global, partial, a_method,
    in_another_iterator, in_a_generator, a_copy_of_an_iterator,
]  # fmt: skip


@pytest.mark.parametrize("program", UNUSED, ids=lambda program: program.__name__)
def test_nobody_uses_what_is_not_read_again(program: Callable[[Found], None]) -> None:
    found: Found = []
    program(found)
    assert found
    assert set(found) == {None}


@pytest.mark.parametrize("program", USED, ids=lambda program: program.__name__)
def test_what_may_be_used_again_is_told(program: Callable[[Found], None]) -> None:
    found: Found = []
    program(found)
    assert found[0] is not None


def test_the_variable_is_named() -> None:
    found: Found = []
    read_behind(found)
    assert found == ["`item`"]
