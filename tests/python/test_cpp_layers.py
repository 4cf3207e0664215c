"""The C++ layers: each includes its own headers and those of the layers below it, and no others.

Which layer stands on which is told once, in CMakeLists.txt; the compiler's include paths are made of the same lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = "python"  # stands on all of them


def direct_dependencies(cmake: str) -> dict[str, set[str]]:
    """What `exportguard_layer(name DEPENDS a b)` says, for each layer."""
    found = {}
    for call in re.findall(r"^\s*exportguard_layer\(([^)]*)\)", cmake, re.MULTILINE):
        name, *words = call.split()
        depends = words[words.index("DEPENDS") + 1 :] if "DEPENDS" in words else []
        keywords = [word for word in depends if word.isupper()]
        found[name] = set(depends[: depends.index(keywords[0])] if keywords else depends)
    return found


def layers_below(direct: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """All that a layer stands on, itself included.

    Raises:
        ValueError: for a circle, or a layer that is not declared before it is used.
    """
    seen: dict[str, set[str]] = {}
    for name, depends in direct.items():
        unknown = sorted(depends - seen.keys())
        if unknown:
            raise ValueError(f"layer {name} stands on {', '.join(unknown)}, declared behind it or not at all")
        seen[name] = {name}.union(*(seen[layer] for layer in depends))
    return seen


def included_layers(text: str, layers: set[str]) -> set[str]:
    """Layers whose headers a source includes: `"exportguard/ir/graph.h"`, `"ir/describe.h"`."""
    paths = re.findall(r'^\s*#\s*include\s*["<](?:exportguard/)?(\w+)/', text, re.MULTILINE)
    return set(paths) & layers


def forbidden_edges(sources: Mapping[Path, str], below: Mapping[str, set[str]]) -> list[str]:
    layers = {*below, TOP}
    return [
        f"{path}: layer {layer} includes {included}"
        for path, text in sources.items()
        for layer in [layer_of(path)]
        if layer in below
        for included in sorted(included_layers(text, layers) - below[layer])
    ]


def layer_of(path: Path) -> str:
    """`src/ir/inference/text.cpp` and `include/exportguard/ir/graph.h` are of `ir`."""
    return path.parts[2] if path.parts[0] == "include" else path.parts[1]


def sources() -> Iterator[tuple[Path, str]]:
    for folder in (ROOT / "src", ROOT / "include" / "exportguard"):
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".h", ".cpp", ".cu"}:
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def declared_layers() -> dict[str, set[str]]:
    return layers_below(direct_dependencies((ROOT / "CMakeLists.txt").read_text(encoding="utf-8")))


def test_every_include_goes_down() -> None:
    assert forbidden_edges(dict(sources()), declared_layers()) == []


def test_every_folder_of_sources_is_a_layer() -> None:
    folders = {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}
    assert folders - {TOP} == set(declared_layers())


@pytest.mark.parametrize(
    ("path", "line", "edge"),
    [
        ("src/ir/graph.cpp", '#include "exportguard/lowering/context.h"', "lowering"),
        ("src/lowering/aten/norm.cpp", '#include "importer/views.h"', "importer"),
        ("include/exportguard/common/dtypes.h", "#include <exportguard/ir/graph.h>", "ir"),
        ("src/guard/session.cpp", '  #  include "python/bindings.h"', "python"),
        ("src/expansion/expansion.cpp", '#include "exportguard/lowering/lower.h"', "lowering"),
    ],
)
def test_a_forbidden_include_is_found(path: str, line: str, edge: str) -> None:
    added = {Path(path): (ROOT / path).read_text(encoding="utf-8") + line + "\n"}
    (found,) = forbidden_edges(added, declared_layers())
    assert path in found
    assert found.endswith(f"includes {edge}")


def test_a_circle_of_layers_is_found() -> None:
    with pytest.raises(ValueError, match="layer a stands on b"):
        layers_below(direct_dependencies("exportguard_layer(a DEPENDS b)\nexportguard_layer(b DEPENDS a)"))


def test_one_layer_asks_for_the_facts_of_operators() -> None:
    asking = re.compile(r"findSchema|findOp\b|getAllOpNames")
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".h", ".cpp")]
    found = {path.relative_to(ROOT / "src").parts[0] for path in sources if asking.search(path.read_text("utf-8"))}
    assert found == {"operators"}
