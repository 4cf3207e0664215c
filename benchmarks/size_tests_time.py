"""How long models of one's own whose code tests sizes take to export: CPU seconds of traces and of proofs.

`python benchmarks/size_tests_time.py`, or with the names of some models. The least of three rounds.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from exportguard.phases import measured_by, phase, recorded_phases
from exportguard.request import ExportOptions, ExportRequest
from exportguard.tracing import exported_module

_ROUNDS = 3


class OwnModel(NamedTuple):
    """A function of tensors, an example, and the axes that change."""

    function: Callable[..., torch.Tensor]
    inputs: tuple[torch.Tensor, ...]
    shapes: tuple[Mapping[int, str], ...]


def resized(x: torch.Tensor) -> torch.Tensor:
    """To a shorter side of 16, but to no longer side than 40, as detectors do."""
    height, width = x.shape[-2:]
    scale = min(16 / min(height, width), 40 / max(height, width))
    size = [round(height * scale), round(width * scale)]
    return torch.nn.functional.interpolate(x, size=size, mode="bilinear")


def halved(x: torch.Tensor) -> torch.Tensor:
    """Twice halved and enlarged again, by a factor where it can be."""
    sizes = []
    for _ in range(2):
        sizes.append(x.shape[-1])
        x = torch.nn.functional.avg_pool1d(x, 2, ceil_mode=True)
    for size in reversed(sizes):
        scaled = {"scale_factor": 2.0} if size % 2 == 0 else {"size": size}
        x = torch.nn.functional.interpolate(x, **scaled)  # type: ignore[arg-type]
    return x


def in_windows(x: torch.Tensor) -> torch.Tensor:
    """Attention within windows of 4 by 4, of a picture padded to whole ones."""
    batch, height, width, channels = x.shape
    below, beside = -height % 4, -width % 4
    if below or beside:
        x = torch.nn.functional.pad(x, (0, 0, 0, beside, 0, below))
    rows, columns = x.shape[1] // 4, x.shape[2] // 4
    windows = x.view(batch, rows, 4, columns, 4, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, channels)
    seen = torch.nn.functional.scaled_dot_product_attention(windows, windows, windows)
    back = seen.view(batch, rows, columns, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
    return back.reshape(batch, 4 * rows, 4 * columns, channels)[:, :height, :width]


def cut(x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """Joined with a memory, which is cut where both are long, and padded to whole blocks of 8."""
    if x.shape[1] + memory.shape[1] > 24 and memory.shape[1] > 8:
        memory = memory[:, -8:]
    joined = torch.cat([memory, x], 1)
    if joined.shape[1] % 8:
        joined = torch.nn.functional.pad(joined, (0, 0, 0, 8 - joined.shape[1] % 8))
    return joined.unflatten(1, (-1, 8)).mean(2)


MODELS = {
    "resized": OwnModel(resized, (torch.randn(2, 3, 24, 32),), ({0: "batch", 2: "height", 3: "width"},)),
    "halved": OwnModel(halved, (torch.randn(2, 3, 24),), ({0: "batch", 2: "length"},)),
    "in windows": OwnModel(in_windows, (torch.randn(2, 10, 14, 8),), ({0: "batch", 1: "height", 2: "width"},)),
    "cut": OwnModel(
        cut, (torch.randn(2, 12, 4), torch.randn(2, 9, 4)), ({0: "batch", 1: "length"}, {0: "batch", 1: "memory"})
    ),
}


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def seconds(model: OwnModel) -> dict[str, float]:
    """CPU seconds of the traces, of the proofs, and of all."""
    request = ExportRequest.of(
        _Module(model.function).eval(),
        model.inputs,
        None,
        dynamic_shapes=(model.shapes,),
        options=ExportOptions(),
        rewrite="auto",
    )
    with measured_by(time.process_time), recorded_phases() as whole, phase("all"):
        found = exported_module(request)
    return {"traces": found.seconds["torch.export"], "proofs": found.seconds["proving the sizes"], **whole}


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME", help=", ".join(MODELS))
    names: list[str] = parser.parse_args().names
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    seconds(OwnModel(torch.relu, (torch.randn(2, 3),), ({0: "batch"},)))  # imports
    print("| model | traces | proofs | all |\n|---|---|---|---|")
    for name in names:
        rounds: list[dict[str, Any]] = [seconds(MODELS[name]) for _ in range(_ROUNDS)]
        least = {key: min(found[key] for found in rounds) for key in rounds[0]}
        print(f"| {name} | {least['traces']:.2f} | {least['proofs']:.2f} | {least['all']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
