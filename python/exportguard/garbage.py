"""Python's garbage collector while modules are imported, and during an export."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_NEVER = 2**30
_OFTEN = 50_000  # objects between two looks at the young ones; a trace makes them by the million, and keeps most


@contextlib.contextmanager
def without_full_collections() -> Iterator[None]:
    """Within the block the collector looks only at young objects, and less often.

    torch and transformers are half a million objects, and a full collection goes through all of them: a quarter of a
    second for every 60 layers that are exported. They are not frozen instead, for `gc.get_referrers`, by which the
    function that runs some code is found, does not see frozen objects.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(max(young, _OFTEN) if young else 0, middle, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """For a block that imports: what it makes stays, and the collector, which looks through it again and again, finds
    nothing.

    Behind it all objects are old, as if a collection had been gone through: to freeze and to unfreeze makes them so,
    and looks at none. It is left out where somebody has frozen others.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:
                gc.freeze()
                gc.unfreeze()
            gc.enable()
