"""What torch prints of trials whose failure is an answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

_LOGS = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")


@contextlib.contextmanager
def torch_silent() -> Iterator[None]:
    """Without torch's log of a fake tensor that an operator refuses, or whose data are asked for: here those are
    answers."""
    logs = [logging.getLogger(name) for name in _LOGS]
    before = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, was_disabled in zip(logs, before, strict=True):
            log.disabled = was_disabled
