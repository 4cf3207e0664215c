"""What is asked of an export and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from exportguard.models import BuildOptions
from exportguard.validation.discrepancies import Discrepancy
from exportguard.version import versions

from .quantization import Quantization, QuantizationReport

Runtime = Literal["onnxruntime", "genai", "optimum", "transformers.js"]
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """For which `runtime` the folder is, and how the model is built; without `verify` nothing is run.

    With `quantize` the file is compared as it is exported, and what the quantized one differs by is measured. Weights
    beside a file are cut into files of at most `shard_size` bytes. `examples` are inputs of `model.onnx` by name,
    several calls, of which a calibrated quantization takes the ranges of values; without them those of the comparison.
    """

    build: BuildOptions = BuildOptions()
    runtime: Runtime = "onnxruntime"
    opset: int | None = None
    verify: bool = True
    quantize: Quantization | None = None
    shard_size: int | None = None
    examples: Sequence[Mapping[str, torch.Tensor]] = ()


@dataclass(kw_only=True)
class ExportedFolder:
    """What was written and what was proved. `files` are the ONNX files; `inputs` and `outputs` those of the last one,
    which a loop calls for each token. `comparisons` are those with eager, `runtime_agrees` whether the runtime
    itself generated the same tokens; None where it was not run. `agreement` is that of a quantized file, `bytes` the
    size of the files with their weights."""

    folder: str
    model: str
    task: str
    runtime: str
    opset: int = 0
    dtype: str = ""
    node_count: int = 0
    parameters: int = 0
    files: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    comparisons: list[Discrepancy] = field(default_factory=list)
    quantization: QuantizationReport | None = None
    agreement: dict[str, float] = field(default_factory=dict)
    bytes: int = 0
    runtime_agrees: bool | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For the report in the folder."""
        comparisons = [comparison.as_dict() for comparison in self.comparisons]
        return {**asdict(self), "comparisons": comparisons, "versions": versions()}


class Timer:
    """Times steps and tells of them."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def __call__(self, name: str, text: str) -> Iterator[None]:
        self._progress(text)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)


@dataclass(frozen=True)
class Step:
    """What the steps of one export share: where they tell what they did, and who times them."""

    result: ExportedFolder
    timer: Timer
