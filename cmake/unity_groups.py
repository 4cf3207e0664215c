"""Which sources may be compiled together, as one: `unity_groups.py SOURCE...` prints "<group> <source>" for each.

What a source keeps to itself, in its anonymous namespace, another one in the same unit would see. No two are together
of which one declares there what the other one mentions, whatever it means by it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

_MOST = 10  # sources of a group: more take a compiler's memory, and leave a processor idle at the end
_RAW_TEXT = r'R"\((?:.|\n)*?\)"'
_NO_CODE = re.compile(rf'//[^\n]*|{_RAW_TEXT}|"(?:\\.|[^"\\\n])*"')
_WORD = re.compile(r"(?<![\w.:>])[A-Za-z_]\w*")  # no `a` in `b.a`, `b->a`, `b::a`: those are looked up in b
_OPENED, _CLOSED = "namespace {", "}  // namespace"  # as clang-format leaves them
_TYPE = re.compile(r"(?:template.*> )?(?:(?:struct|class|enum(?: class)?) (\w+)|using (\w+) =)")
# A function or a variable: the name before what follows it.
_OTHER = re.compile(r"(?!using |static_assert)[^=({]*?\b(\w+)\s*[(={\[;]")
# `using a::b;` and `namespace b = a;`, which may be said twice of the same.
_BROUGHT = re.compile(r"^(?:using [\w:]+::(\w+)|namespace (\w+) = \w+(?:::\w+)*);", re.MULTILINE)
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True)
class Source:
    """A file, what it declares in its anonymous namespaces, what it names anew by its name, every word of its code."""

    path: str
    own: frozenset[str]
    brought: dict[str, str]
    words: frozenset[str]

    def may_join(self, other: Source) -> bool:
        """Whether neither mentions what the other one keeps to itself, or means by a name of its own."""
        return self._is_kept_from(other) and other._is_kept_from(self)

    def _is_kept_from(self, other: Source) -> bool:
        others = {name for name, line in self.brought.items() if other.brought.get(name) != line}
        return not (self.own | others) & other.words


def _read(path: str) -> Source:
    text = Path(path).read_text(encoding="utf-8")
    brought = {line[1] or line[2]: line[0] for line in _BROUGHT.finditer(text)}
    words = {*_WORD.findall(_NO_CODE.sub(" ", text)), *brought}
    return Source(path, frozenset(_own_names(text)), brought, frozenset(words))


def _own_names(text: str) -> set[str]:
    """What is declared at the left margin of an anonymous namespace."""
    found: set[str] = set()
    is_inside = False
    for line in re.sub(_RAW_TEXT, '""', text).splitlines():
        if line in (_OPENED, _CLOSED):
            is_inside = line == _OPENED
        elif is_inside and not _BROUGHT.match(line) and line[:1] not in ("", " ", "}", "/", "#"):
            declared = _TYPE.match(line) or _OTHER.match(line)
            found |= set(filter(None, declared.groups())) if declared else set()
    return {name for name in found if not _MACRO.fullmatch(name)}


def _grouped(sources: list[Source]) -> list[list[Source]]:
    """Few groups: those that the most others may not join come first."""
    groups: list[list[Source]] = []
    apart = {source.path: sum(not source.may_join(other) for other in sources) for source in sources}
    for source in sorted(sources, key=lambda source: -apart[source.path]):
        fitting = (group for group in groups if len(group) < _MOST and all(map(source.may_join, group)))
        group = next(fitting, None)
        if group is None:
            groups.append([source])
        else:
            group.append(source)
    return groups


if __name__ == "__main__":
    for number, group in enumerate(_grouped([_read(path) for path in sys.argv[1:]])):
        for source in group:
            print(number, source.path)
