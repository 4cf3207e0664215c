"""What torch's tracer knows of the tensors that live, looked up by identity."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch

_FEWEST = 1024  # entries, before it is looked whether their tensors still live


class Tracked(MutableMapping[torch.Tensor, Any]):
    """A dictionary of tensors that holds none of them.

    Torch's own makes an object with comparisons in Python for each look-up, which takes as long as all the rest of a
    call that is replayed. Here an entry is found by the address of its tensor and counts only while that tensor lives.
    """

    def __init__(self, known: Mapping[torch.Tensor, Any]) -> None:
        self._entries: dict[int, tuple[weakref.ref[torch.Tensor], Any]] = {}
        self._most = _FEWEST
        self.update(known.items())

    def get(self, key: torch.Tensor, default: Any = None) -> Any:
        entry = self._entries.get(id(key))
        return entry[1] if entry is not None and entry[0]() is key else default

    def __getitem__(self, key: torch.Tensor) -> Any:
        entry = self._entries.get(id(key))
        if entry is None or entry[0]() is not key:
            raise KeyError(key)
        return entry[1]

    def __contains__(self, key: object) -> bool:
        entry = self._entries.get(id(key))
        return entry is not None and entry[0]() is key

    def __setitem__(self, key: torch.Tensor, value: Any) -> None:
        self._entries[id(key)] = (weakref.ref(key), value)
        if len(self._entries) > self._most:
            self._forget_dead()

    def __delitem__(self, key: torch.Tensor) -> None:
        if key not in self:
            raise KeyError(key)
        del self._entries[id(key)]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([key for reference, _ in self._entries.values() if (key := _alive(reference)) is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _forget_dead(self) -> None:
        self._entries = {place: entry for place, entry in self._entries.items() if _alive(entry[0]) is not None}
        self._most = max(_FEWEST, 2 * len(self._entries))


def _alive(reference: weakref.ref[torch.Tensor]) -> torch.Tensor | None:
    tensor = reference()
    # A tensor that C++ alone holds gets its Python object back (torch 2.11 to 2.13: torch.utils.weak.WeakIdRef).
    if tensor is not None and hasattr(tensor, "_fix_weakref"):
        tensor._fix_weakref()
    return tensor
