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

_OWN_MODEL = """
from pathlib import Path
import torch
import exportguard

class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.nn.functional.silu(self.linear(x))

model = module = Gated().eval()
x = torch.randn(3, 4)
args, kwargs, shapes = (x,), {}, ({0: "batch"},)
exportguard.to_onnx(model, args, dynamic_shapes=shapes, optimize=False).save("model.onnx")
"""
_TWO_FILES = """
program = torch.export.export(model, args)
exportguard.to_onnx(model, args).save("right.onnx")
exportguard.to_onnx(Gated().eval(), args).save("wrong.onnx")
"""
_OWN_OPERATOR = """
class Own(torch.nn.Module):
    def forward(self, x):
        return torch.ops.own.scaled_sum(x, x)

model = Own()
"""

#: Pages whose programs no other test runs, with what a reader of them has already; those of a page follow each other.
RUN = {
    "builder": "",
    "coming_from": "",
    "divergence": _OWN_MODEL + _TWO_FILES,
    "evaluator": _OWN_MODEL,
    "image_text": "",
    "llm_to_genai": "",
    "optimizer": _OWN_MODEL,
    "own_modules": "",
    "own_operators": _OWN_MODEL + _OWN_OPERATOR,
    "own_patterns": _OWN_MODEL,
    "shipping": "",
    "sweeping": "",
}
#: Those that are run by test_readme, test_guard_document and rewrites/control_flow_document.
RUN_ELSEWHERE = {"README", "guard", "rewriting"}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", RUN)
def test_the_programs_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs = blocks(ROOT / "docs" / f"{name}.md", "python")
    assert programs
    # In a file, since what is rewritten is read from its source.
    path = tmp_path / "page.py"
    path.write_text("\n".join([RUN[name], *programs]))
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "page"})


def test_every_page_with_a_program_is_run() -> None:
    assert {page.stem for page in PAGES if blocks(page, "python")} == {*RUN, *RUN_ELSEWHERE}


def test_every_page_is_in_the_site() -> None:
    listed = [line for block in blocks(ROOT / "docs" / "index.md", r"\{toctree\}") for line in block.splitlines()]
    pages = [line for line in listed if line and not line.startswith(":")]
    assert sorted(pages) == sorted(page.stem for page in (ROOT / "docs").glob("*.md") if page.stem != "index")


@pytest.mark.parametrize(("language", "file"), [("cpp", "lower_text.cpp"), ("cmake", "CMakeLists.txt")])
def test_what_the_page_on_cpp_shows_is_in_the_project_that_is_built(language: str, file: str) -> None:
    """`tests/install` builds and runs it."""
    source = (ROOT / "examples" / "cmake_project" / file).read_text("utf-8")
    shown = blocks(ROOT / "docs" / "embedding_in_cpp.md", language)
    assert shown
    assert all(block in source for block in shown)


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
