"""The comparison of two tensors beside torch.allclose, numpy.allclose and the memory's own speed.

The bandwidth is that of the fastest plain read of as many bytes: torch's sum of both tensors, whose bytes are read once
and not written. All forms run in turn, several times (the peers, which take a hundred times as long, fewer times);
each has its fastest round, and the median over the rounds of its share of the plain read beside it.

    python benchmarks/comparison_speed.py --gib 1
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from exportguard import _core


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one run."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


PEERS_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0, help="size of each of the two tensors")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    dtype = getattr(torch, options.dtype)
    count = int(options.gib * 2**30 / dtype.itemsize)
    expected = torch.rand(count, device=options.device).to(dtype)
    got = (expected.double() * (1 + 1e-6)).to(dtype) if count < 2**24 else expected * (1 + 1e-6)
    gib = 2 * count * dtype.itemsize / 2**30

    forms: dict[str, Callable[[], object]] = {
        "plain read (sum of both)": lambda: float(expected.sum() + got.sum()),
        "exportguard": lambda: _core.compare([(expected, got, 1e-4, 1e-4)]),
        "torch.allclose": lambda: torch.allclose(expected, got, 1e-4, 1e-4),
    }
    if options.device == "cpu" and dtype != torch.bfloat16:
        forms["numpy.allclose"] = lambda: np.allclose(got.numpy(), expected.numpy(), 1e-4, 1e-4)
    times: dict[str, list[float]] = {name: [] for name in forms}
    for turn in range(options.rounds):
        for name, work in forms.items():
            if turn < PEERS_ROUNDS or not name.endswith(".allclose"):
                times[name].append(seconds_of(work))
    floors = next(iter(times.values()))

    print(f"{gib:.1f} GiB in two {options.dtype} tensors on {options.device}, {options.threads} threads")
    for name, of_form in times.items():
        seconds = min(of_form)
        median = statistics.median(floor / each for floor, each in zip(floors, of_form, strict=False))
        print(
            f"{name:26} {seconds:8.3f} s {gib / seconds:8.1f} GiB/s {min(floors) / seconds:6.0%} of the plain read, "
            f"{median:.0%} in the median"
        )


if __name__ == "__main__":
    main()
