"""The README's Python runs as it stands, block after block as a reader would paste them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "readme"}
    blocks = list(BLOCK.finditer(text))
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block.group(1), str(README), "exec"), names)
    assert len(blocks) >= 3
    assert [path.name for path in sorted(tmp_path.glob("*.onnx"))] == ["clamped.onnx", "llama.onnx"]
    for path in tmp_path.glob("*.onnx"):
        onnx.checker.check_model(str(path), full_check=True)
