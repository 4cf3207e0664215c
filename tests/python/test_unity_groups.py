"""Sources that are compiled as one do not see what each keeps to itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "cmake/unity_groups.py"


def groups_of(*sources: Path) -> list[set[str]]:
    lines = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, sources)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    groups: dict[str, set[str]] = {}
    for number, path in (line.split(" ", 1) for line in lines):
        groups.setdefault(number, set()).add(Path(path).stem)
    return list(groups.values())


def source(folder: Path, name: str, own: str, public: str = "") -> Path:
    path = folder / f"{name}.cpp"
    path.write_text(f"namespace ours {{\nnamespace {{\n{own}\n}}  // namespace\n{public}\n}}  // namespace ours\n")
    return path


@pytest.mark.parametrize(
    "own",
    [
        "int shared(int x) { return x; }",
        "std::vector<std::pair<int, int>> shared(const Graph& graph,\n    int x);",
        "constexpr int shared = 3;",
        "const std::map<int, int> shared{{1, 2}};",
        "struct shared {\n  int x;\n};",
        "enum class shared { kOne };",
        "using shared = std::vector<int>;",
        "template <typename T>\nT shared(T x);",
        "bool shared;",
    ],
)
def test_who_mentions_what_another_declares_for_itself_is_apart(tmp_path: Path, own: str) -> None:
    declares = source(tmp_path, "declares", own)
    mentions = source(tmp_path, "mentions", "", "int made() { return shared(1); }")
    other = source(tmp_path, "other", "int another(int x) { return x; }")
    assert groups_of(declares, mentions, other) == [{"declares", "other"}, {"mentions"}]


@pytest.mark.parametrize("text", ["// shared", '"shared"', 'R"(shared)"', "int shared_with_others;"])
def test_no_mention_is_none(tmp_path: Path, text: str) -> None:
    declares = source(tmp_path, "declares", "int shared(int x) { return x; }")
    assert groups_of(declares, source(tmp_path, "mentions", "", text)) == [{"declares", "mentions"}]


def test_a_name_that_is_brought_in_is_the_same_for_all(tmp_path: Path) -> None:
    text = "using first::Value;\n"
    same, other = source(tmp_path, "same", "", text), source(tmp_path, "other", "", "using second::Value;\n")
    without = source(tmp_path, "without", "", "int number(Value x);")
    one = source(tmp_path, "one", "", text)
    groups = groups_of(one, same, other, without)
    assert sorted(groups, key=sorted) == [{"one", "same"}, {"other"}, {"without"}]


def test_a_group_has_an_end(tmp_path: Path) -> None:
    sources = [source(tmp_path, f"one{number}", f"int own{number}() {{ return 1; }}") for number in range(23)]
    assert [len(group) for group in groups_of(*sources)] == [10, 10, 3]
