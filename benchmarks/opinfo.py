"""A converter of exported programs for benches that drive several exporters: `to_file(program, path)`.

    python opinfo_bench.py --converter benchmarks/opinfo.py:to_file

The opset is the package's default, or EXPORTGUARD_BENCH_OPSET.
"""

from __future__ import annotations

import os

from torch.export import ExportedProgram

from exportguard import to_onnx


def to_file(program: ExportedProgram, path: str) -> None:
    opset = os.environ.get("EXPORTGUARD_BENCH_OPSET")
    to_onnx(program, opset=int(opset) if opset else None, output=path)
