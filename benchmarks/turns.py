"""Calls that are timed side by side."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping


def milliseconds(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU time of each call in each round, one behind the other, in an order that is drawn anew.

    In one order for all rounds a call is faster in the last place than in the first.
    """
    draw = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in draw.sample(list(calls), len(calls)):
            begin = time.process_time()
            calls[name]()
            times[name].append(1e3 * (time.process_time() - begin))
    return times
