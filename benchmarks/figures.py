"""Prints the sizes of this code's functions and files beside those of the projects it looks up to, counted alike.

Lines of a function are all between its first and its last, blank ones and comments included, docstrings not; CCN is the
cyclomatic complexity as lizard counts it. Comments are the share of the lines that are not blank on which nothing but a
comment stands (behind `+`: docstrings). A copy is a pair of functions of ten lines or more of which the tokens, names
and numbers left out of account, agree in order in nine of ten. `--copies` lists them.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lizard
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
MODELS = [
    ("ExecuTorch runtime (C++)", "4 / 35 / 267", "3 / 9", "6 / 31", "1,908", "29.5 %"),
    ("nanobind (C++)", "4 / 51 / 423", "4 / 10", "10 / 83", "2,713", "15.5 %"),
    ("MLX core (C++)", "7 / 53 / 269", "4 / 12", "9 / 59", "6,762", "7.5 %"),
    ("ir-py (Python)", "4 / 48 / 263", "4 / 13", "12 / 47", "5,290", "6.3 % + 26.8 %"),
]

HEADINGS = (
    "",
    "lines median / p95 / max",
    "parameters p95 / max",
    "CCN p95 / max",
    "longest file",
    "comments",
    "copies",
)

#: Tokens of a language by what they are; names and numbers stand for any other.
_TOKEN = re.compile(r"(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<text>\"[^\"\n]*\"|'[^'\n]*')|(?P<sign>\S)")
_WORDS = frozenset(
    [
        "if",
        "else",
        "for",
        "while",
        "return",
        "auto",
        "const",
        "bool",
        "int",
        "def",
        "in",
        "not",
        "and",
        "or",
        "is",
        "None",
        "True",
        "False",
        "self",
        "raise",
    ]
)
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_LEAST_LINES = 10
_ALIKE = 0.9


@dataclass(frozen=True)
class Function:
    place: str
    lines: int
    parameters: int
    ccn: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Figures:
    functions: list[Function]
    longest: tuple[int, str]
    comments: float
    docstrings: float
    copies: list[tuple[str, str]]


def tracked(patterns: list[str]) -> list[Path]:
    """Files that git tracks under these patterns."""
    listing = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listing.stdout.splitlines()]


def measure(paths: list[Path]) -> Figures:
    """The figures of some files of one language."""
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    functions = [function for path, text in texts.items() for function in functions_of(path, text)]
    longest = max((len(text.splitlines()), str(path.relative_to(ROOT))) for path, text in texts.items())
    lines = [line.strip() for text in texts.values() for line in text.splitlines() if line.strip()]
    documented = sum(len(docstring_lines(text)) for path, text in texts.items() if path.suffix == ".py")
    return Figures(
        functions=functions,
        longest=longest,
        comments=sum(map(is_comment, lines)) / len(lines),
        docstrings=documented / len(lines),
        copies=list(copies(functions)),
    )


def is_comment(line: str) -> bool:
    """Whether nothing but a comment stands on a line of C++ or Python."""
    return line.startswith(("//", "/*")) or re.match(r"#(?!(include|pragma|if|else|endif|define)\b)", line) is not None


def functions_of(path: Path, text: str) -> Iterator[Function]:
    """The functions of a file, as lizard finds them."""
    lines = text.splitlines()
    documented = docstring_lines(text) if path.suffix == ".py" else set()
    for one in lizard.analyze_file.analyze_source_code(str(path), text).function_list:
        own = [number for number in range(one.start_line, one.end_line + 1) if number not in documented]
        body = "\n".join(lines[number - 1] for number in own)
        place = f"{path.relative_to(ROOT)}:{one.start_line} {one.name}"
        yield Function(place, len(own), one.parameter_count, one.cyclomatic_complexity, tokens_of(body))


def docstring_lines(text: str) -> set[int]:
    """The numbers of the lines on which docstrings stand."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node):
            found.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found


def tokens_of(body: str) -> tuple[str, ...]:
    """Words and signs of a function, any other name being `n` and any number or text `0`."""
    plain = re.sub(r"(//|#).*", "", body)
    return tuple(
        token[0] if token["sign"] or token[0] in _WORDS else "n" if token["name"] else "0"
        for token in _TOKEN.finditer(plain)
    )


def copies(functions: list[Function]) -> Iterator[tuple[str, str]]:
    """Pairs of long functions that are the same but for names and numbers."""
    long = sorted((one for one in functions if one.lines >= _LEAST_LINES), key=lambda one: len(one.tokens))
    for first, second in itertools.combinations(long, 2):
        if len(first.tokens) < _ALIKE * len(second.tokens):
            continue
        matcher = difflib.SequenceMatcher(None, first.tokens, second.tokens, autojunk=False)
        if min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= _ALIKE and matcher.ratio() >= _ALIKE:
            yield first.place, second.place


def at(values: list[int], share: float) -> int:
    return values[min(len(values) - 1, int(share * len(values)))]


def row(name: str, figures: Figures) -> tuple[str, ...]:
    lines, parameters, ccn = (
        sorted(getattr(one, what) for one in figures.functions) for what in ("lines", "parameters", "ccn")
    )
    documented = f" + {figures.docstrings:.1%}" if figures.docstrings else ""
    return (
        name,
        f"{at(lines, 0.5)} / {at(lines, 0.95)} / {lines[-1]}",
        f"{at(parameters, 0.95)} / {parameters[-1]}",
        f"{at(ccn, 0.95)} / {ccn[-1]}",
        f"{figures.longest[0]:,}",
        f"{figures.comments:.1%}{documented}",
        str(len(figures.copies)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", action="store_true", help="list the copies")
    options = parser.parse_args()
    ours = {
        "exportguard (C++)": measure(tracked(["include/*.h", "src/*.h", "src/*.cpp", "src/*.cu"])),
        "exportguard (Python)": measure(tracked(["python/*.py"])),
    }
    table = Table(title="Sizes of functions and files")
    for heading in HEADINGS:
        table.add_column(heading)
    for name, figures in ours.items():
        table.add_row(*row(name, figures), style="bold")
    for model in MODELS:
        table.add_row(*model)
    console = Console(width=150)
    console.print(table)

    for name, figures in ours.items():
        console.print(f"{name}: {len(figures.functions)} functions, longest file {figures.longest[1]}")
        for function in sorted(figures.functions, key=lambda one: -one.lines):
            if function.lines > 60:
                console.print(f"  over 60 lines: {function.lines} {function.place}")
        for first, second in figures.copies if options.copies else ():
            console.print(f"  alike: {first}, {second}", soft_wrap=True)


if __name__ == "__main__":
    main()
