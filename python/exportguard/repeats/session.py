"""One trace: its model's repeated blocks, the block that is running, and the paths that blocks took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from exportguard.repeats.counts import Counts
from exportguard.repeats.keys import SYMBOLIC, UncomparableError, is_comparable, scalar_key, thread_state
from exportguard.repeats.kinds import Kinds
from exportguard.repeats.modes import Modes
from exportguard.repeats.paths import Path, Place, Step
from exportguard.repeats.region import Region


class Session:
    """What is remembered of one trace; it ends with it."""

    def __init__(self, tracer: Any, model: torch.nn.Module) -> None:
        self.tracer = tracer
        self.counts = Counts()
        self.region: Region | None = None
        self.modes = Modes(tracer)
        self._kinds = Kinds(model)
        self._roots: dict[Any, Step] = {}
        self._paths: dict[tuple[int, ...], Path] = {}
        self._comparable: dict[Any, bool] = {}
        self._sizes: dict[Any, Any] = {}

    @contextmanager
    def block(self, module: torch.nn.Module) -> Iterator[None]:
        """While a module is called: its calls are compared with those of modules of its kind."""
        key = None if self.region is not None else self._kinds.key_of_call(module)
        if key is None:
            yield
            return
        root = self._roots.setdefault((key, *_modes(), thread_state()), Step())
        region = self.region = Region(self, root, Place.of(self.tracer.module_stack))
        self.counts.blocks += 1
        try:
            yield
            region.end()
        except BaseException:
            # The model may catch it: what the block did so far has been done.
            region.close("an exception left the block")
            raise
        finally:
            self.region = None

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


def _modes() -> tuple[Any, ...]:
    """What a block runs in; blocks in different modes are not compared."""
    devices = ("cpu", "cuda")
    autocast = tuple([(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices])
    return torch.is_inference_mode_enabled(), *autocast
