"""A divergence as a folder that shows it again: the nodes, their inputs, the right output, a script, the figures."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from ..arguments import require_kind
from ..errors import FileError, InvalidArgumentError
from .divergence import Divergence
from .tensor_files import save_tensors

_SCRIPT = '''"""Runs the nodes that diverge on inputs that are right, and compares what they make with what they should.

python reproduce.py                 # in the evaluator
python reproduce.py onnxruntime
"""

import sys
from pathlib import Path

import exportguard
from exportguard.validation.tensor_files import load_tensors

folder = Path(__file__).parent
runner = sys.argv[1] if len(sys.argv) > 1 else "evaluator"
expected = load_tensors(folder / "expected.safetensors")
got = exportguard.load(folder / "model.onnx").run(load_tensors(folder / "inputs.safetensors"), runner=runner)
findings = exportguard.compare_outputs(list(expected), list(expected.values()), list(got.values()))
for finding in findings:
    print(finding)
sys.exit(0 if all(finding.agrees for finding in findings) else 1)
'''


def write_reproduction(divergence: Divergence, folder: Path) -> Path:
    """Writes `model.onnx`, `inputs.safetensors`, `expected.safetensors`, `reproduce.py` and `figures.json`.

    Raises:
        InvalidArgumentError: the nodes read or make a sequence, which the files cannot hold.
        FileError: the folder cannot be written.
    """
    require_kind("divergence", divergence, Divergence, "the divergence of a report, which has one (report.first)")
    inputs, expected = divergence.inputs, divergence.expected
    others = [name for name, value in inputs.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise InvalidArgumentError(f"{', '.join(others)} are no tensors, which alone can be written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "reproduce.py").write_text(_SCRIPT, encoding="utf-8")
        (folder / "figures.json").write_text(json.dumps(_figures(divergence), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write the reproduction to {folder}: {error.strerror}") from error

    divergence.reproduction.save(folder / "model.onnx")
    save_tensors(inputs, folder / "inputs.safetensors")
    made = {divergence.reproduction.outputs[0].name: expected} if isinstance(expected, torch.Tensor) else {}
    save_tensors(made, folder / "expected.safetensors")
    return folder


def _figures(divergence: Divergence) -> dict[str, object]:
    return {
        "value": divergence.value,
        "node": str(divergence.node),
        "reference_node": str(divergence.reference_node or ""),
        "nodes": [str(node) for node in divergence.nodes],
        "module": divergence.module,
        "source": divergence.source,
        "error": divergence.error,
        "times_rounding": divergence.times_rounding,
        "discrepancy": divergence.discrepancy.as_dict(),
    }
