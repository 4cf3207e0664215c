"""The first guard of a process: what it leaves for the export that needs it."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
import torch
from transformers import cache_utils, modeling_utils
from exportguard import torch_export_patches

def outcomes(guard):
    return {line.name: line.outcome for line in guard.report}

before = set(sys.modules)
with torch_export_patches() as guard:
    imported = sorted(set(sys.modules) - before)
    at_first = outcomes(guard)
    torch.export.export(torch.nn.Linear(2, 2), (torch.rand(3, 2),))
    behind = outcomes(guard)
with torch_export_patches() as guard:
    again = outcomes(guard)
print(json.dumps([imported, at_first, behind, again]))
"""

#: The patches of what torch.export alone uses, whose new functions take long to import.
OF_EXPORTS = ("repeated blocks", "fake tensors that look alike", "functions that no mode looks for")


def test_a_guard_imports_nothing_and_an_export_in_it_has_every_patch() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    imported, at_first, behind, again = json.loads(done.stdout.splitlines()[-1])
    assert imported == []
    assert {at_first[name] for name in OF_EXPORTS} == {"waiting"}
    assert {behind[name] for name in OF_EXPORTS} == {"installed"}
    assert {again[name] for name in OF_EXPORTS} == {"installed"}
