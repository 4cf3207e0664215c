"""A signal that asks a command to end while it imports: C++ that calls Python there may end the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: A model whose import is interrupted, and takes what is raised there for its own, as numpy and torch do.
_MODEL = """
import os
import signal

try:
    os.kill(os.getpid(), signal.SIGTERM)
    sum(range(100_000))
except BaseException as error:
    print("swallowed", type(error).__name__, flush=True)

import torch


def make_model():
    return torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),)
"""


def test_it_ends_the_command_behind_the_import(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(_MODEL)
    command = [sys.executable, "-m", "exportguard", "export", "-m", f"{tmp_path / 'interrupted.py'}:make_model"]
    ended = subprocess.run([*command, "-o", str(tmp_path / "out")], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (143, "")
    assert "Traceback" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["interrupted.py"]
