"""One trace: its model's repeated blocks, and the block that is running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from exportguard.repeats.keys import thread_state
from exportguard.repeats.kinds import Kinds
from exportguard.repeats.memory import Memory
from exportguard.repeats.modes import Modes
from exportguard.repeats.paths import Place, Step
from exportguard.repeats.region import Region
from exportguard.repeats.tracked import Tracked


class Session:
    """The blocks of one trace; it ends with it."""

    def __init__(self, tracer: Any, model: torch.nn.Module) -> None:
        tracer.tensor_tracker = Tracked(tracer.tensor_tracker)
        self.memory = Memory(tracer)
        self.region: Region | None = None
        self.modes = Modes(tracer)
        self._kinds = Kinds(model)
        self._roots: dict[Any, Step] = {}

    @contextmanager
    def block(self, module: torch.nn.Module) -> Iterator[None]:
        """While a module is called: its calls are compared with those of modules of its kind."""
        key = None if self.region is not None else self._kinds.key_of_call(module)
        if key is None:
            yield
            return
        root = self._roots.setdefault((key, *_modes(), thread_state()), Step())
        region = self.region = Region(self.memory, root, Place.of(self.memory.tracer.module_stack))
        self.memory.counts.blocks += 1
        try:
            yield
            region.end()
        except BaseException:
            # The model may catch it: what the block did so far has been done.
            region.close("an exception left the block")
            raise
        finally:
            self.region = None


def _modes() -> tuple[Any, ...]:
    """What a block runs in; blocks in different modes are not compared."""
    devices = ("cpu", "cuda")
    autocast = tuple([(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices])
    return torch.is_inference_mode_enabled(), *autocast
