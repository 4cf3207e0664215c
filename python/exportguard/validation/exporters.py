"""Exporters: what writes the file of an exported program, and tells of it in the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from ..conversion import convert
from ..errors import ExportGuardError
from ..guard import torch_export_patches
from ..models import BuildOptions
from ..reading import Exported, read
from ..request import ExportOptions
from ..version import made_with
from ..wide_ends import WideEnds

Exporter = Literal["exportguard", "onnx-dynamo"]


@dataclass(frozen=True, kw_only=True)
class Written:
    """What an exporter tells of the file; names only where it is ours."""

    node_count: int
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    float32_io: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)


def converted_here(exported: Exported, file: Path, opset: int, build: BuildOptions) -> Written:
    """Ours.

    Raises:
        InvalidArgumentError: `float32_io` names an input or output that there is none of.
    """
    model = convert(read(exported), opset=opset, options=ExportOptions())
    ends = WideEnds(build.float32_io)
    ends.apply(model)
    ends.require_used()
    model.describe(made_with())
    model.save(file)
    return Written(
        node_count=model.node_count,
        inputs=[value.name for value in model.inputs],
        outputs=[value.name for value in model.outputs],
        float32_io=ends.widened,
        phases={name: round(seconds, 3) for name, seconds in model.seconds.items()},
    )


def converted_with_torch(exported: Exported, file: Path, opset: int, build: BuildOptions) -> Written:
    """torch's own exporter, from the same program, under the same guard."""
    with torch_export_patches():
        result = torch.onnx.export(exported.expanded(), dynamo=True, opset_version=opset, verbose=False)
    if result is None:
        raise ExportGuardError("torch.onnx.export returned no program")
    result.save(str(file))
    return Written(node_count=len(result.model.graph))


EXPORTERS: Mapping[Exporter, Callable[[Exported, Path, int, BuildOptions], Written]] = {
    "exportguard": converted_here,
    "onnx-dynamo": converted_with_torch,
}


def file_name(model: str) -> str:
    """What the file of a model is called: after its folder alone, after both parts of a hub id.

    >>> file_name("org/model")
    'org--model.onnx'
    """
    name = Path(model).resolve().name if Path(model).is_dir() else model.replace("/", "--")
    return f"{name.lstrip('.') or 'model'}.onnx"
