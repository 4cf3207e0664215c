"""What all tests share: the same random numbers in each run, a library that says what it has to say, thinned grids."""

from __future__ import annotations

import logging
import random
from collections import Counter

import numpy as np
import pytest
import torch


def seed_everything() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


# pytest 9.2 listens to what does not reach the root's handlers, and torch gathers a stack for each condition on sizes
# as soon as anybody listens to its trace: a tenth of the time of all tests.
logging.getLogger("torch.__trace").propagate = True

seed_everything()  # for the numbers that a file makes where it is read, in the lists of its parameters


@pytest.fixture(autouse=True)
def _the_same_numbers_in_each_run() -> None:
    seed_everything()


@pytest.fixture(autouse=True)
def _no_test_is_quiet_because_of_another() -> None:
    logging.getLogger("exportguard").setLevel(logging.NOTSET)  # which a command line with -q has set


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every", action="store_true", help="run the cases that `thinned` leaves out, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thinned(n): a run takes one in n of a test's cases, with --every all of them")


#: Of a grid, which is the product of several lists, and of one list, a run takes one case in so many, but where it has
#: few or says more.
_OF_GRIDS = 14
_OF_LISTS = 7
_FEW = 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out cases of long lists, of grids, and of what is `thinned`. One that is asked for by its name is run."""
    if config.option.every:
        return
    named = tuple(arg for arg in config.args if "::" in arg)
    cases = Counter(_test_of(item) for item in items)
    seen: Counter[str] = Counter()
    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        test = _test_of(item)
        is_asked_for = item.nodeid.startswith(named)
        parts[is_asked_for or _is_taken(seen[test], _share(item, cases[test]))].append(item)
        seen[test] += 1
    items[:] = parts[True]
    config.hook.pytest_deselected(items=parts[False])


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _share(item: pytest.Item, cases: int) -> int:
    """Of how many cases a run takes one."""
    marker = item.get_closest_marker("thinned")
    if marker is not None:
        return int(marker.args[0])
    lists = sum(1 for _ in item.iter_markers("parametrize"))
    if cases <= _FEW or not lists:
        return 1
    return _OF_GRIDS if lists > 1 else _OF_LISTS


def _is_taken(index: int, share: int) -> bool:
    """One case in `share`, in steps of the golden ratio: in a grid each row and each column has about its part."""
    return index * (5**0.5 - 1) / 2 % 1 < 1 / share
