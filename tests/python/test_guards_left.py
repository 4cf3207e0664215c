"""Guards that are left where they are not open, in another context, or in the order in which they were entered."""

from __future__ import annotations

import contextvars

import pytest

from exportguard import GuardError, torch_export_patches
from exportguard.repeats.plan import current_plan
from test_guard import snapshot


def test_a_guard_that_is_not_open_is_left_by_nobody() -> None:
    guard = torch_export_patches()
    with pytest.raises(GuardError, match="the guard is not open"):
        guard.__exit__(None, None, None)
    with guard:
        pass
    with pytest.raises(GuardError, match="the guard is not open"):
        guard.__exit__(None, None, None)


@pytest.mark.parametrize("raises", [False, True])
def test_a_guard_may_be_left_in_another_context(raises: bool) -> None:
    """As by a fixture of asyncio, or a generator: the error of the block is the one that is raised."""
    guard, before = torch_export_patches(repeats="trace all"), snapshot()
    contextvars.copy_context().run(guard.__enter__)
    own = (KeyError, KeyError("own"), None) if raises else (None, None, None)
    guard.__exit__(*own)
    assert snapshot() == before
    assert current_plan().traces_once


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_guards_say_of_repeats_ends_with_each(order: tuple[int, int]) -> None:
    guards = [torch_export_patches(repeats="trace all") for _ in range(2)]
    for guard in guards:
        guard.__enter__()
    assert not current_plan().traces_once
    guards[order[0]].__exit__(None, None, None)
    assert not current_plan().traces_once
    guards[order[1]].__exit__(None, None, None)
    assert current_plan().traces_once
