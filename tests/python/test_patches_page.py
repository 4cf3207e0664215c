"""The page of what every patch changes, and that none says installed which changed nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from exportguard.guard.opening import ReportLine
from exportguard.guard.page import page, section
from exportguard.patches import all_patches

PAGE = Path(__file__).parents[2] / "docs" / "patches.md"
LINES = [
    ReportLine("a", "torch", ["torch.nn.Linear.forward", "torch.nn.functional.silu"], "installed", "it is wrong"),
    ReportLine("b", "transformers", [], "waiting", "met nowhere in the models that are imported"),
]


def test_a_patch_lists_its_functions_by_module_or_says_why_not() -> None:
    assert section(LINES).splitlines()[2:] == [
        "**a** (torch): installed: it is wrong",
        "",
        "- `torch.nn`: `Linear.forward`",
        "- `torch.nn.functional`: `silu`",
        "",
        "**b** (transformers): waiting: met nowhere in the models that are imported",
    ]


def test_sections_of_other_versions_stay_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exportguard.guard.page.installed_lines", lambda: LINES)
    before = "# Patches\n\n## transformers 4.57.6, torch 2.13.0\n\nold\n\n## transformers 99.1.0, torch 3.0\n\nnew\n"
    made = page("docs/patches.md", before)
    own = f"## transformers {metadata.version('transformers')}, "
    heads = [line for line in made.splitlines() if line.startswith("## ")]
    assert heads[0] == "## transformers 99.1.0, torch 3.0"
    assert heads[1].startswith(own)
    assert heads[2] == "## transformers 4.57.6, torch 2.13.0"
    assert page("docs/patches.md", made) == made


def test_the_page_knows_every_patch() -> None:
    """Made anew after a patch was added or renamed: `exportguard patches page`."""
    text = PAGE.read_text("utf-8")
    assert [patch.name for patch in all_patches() if f"**{patch.name}** (" not in text] == []


@pytest.mark.slow
def test_none_is_installed_that_changed_nothing(tmp_path: Path) -> None:
    """In a process of its own, since it imports some hundred models."""
    made = tmp_path / "patches.md"
    command = [sys.executable, "-m", "exportguard", "patches", "page", str(made)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    entries = made.read_text("utf-8").split("\n**")[1:]
    assert len(entries) == len(all_patches())
    assert [entry for entry in entries if "): installed" in entry and "\n- `" not in entry] == []
