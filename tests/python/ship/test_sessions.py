"""Sessions of a proof: which of them lay weights out anew, and that they hold no second copy of the others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from exportguard import ExportOptions, to_onnx
from exportguard.ship.quantization import QUANTIZATIONS, quantize_file
from exportguard.ship.sessions import needs_packed_weights

WIDTH = 2048

#: MiB that a process holds for itself (proc(5), smaps_rollup) more behind a session and a call than before.
MEASURED = """
import sys
from pathlib import Path
import torch
from exportguard.ship.sessions import called, session_of

def held():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024

before = held()
session = session_of(Path(sys.argv[1]))
called(session, {"x": torch.ones(3, int(sys.argv[2]))})
print(held() - before)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sessions") / "model.onnx"
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)]  # 64 MiB
    model = torch.nn.Sequential(*layers)
    to_onnx(model, (torch.ones(2, WIDTH),), options=ExportOptions(input_names=["x"]), dynamic_shapes=({0: "n"},)).save(
        path
    )
    return path


@pytest.mark.parametrize(
    ("form", "packs"), [(None, False), ("int4", True), ("int8", True), ("int4-onnx", True), ("int8-dynamic", False)]
)
def test_weights_are_laid_out_where_kernels_are_slow_without(
    form: str | None, packs: bool, written: Path, tmp_path: Path
) -> None:
    file = Path(shutil.copytree(written.parent, tmp_path / "copy")) / written.name
    if form is not None:
        quantize_file(file, QUANTIZATIONS[form])
    assert needs_packed_weights(file) == packs


def test_a_proof_holds_no_second_copy_of_float_weights(written: Path) -> None:
    command = [sys.executable, "-c", MEASURED, str(written), str(WIDTH)]
    held = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert held < 32  # half of them
