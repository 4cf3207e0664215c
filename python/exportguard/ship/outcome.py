"""What is asked of an export and what is told of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import torch

from exportguard.arguments import require_choice, require_count, require_flags, require_kind, wrong
from exportguard.errors import InvalidArgumentError
from exportguard.models import BuildOptions
from exportguard.opsets import checked_opset
from exportguard.validation.discrepancies import Discrepancy
from exportguard.version import versions
from exportguard.wide_ends import WideEnds

from .quantization import Quantization, QuantizationReport, require_possible

Runtime = Literal["onnxruntime", "genai", "optimum", "transformers.js"]
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """For which `runtime` the folder is, and how the model is built; without `verify` nothing is run.

    With `quantize` the file is compared as it is exported, and what the quantized one differs by is measured. Weights
    beside a file are cut into files of at most `shard_size` bytes. `examples` are inputs of `model.onnx` by name,
    several calls, of which a calibrated quantization takes the ranges of values; without them those of the comparison.

    Raises:
        InvalidArgumentError: a field that is none of those, by its name.
    """

    build: BuildOptions = BuildOptions()
    runtime: Runtime = "onnxruntime"
    opset: int | None = None
    verify: bool = True
    quantize: Quantization | None = None
    shard_size: int | None = None
    examples: Sequence[Mapping[str, torch.Tensor]] = ()

    def __post_init__(self) -> None:
        """Refuses what would be found out after the work, or never."""
        require_kind("build", self.build, BuildOptions, "exportguard.models.BuildOptions")
        require_choice("runtime", self.runtime, get_args(Runtime))
        if self.opset is not None:
            checked_opset(self.opset)
        require_flags(verify=self.verify)
        require_kind("quantize", self.quantize, (Quantization, type(None)), "an exportguard.Quantization or None")
        if self.quantize is not None and self.build.dtype == torch.bfloat16:
            raise InvalidArgumentError(
                "weights of bfloat16 are not quantized, as onnxruntime has no products of them; pass float16, "
                "or no dtype"
            )
        if self.quantize is not None:
            require_possible(
                self.quantize, checked_opset(self.opset), has_examples=self.verify or len(self.examples) > 0
            )
        if self.shard_size is not None:
            require_count("shard_size", self.shard_size, 1)
        if not isinstance(self.examples, Sequence) or not all(map(_is_call, self.examples)):
            raise wrong("examples", self.examples, "a list of dictionaries with a tensor for each input")
        if len(self.examples) and (self.quantize is None or self.quantize.form != "QDQ"):
            raise InvalidArgumentError("examples calibrate a quantization to int8-static; pass it, or leave them out")


def _is_call(example: object) -> bool:
    return isinstance(example, Mapping) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in example.items()
    )


@dataclass(kw_only=True)
class ExportedFolder:
    """What was written and what was proved. `files` are the ONNX files; `inputs` and `outputs` those of the last one,
    which a loop calls for each token; `left_out` are tensors that forward takes besides, for which a file as the
    model's own code calls it has no input. `kept_float32` are the modules that stayed wide, `float32_io` the inputs and
    outputs of all files that are. `comparisons` are those with eager, `runtime_agrees` whether the runtime
    itself generated the same tokens; None where it was not run. `agreement` is that of a quantized file, `bytes` the
    size of the files with their weights, `sha256` the digests of all in the folder but the report, by their paths; None
    for each where nothing was compared."""

    folder: str
    model: str
    task: str
    runtime: str
    opset: int = 0
    dtype: str = ""
    kept_float32: list[str] = field(default_factory=list)
    float32_io: list[str] = field(default_factory=list)
    node_count: int = 0
    parameters: int = 0
    files: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    comparisons: list[Discrepancy] = field(default_factory=list)
    quantization: QuantizationReport | None = None
    agreement: dict[str, float] = field(default_factory=dict)
    bytes: int = 0
    runtime_agrees: bool | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    sha256: dict[str, str | None] = field(default_factory=dict)

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
    """What the steps of one export share: where they tell what they did, who times them, and which ends are wide."""

    result: ExportedFolder
    timer: Timer
    ends: WideEnds
