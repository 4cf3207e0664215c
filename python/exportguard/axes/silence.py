"""What torch prints of trials whose failure is an answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def torch_silent() -> Iterator[None]:
    """Without torch's log of a fake tensor that an operator refuses: here that is an answer."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before
