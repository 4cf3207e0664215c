"""How long a guard takes to install and to restore once torch and transformers are imported.

The first guard of a process decides which patches are needed; later ones know. Each is measured in fresh processes,
before any model is imported and with the models of some families. Where a family's code is rewritten, the first guard
reads and compiles it. `--check` fails if the others take longer than the bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

BOUND_MS = 30.0
BOUNDED = ("", "llama", "mistral bart")
REWRITTEN = ("mamba jamba falcon_mamba xlstm",)

PROGRAM = """
import gc, importlib, json, sys, time
import torch, transformers
from transformers import cache_utils, modeling_utils
for family in sys.argv[1].split():
    importlib.import_module(f"transformers.models.{family}.modeling_{family}")
from exportguard import torch_export_patches

def once():
    start = time.process_time()
    with torch_export_patches():
        pass
    return 1000 * (time.process_time() - start)

gc.collect()
print(json.dumps([once() for _ in range(20)]))
"""


def measured(families: str, processes: int) -> tuple[float, float]:
    """Milliseconds of processor time of the first guard and of a later one, in the fastest process."""
    runs = []
    for _ in range(processes):
        done = subprocess.run([sys.executable, "-c", PROGRAM, families], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    first, *later = min(runs, key=lambda run: run[0])
    return first, statistics.median(later)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help=f"fail if a guard takes more than {BOUND_MS:.0f} ms")
    parser.add_argument("--processes", type=int, default=3)
    options = parser.parse_args()
    slowest = 0.0
    for families in (*BOUNDED, *REWRITTEN):
        first, later = measured(families, options.processes)
        slowest = max(slowest, later, first if families in BOUNDED else 0.0)
        print(f"{families or 'no model':32} first {first:6.1f} ms   later {later:6.2f} ms")
    return int(options.check and slowest > BOUND_MS)


if __name__ == "__main__":
    sys.exit(main())
