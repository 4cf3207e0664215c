"""What is remembered from one block of a trace to the next: the paths that they took, sizes, and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from exportguard.repeats.answers import Answers
from exportguard.repeats.counts import Counts
from exportguard.repeats.keys import SYMBOLIC, UncomparableError, is_comparable, scalar_key
from exportguard.repeats.paths import Path, Step


class Memory:
    """That of one trace; it ends with it."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.counts = Counts()
        self.answers = Answers()
        self._paths: dict[tuple[int, ...], Path] = {}
        self._comparable: dict[Any, bool] = {}
        self._sizes: dict[Any, Any] = {}

    def path(self, steps: Sequence[Step]) -> Path:
        """The one object for blocks that made the same steps."""
        return self._paths.setdefault(tuple(map(id, steps)), Path(tuple(steps)))

    def is_comparable(self, func: Any) -> bool:
        """Whether equal keys of two calls of the operator mean equal results."""
        known = self._comparable.get(func)
        if known is None:
            known = self._comparable[func] = is_comparable(func)
        return known

    def size(self, func: Any, args: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """Arithmetic of sizes: what an earlier block computed is not computed, and not put into the graph, again."""
        try:
            key = (func, tuple([scalar_key(value) for value in args]))
        except UncomparableError:
            return compute()
        known = self._sizes.get(key)
        if known is None:
            known = compute()
            if isinstance(known, SYMBOLIC):
                self._sizes[key] = known
        return known
