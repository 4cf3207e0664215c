"""What ends a run where Python raises: a file keeps no checks, but an index that no table has stops it as well."""

from __future__ import annotations

import torch

from exportguard.rewrites.checks import check_data
from exportguard.rewrites.raising import require_no_handler


def entries(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The rows of a table at some places, not negative; a run ends where it has none.

    The operator is called itself, for an index out of bounds is no IndexError of the model's.
    """
    found: torch.Tensor = torch.ops.aten.index_select.default(table, 0, places)
    return found


def first_place(found: torch.Tensor, *, is_there: bool = False) -> torch.Tensor:
    """The place of the first true element; where there is none, a run ends as Python does.

    :param is_there: whether one is true in every run
    :raises RewriteError: the model may catch what Python raises then
    """
    count = found.shape[0]
    places = torch.arange(count)
    first = torch.cat([torch.where(found, places, count), places.new_full((1,), count)]).amin()
    if is_there:
        return first
    require_no_handler(ValueError, "the index of what a list does not have")
    check_data(found.any())
    return entries(places, first.reshape(1)).reshape(())
