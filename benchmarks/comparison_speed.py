"""The comparison of two tensors beside torch.allclose, numpy.allclose and the memory's own speed.

The bandwidth is that of the fastest plain read of as many bytes: torch's sum of both tensors, whose bytes are read once
and not written. All forms run in turn, several times, and each has its fastest round.

    python benchmarks/comparison_speed.py --gib 1
"""

from __future__ import annotations

import argparse
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0, help="size of each of the two tensors")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
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
    rounds = [{name: seconds_of(work) for name, work in forms.items()} for _ in range(options.rounds)]
    least = {name: min(times[name] for times in rounds) for name in forms}
    floor = next(iter(least.values()))
    print(f"{gib:.1f} GiB in two {options.dtype} tensors on {options.device}, {options.threads} threads")
    for name, seconds in least.items():
        print(f"{name:26} {seconds:8.3f} s {gib / seconds:8.1f} GiB/s {floor / seconds:6.0%} of the plain read")


if __name__ == "__main__":
    main()
