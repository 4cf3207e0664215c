"""How long a guard takes to install and to restore once torch and transformers are imported.

The first guard of a process decides which patches are needed; later ones know. Each is measured in fresh processes,
before any model is imported and with the models of some families. Where a family's code is rewritten, the first guard
reads and compiles it. Modules are compiled beforehand, as those of an installed package are. `--check` fails if the
others take longer than the bound. `--beside` measures the package of another checkout in turn with this one,
`--instructions` counts millions of instructions, which other work on the machine hardly changes.

python benchmarks/guard_time.py --check
python benchmarks/guard_time.py --processes 1 --instructions --beside ../before/python
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import exportguard

BOUND_MS = 30.0
BOUNDED = ("", "llama", "mistral bart")
REWRITTEN = ("mamba jamba falcon_mamba xlstm",)

PROGRAM = """
import gc, importlib, json, sys, time
from instructions import instruction_clock
import torch, transformers
from transformers import cache_utils, modeling_utils
clock = instruction_clock() if sys.argv[2] == "instructions" else time.process_time
for family in sys.argv[1].split():
    importlib.import_module(f"transformers.models.{family}.modeling_{family}")
from exportguard import torch_export_patches

def once():
    start = clock()
    with torch_export_patches():
        pass
    return 1000 * (clock() - start)

gc.collect()
print(json.dumps([once() for _ in range(20)]))
"""


def measured(command: list[str], processes: int, packages: Sequence[Path], compiled: str) -> list[tuple[float, float]]:
    """What the first guard and a later one take, the least of the processes of each package.

    `compiled` is the folder that the code of modules is kept in.
    """
    runs: dict[Path, list[list[float]]] = {package: [] for package in packages}
    for _ in range(processes + 1):
        for package in packages:
            path = os.pathsep.join([str(package), str(Path(__file__).parent)])
            environment = {**os.environ, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": compiled}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            runs[package].append(json.loads(done.stdout))
    compiled_before = [each[1:] for each in runs.values()]
    return [(min(run[0] for run in each), min(statistics.median(run[1:]) for run in each)) for each in compiled_before]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help=f"fail if a guard takes more than {BOUND_MS:.0f} ms")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--instructions", action="store_true", help="count these instead of time")
    parser.add_argument("--beside", type=Path, help="the folder that holds the package of another checkout")
    options = parser.parse_args()
    packages = [Path(exportguard.__file__).parents[1], *filter(None, [options.beside])]

    slowest = 0.0
    with TemporaryDirectory() as compiled:
        for families in (*BOUNDED, *REWRITTEN):
            command = [sys.executable, "-c", PROGRAM, families, "instructions" if options.instructions else "time"]
            found = measured(command, options.processes, packages, compiled)
            first, later = found[0]
            slowest = max(slowest, later, first if families in BOUNDED else 0.0)
            unit = "M" if options.instructions else "ms"
            told = "   beside ".join(f"first {first:6.1f} {unit}   later {later:6.2f} {unit}" for first, later in found)
            print(f"{families or 'no model':32} {told}", flush=True)
    return int(options.check and slowest > BOUND_MS)


if __name__ == "__main__":
    sys.exit(main())
