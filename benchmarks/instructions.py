"""The instructions that a process has executed, as Linux counts them for it.

They change by less than a percent with what else the machine does, where CPU seconds change by half.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable

_OPEN = {"x86_64": 298, "aarch64": 241}  # the number of perf_event_open, by machine
_SIZE = 120  # of what it is asked for, as Linux has it since 5.13; older ones take it if the rest is zero
_HARDWARE, _INSTRUCTIONS = 0, 1
_INHERITED, _WITHOUT_KERNEL, _WITHOUT_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6


def instruction_clock() -> Callable[[], float]:
    """A clock whose seconds are 10^9 instructions of this process and of threads that it starts from now on.

    Raises:
        OSError: the machine has no such counter, or does not let this process read it.
    """
    number = _OPEN.get(platform.machine())
    if number is None:
        raise OSError(f"instructions are counted on {' and '.join(_OPEN)} alone, not on {platform.machine()}")
    asked = bytearray(_SIZE)
    struct.pack_into("IIQ", asked, 0, _HARDWARE, _SIZE, _INSTRUCTIONS)
    struct.pack_into("Q", asked, 40, _INHERITED | _WITHOUT_KERNEL | _WITHOUT_HYPERVISOR)
    system = ctypes.CDLL(None, use_errno=True)
    counter = system.syscall(number, bytes(asked), 0, -1, -1, 0)
    if counter < 0:
        raise OSError(ctypes.get_errno(), "Linux does not count instructions here (kernel.perf_event_paranoid?)")

    def read() -> float:
        (count,) = struct.unpack("Q", os.read(counter, 8))
        return float(count) / 1e9

    return read
