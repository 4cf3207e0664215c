"""Ctrl-C at random moments of a guard: what it changed is restored, and the interrupt comes out.

As a command: `python tests/python/interrupt_rounds.py --rounds 2000`.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from exportguard import _core, torch_export_patches
from exportguard.declaration import Patch


class Target:
    value = "original"


def _slowly(value: str) -> Callable[[], None]:
    def change() -> None:
        time.sleep(0.0005)
        Target.value = value
        time.sleep(0.0005)

    return change


def slow_patch() -> Patch:
    """A patch that takes its time to be installed, and to be taken back."""
    return Patch(
        name="slow",
        kind="custom",
        target="interrupt_rounds.Target.value",
        reason="a test",
        apply=lambda changes: changes.call(_slowly("patched"), _slowly("original"), "Target.value"),
    )


@dataclass
class Rounds:
    """What the rounds showed."""

    interrupted: int = 0
    lost: int = 0
    residues: int = 0


def _state() -> tuple[Any, ...]:
    return Target.value, torch.nn.functional.one_hot, len(pytree.SUPPORTED_NODES), _core.guard_depth()


def _one_round(delay: float) -> tuple[bool, bool]:
    """Whether the timer went off, and whether an interrupt came out."""
    sent = []

    def send(*_: object) -> None:
        sent.append(True)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, send)
    # A shell starts what it runs in the background with interrupts ignored, and Python leaves that as it is.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    has_come = False
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        with torch_export_patches(custom_patches=[slow_patch()]):
            end = time.perf_counter() + 0.001
            while time.perf_counter() < end:
                sum(range(100))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        has_come = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    signal.signal(signal.SIGINT, handler)
    return bool(sent), has_come


def run(rounds: int, seed: int = 0) -> Rounds:
    """Interrupts that many guards, each at another moment."""
    result, chosen = Rounds(), random.Random(seed)
    with torch_export_patches(custom_patches=[slow_patch()]):  # imports what patches import
        pass
    start = time.perf_counter()
    _one_round(10)
    longest, expected = 1.1 * (time.perf_counter() - start), _state()
    for _ in range(rounds):
        sent, has_come = _one_round(max(1e-5, chosen.random() * longest))
        result.interrupted += sent
        result.lost += sent and not has_come
        result.residues += _state() != expected
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    print(run(parser.parse_args().rounds))
