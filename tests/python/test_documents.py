"""Pages of the documentation: their programs run, and their commands are ones that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from exportguard.command_line import build

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

#: Pages whose programs no other test runs; those of a page follow each other.
RUN = ("coming_from", "own_modules", "shipping")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", RUN)
def test_the_programs_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs = blocks(ROOT / "docs" / f"{name}.md", "python")
    assert programs
    # In a file, since what is rewritten is read from its source.
    path = tmp_path / "page.py"
    path.write_text("\n".join(programs))
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "page"})


def commands(page: Path) -> list[list[str]]:
    lines = [line for block in blocks(page, "(?:bash|yaml)") for line in block.splitlines()]
    found = [re.search(r"^(?:\s*- run: )?(exportguard .*)$", line) for line in lines]
    return [shlex.split(match[1], comments=True)[1:] for match in found if match]


COMMANDS = [
    pytest.param(command, id=f"{page.stem}: {' '.join(command)}") for page in PAGES for command in commands(page)
]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_command_of_a_page_is_one(arguments: list[str]) -> None:
    """Its subcommand and options are known; it is not run."""
    group = build()
    name, *rest = [argument for argument in arguments if argument not in ("&", "||", "true")]
    command = group.get_command(click.Context(group), name)
    assert command is not None, f"no command {name}"
    command.make_context(name, rest)


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 20
