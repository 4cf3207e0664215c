"""The layers of the package: who may import whom, read from every import of every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import exportguard

ROOT = Path(exportguard.__file__).parent

#: From the lowest layer up: a part sees those of lower layers, and no other of its own. Those between slashes are one
#: part.
LAYERS = (
    "containers",
    "errors version phases garbage interrupted joined_parts lost_buffers _core model_code notebook_tables",
    "streams optional progress module_tree",
    "leaving",
    "arguments cache_names common_sizes composites emptied_caches foreach foreign_names optimization onnx_types "
    "torch_version devices opsets export_errors sliding_lengths size_facts "
    "size_floats size_names size_words",
    "source runners models inputs graph_operators repeats",
    "declaration dynamic_shapes",
    "example",
    "caches rewrites module_functions leaf_paths",
    "patches",
    "signature",
    "axes/axis_report",
    "guard operator_trace onnx_model size_checks",
    "input_observer observed_shapes graph_builder module_calls",
    "onnxscript_functions own_patterns wide_ends",
    "dispatcher",
    "decompose",
    "request",
    "autocast_regions told_guards",
    "reading",
    "tracing",
    "conversion",
    "export",
    "validation",
    "ship",
    "sweep",
    "commands/command_line",
    "__main__",
)

#: Imports within functions, each with the reason that is not a circle.
LATE = {
    ("onnx_model", "runners"): "onnxruntime need not be installed",
    ("validation", "runners"): "onnxruntime need not be installed",
    ("decompose", "operator_trace"): "symbolic shapes take long to import, and few models have operators without a row",
    ("dispatcher", "onnxscript_functions"): "onnxscript need not be installed",
    ("patches", "repeats"): "torch's tracer takes long to import, and whoever exports has it by then",
    ("sweep", "command_line"): "a process of its own, started as a script, runs a command line",
}


class Edge(NamedTuple):
    importer: str
    imported: str
    is_late: bool


def part_of(name: str) -> str:
    """The top folder or file that a module belongs to; empty for the package itself."""
    return f"{name}.".split(".")[1]


def imports_of(source: str, module: str, is_package: bool = False) -> Iterator[Edge]:
    """What a module of the package imports from the package, wherever the statement stands."""
    for node, is_late in _statements(ast.parse(source), is_late=False):
        for name in _imported(node, module.split(".")[: None if is_package else -1]):
            if name.split(".")[0] == "exportguard":
                yield Edge(part_of(module), part_of(name), is_late)


def _statements(tree: ast.AST, is_late: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_late
        yield from _statements(node, is_late or isinstance(node, ast.FunctionDef | ast.Lambda))


def _imported(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
    module = ".".join(filter(None, (base, node.module)))
    return [f"{module}.{alias.name}" for alias in node.names] if module == "exportguard" else [module]


def violations(edges: set[Edge]) -> list[str]:
    """What is wrong with the edges, in words."""
    height = {name: at for at, layer in enumerate(LAYERS) for part in layer.split() for name in part.split("/")}
    part = {name: part for layer in LAYERS for part in layer.split() for name in part.split("/")}
    found = [f"{name} has no layer" for edge in edges for name in edge[:2] if name and name not in height]
    for importer, imported, is_late in sorted(edges):
        if importer == "" or importer not in part or part[importer] == part.get(imported):
            continue
        if is_late and (importer, imported) in LATE:
            continue
        if imported == "":
            found.append(f"{importer} imports the package that it is a part of")
        elif height[importer] <= height.get(imported, -1):
            found.append(f"{importer} imports {imported}, which is not below it")
        elif is_late:
            found.append(f"{importer} hides the import of {imported} in a function")
    return found


def all_edges() -> set[Edge]:
    edges: set[Edge] = set()
    for path in ROOT.rglob("*.py"):
        parts = ("exportguard", *path.relative_to(ROOT).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        edges |= set(imports_of(path.read_text("utf-8"), module, is_package))
    return edges


def test_every_import_leads_to_a_lower_layer() -> None:
    assert violations(all_edges()) == []


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("caches.units.a", "from exportguard.patches import Patch", "caches imports patches, which is not below it"),
        ("source.b", "from ..declaration.patch import Patch", "source imports declaration, which is not below it"),
        ("rewrites.rules.c", "import exportguard.guard", "rewrites imports guard, which is not below it"),
        ("caches.d", "if True:\n    from ..rewrites import rules", "caches imports rewrites, which is not below it"),
        ("guard.e", "def f():\n    from exportguard.caches import build", "guard hides the import of caches"),
        ("export", "from . import OnnxModel", "OnnxModel has no layer"),
        ("validation.f", "def f():\n    import exportguard", "validation imports the package that it is a part of"),
        ("novel.g", "from ..errors import GuardError", "novel has no layer"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str, expected: str) -> None:
    assert any(expected in text for text in violations(set(imports_of(source, f"exportguard.{module}"))))


def test_an_import_of_a_lower_layer_is_fine() -> None:
    source = "from exportguard.declaration import Patch\nfrom .rules import all_rules\nfrom .. import _core"
    assert violations(set(imports_of(source, "exportguard.rewrites.a"))) == []
