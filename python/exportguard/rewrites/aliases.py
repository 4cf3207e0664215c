"""One analysis of shared memory: names, views, containers, attributes, and what branches merge and loops carry.

Higher-order operators return new tensors. Where Python has one storage under several names - `y = x` in one branch,
`prev = h` before a loop - the graph then has several. Nobody can tell the difference until one of them is changed
in place and another is read. So each tensor that comes out of a branch or a loop is known with the storages that it
may be in Python; a write makes every other tensor that may be the same storage stale; and to read a stale tensor is
refused. Views share the storage of their base in Python and in the graph alike and need no rule of their own, except
that a body takes two views of one storage as two operands: that is for `Captured` to see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from exportguard.rewrites.places import line_now
from exportguard.source.errors import RewriteError

_LOOKS = frozenset(
    (
        *(
            "size",
            "dim",
            "ndimension",
            "numel",
            "nelement",
            "stride",
            "storage_offset",
            "is_contiguous",
            "element_size",
        ),
        *("is_floating_point", "is_complex", "data_ptr", "untyped_storage", "storage", "get_device", "__len__"),
        *("_is_view", "is_inference", "is_conj", "is_neg", "__hash__", "__set__", "requires_grad_", "retain_grad"),
        *("is_set_to", "is_signed", "is_pinned", "register_hook", "_set_grad_enabled", "device"),
    )
)


def storage_of(tensor: torch.Tensor) -> Any:
    """What a tensor and its views have in common."""
    return tensor.untyped_storage()


def only_looks(func: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a torch function asks for no number in a tensor: sizes, dtypes, attributes.

    What it gives may be a tensor all the same, as `x.T` is; `x.type(dtype)` is a conversion, `x.type()` a name.
    """
    name = getattr(func, "__name__", "")
    return name == "__get__" or name in _LOOKS or (name == "type" and len(args) + len(kwargs) == 1)


_NOW: list[Aliases] = []


class Aliases:
    """Which tensors may be one storage in Python, and which of them a write has made stale."""

    def __init__(self) -> None:
        self._denotes: dict[int, frozenset[int]] = {}
        self._held: dict[int, Any] = {}  # storages, so that no key is used twice
        self._stale: dict[int, str] = {}
        self._is_internal = 0

    def _key(self, tensor: torch.Tensor) -> int:
        storage = storage_of(tensor)
        key = int(storage._cdata)
        self._held.setdefault(key, storage)
        return key

    def _denoted(self, key: int) -> frozenset[int]:
        return self._denotes.get(key, frozenset((key,)))

    def link(self, result: torch.Tensor, sources: Iterable[Any], stale_from: Iterable[Any] | None = None) -> None:
        """Notes that a result may be any of some tensors in Python; it is stale if one of `stale_from` is."""
        own = self._key(result)
        keys = [self._key(source) for source in sources if isinstance(source, torch.Tensor)]
        self._denotes[own] = self._denoted(own).union(*(self._denoted(key) for key in keys), (own,))
        asked = keys if stale_from is None else [self._key(s) for s in stale_from if isinstance(s, torch.Tensor)]
        for key in asked:
            if key in self._stale:
                self._stale[own] = self._stale[key]

    def may_be_one(self, tensor: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether a path through a branch or a loop may have made two tensors of a trace one in Python."""
        keys = self._key(tensor), self._key(other)
        if tensor.dim() != other.dim() or not any(key in self._denotes for key in keys):
            return False
        return not self._denoted(keys[0]).isdisjoint(self._denoted(keys[1]))

    def begin_again(self, carried: torch.Tensor, end: object) -> None:
        """In its next step a loop finds in a variable what the step before left there, stale or not."""
        if isinstance(end, torch.Tensor) and end is not carried:
            self._stale.pop(self._key(carried), None)
            self.link(carried, [end])

    def read(self, tensors: Iterable[torch.Tensor], what: str = "") -> None:
        """Refuses to read what a write under another name may have changed.

        :param what: what is read; a tensor at the line that runs now, if it is not said
        """
        if not self._stale or self._is_internal:
            return
        for tensor in tensors:
            where = self._stale.get(self._key(tensor))
            if where is not None:
                read = what or f"{line_now()}: a tensor is read"
                raise RewriteError(
                    f"{read} that {where} changes in place under another name; the two share "
                    "memory in Python where a branch or a loop over tensor data says so, which no graph can tell: "
                    "write `y = y + …` instead of `y += …`, or clone it before"
                )

    def written(self, tensor: torch.Tensor) -> None:
        """Makes all that may be the storage of a tensor under another name stale."""
        if not self._denotes:
            return
        key = self._key(tensor)
        mine = self._denoted(key)
        others = {other for other, denoted in self._denotes.items() if denoted & mine} | mine
        for other in others - {key}:
            self._stale[other] = line_now()

    def is_stale(self, tensor: object, stale: Mapping[int, str] | None = None) -> bool:
        """Whether a tensor may hold other numbers in Python.

        :param stale: what was stale at some time; now, if it is None
        """
        known = self._stale if stale is None else stale
        return isinstance(tensor, torch.Tensor) and bool(known) and self._key(tensor) in known

    # -------------------------------------------------------------------------------------- runs of bodies

    @contextmanager
    def internal(self) -> Iterator[None]:
        """For reads by the rewriting itself, which hands tensors on."""
        self._is_internal += 1
        try:
            yield
        finally:
            self._is_internal -= 1

    def stale_now(self) -> dict[int, str]:
        """What is stale, to come back to."""
        return dict(self._stale)

    def set_stale(self, stale: dict[int, str]) -> None:
        """Comes back to what was stale."""
        self._stale = dict(stale)


def aliases_now() -> Aliases:
    """Those of the export that goes on, or new ones."""
    return _NOW[-1] if _NOW else Aliases()


@contextmanager
def followed(aliases: Aliases) -> Iterator[None]:
    """For the time of an export."""
    _NOW.append(aliases)
    try:
        yield
    finally:
        _NOW.pop()
