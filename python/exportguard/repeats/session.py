"""One trace: its model's repeated blocks, and the block that is running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from exportguard.repeats.keys import thread_state
from exportguard.repeats.kinds import Kinds
from exportguard.repeats.memory import Memory
from exportguard.repeats.modes import Modes
from exportguard.repeats.paths import Place, Step
from exportguard.repeats.questions import SETTERS, UnansweredError, is_unanswered, name_of
from exportguard.repeats.region import Region
from exportguard.repeats.tracked import Tracked


class Session:
    """The blocks of one trace; it ends with it."""

    def __init__(self, tracer: Any, model: torch.nn.Module) -> None:
        tracer.tensor_tracker = Tracked(tracer.tensor_tracker)
        self.memory = Memory(tracer)
        self.region: Region | None = None
        self.modes = Modes(tracer)
        # What is asked of weights here is no question of the model, for the modes that look at those.
        with torch._C.DisableTorchFunction():
            self._kinds = Kinds(model)
        self._roots: dict[Any, Step] = {}
        self._unanswered: str | None = None

    @contextmanager
    def block(self, module: torch.nn.Module) -> Iterator[None]:
        """While a module is called: its calls are compared with those of modules of its kind."""
        key = None if self.region is not None else self._kinds.key_of_call(module)
        if key is None or _is_watched():
            yield
            return
        root = self._roots.setdefault((key, torch.is_inference_mode_enabled(), thread_state()), Step())
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

    def note_function(self, func: Any, args: tuple[Any, ...]) -> None:
        """What the model asks of a tensor, or sets, outside of the operators."""
        if is_unanswered(func, args, self.memory.counts):
            self._unanswered = self._unanswered or name_of(func)
        if func in SETTERS and self.region is not None:
            self.region.close(f"{name_of(func)} is set")

    def require_answers(self) -> None:
        """Called when the model was traced, since it may catch what is raised before.

        :raises UnansweredError: it asked what tensors that were replayed do not know
        """
        if self._unanswered is not None:
            raise UnansweredError(f"{self._unanswered} is asked for, which depends on more than how a tensor looks")


#: Modes of torch.export itself; what others do with a call, only they know.
_OWN_MODES = (FakeTensorMode, FunctionalTensorMode, ProxyTorchDispatchMode)


def _is_watched() -> bool:
    """Whether a mode of the model sees each call of an operator, and so has to be given each."""
    return not all(isinstance(mode, _OWN_MODES) for mode in _get_current_dispatch_mode_stack())
