"""What ends a run where Python raises: a file keeps no checks, but an index that no table has stops it as well."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

from exportguard.rewrites.checks import check_data
from exportguard.rewrites.raising import require_no_handler


def entries(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The rows of a table at some places, not negative; a run ends where it has none.

    The operator is called itself, for an index out of bounds is no IndexError of the model's.
    """
    found: torch.Tensor = torch.ops.aten.index_select.default(table, 0, places)
    return found


def nothing_unless(is_right: torch.Tensor) -> torch.Tensor:
    """0, int64 of rank 0, to be added to what is made then; where a test fails, a run ends."""
    check_data(is_right)
    place = torch.logical_not(is_right).to(torch.int64).reshape(1)
    return entries(torch.zeros(1, dtype=torch.int64), place).reshape(())


def first_place(found: torch.Tensor, *, is_there: bool = False) -> torch.Tensor:
    """The place of the first true element; where there is none, a run ends as Python does.

    :param is_there: whether one is true in every run
    :raises RewriteError: the model may catch what Python raises then
    """
    if is_there:
        return _first(found)
    require_no_handler(ValueError, "the index of what a list does not have")
    return place_of_one(found)


def place_of_one(found: torch.Tensor) -> torch.Tensor:
    """The place of the first true element; where there is none, a run ends."""
    check_data(found.any())
    return entries(torch.arange(found.shape[0]), _first(found).reshape(1)).reshape(())


def _first(found: torch.Tensor) -> torch.Tensor:
    """The place of the first true element, or their number."""
    count = found.shape[0]
    places = torch.arange(count)
    return torch.cat([torch.where(found, places, count), places.new_full((1,), count)]).amin()


def place_of(index: int) -> int:
    """How many elements lie before one from its end of a list: index 1 is the second, -1 the first from behind."""
    return index if index >= 0 else -index - 1


def require_element(index: int, count: Any) -> None:
    """Notes that a list has an element of that number.

    :raises RewriteError: data decide whether it has, and the model may catch what Python raises then
    """
    if has_free_unbacked_symbols(count):
        require_no_handler(IndexError, "an element that a list does not have")
    torch._check(count > place_of(index))  # type: ignore[no-untyped-call]


def all_but(index: int, count: Any) -> torch.Tensor:
    """The places of as many elements, int64 of rank 1, without that of one; a run ends where it is not there."""
    require_element(index, count)
    wanted = torch.scalar_tensor(index if index >= 0 else count + index, dtype=torch.int64)
    missing = entries(torch.arange(count), wanted.reshape(1))
    if has_free_unbacked_symbols(count):  # how many are left is asked of what ends the run, for `len(…)` alone
        count = count + (missing - wanted).sum().item()
        torch._check(count > 0)  # type: ignore[no-untyped-call]
    places = torch.arange(count - 1)
    return places + (places >= missing)
