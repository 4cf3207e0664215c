"""Programs under Node, with transformers.js where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PACKAGES = os.environ.get("EXPORTGUARD_NODE_PACKAGES", "")

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (Path(PACKAGES) / "node_modules/@huggingface/transformers").is_dir(),
    reason="needs node, and in EXPORTGUARD_NODE_PACKAGES where `npm install @huggingface/transformers` ran",
)


def run_in_node(program: str, folder: Path, *arguments: str) -> Any:
    """What the program prints last, as JSON; it is told where the packages and the models are."""
    script = folder / "program.mjs"
    script.write_text(program)
    command = ["node", str(script), PACKAGES, f"{folder}/", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])
