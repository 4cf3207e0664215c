"""Cache classes registered with pytree outside a guard."""

from __future__ import annotations

import threading

from exportguard import _core
from exportguard.errors import GuardError
from exportguard.patches import all_patches

_kept: _core.KeptChanges | None = None
_kept_lock = threading.Lock()


def register_cache_serialization() -> list[str]:
    """Makes every known cache class known to pytree until `unregister_cache_serialization`; returns the patches' names.

    :raises GuardError: if they are registered already
    """
    global _kept
    serializers = [patch for patch in all_patches() if patch.kind == "serializer" and patch.verdict()[0] == "needed"]
    with _kept_lock:
        if _kept is not None:
            raise GuardError("the cache classes are registered; call unregister_cache_serialization first")
        changes = _core.KeptChanges()
        for patch in serializers:
            patch.install(changes)
        _kept = changes
    return [patch.name for patch in serializers]


def unregister_cache_serialization() -> None:
    """Undoes `register_cache_serialization`; what was registered before comes back.

    :raises GuardError: if that function was not called
    """
    global _kept
    with _kept_lock:
        changes, _kept = _kept, None
    if changes is None:
        raise GuardError("register_cache_serialization was not called")
    changes.undo()
