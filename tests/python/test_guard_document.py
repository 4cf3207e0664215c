"""Every example of docs/guard.md is executed."""

from __future__ import annotations

import inspect
import linecache
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from exportguard import torch_export_patches
from exportguard.command_line import main
from exportguard.guard import PatchOptions

DOCUMENT = Path(__file__).parents[2] / "docs" / "guard.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def run(code: str, name: str, namespace: dict[str, Any]) -> None:
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    exec(compile(code, name, "exec"), namespace)


def test_the_examples_run_one_after_the_other() -> None:
    namespace: dict[str, Any] = {"__name__": "guard_document"}
    examples = blocks("python")
    assert len(examples) >= 12
    for number, code in enumerate(examples):
        run(code, f"guard_document_{number}.py", namespace)


@pytest.mark.parametrize("line", [line for block in blocks("bash") for line in block.splitlines()])
def test_the_commands_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)  # one writes a page
    program, *arguments = shlex.split(line, comments=True)
    assert program == "exportguard"
    assert main(arguments) == 0


def test_every_argument_is_in_the_table() -> None:
    names = re.findall(r"^\| `(\w+)` \| `", TEXT, re.MULTILINE)
    arguments = {name: one.default for name, one in inspect.signature(torch_export_patches).parameters.items()}
    assert set(names) == set(arguments)
    assert set(PatchOptions.__dataclass_fields__) <= set(arguments)


def test_the_defaults_are_those_of_the_table() -> None:
    defaults = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", TEXT, re.MULTILINE))
    arguments = {name: one.default for name, one in inspect.signature(torch_export_patches).parameters.items()}
    assert {name: repr(value).replace("'", '"') for name, value in arguments.items()} == defaults
