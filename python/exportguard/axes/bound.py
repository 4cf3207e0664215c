"""A condition on the sizes of a program's inputs that was not asked for."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sympy


class Kind(enum.Enum):
    """Whose bound it is."""

    OWN = "the model refuses other sizes"
    TESTED = "at other sizes the program does what the model does"
    WRONG = "at other sizes the program does something else than the model"
    MET = "every example that was given meets it; others could not be tried"
    HIDDEN = "at other sizes the model takes another way, behind a test on tensor data"
    OPEN = "other sizes could not be tried"
    INNER = "other sizes could not be tried, but only operators ask, which do so again when the file runs"
    ALIKE = "other sizes could not be tried, but an operator wants axes without names to be of one size"
    ASKED = "no other sizes were asked for"
    VAST = "other sizes could not be tried, but only those break it at which a tensor has more than 2^30 entries"
    NONE = "no name asks for a size of 0; the model takes one, and the program not in the same way"
    EMPTY = "no name asks for a cache without tokens; the model takes one, and the program not in the same way"
    SQUEEZED = (
        "the model squeezes a single one away and returns another rank, while a file has one rank for each output"
    )
    SINGLE = "the data counts how many there are; the model takes a single one too, and the program not in the same way"


class Answer(NamedTuple):
    """What a model returns for a call, both as leaves."""

    inputs: Sequence[Any]
    outputs: Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class AxisBound:
    """A condition on sizes that holds for the program, in the user's names, and sizes that do not meet it.

    `symbols` are torch's; `line` is the line of the model that asked; `untried` is why no other size could be tried, if
    that is known. `answers` are those of a model that refuses other sizes, and takes a single entry of a symbol beside
    several; `alike` are conditions of other axes that are as this one.
    """

    condition: str
    symbols: frozenset[str]
    kind: Kind
    line: str = ""
    untried: str = ""
    sizes: str = ""
    at_most: int | None = None  # of one size, where the condition says no more than that
    holds: sympy.Basic | None = field(default=None, repr=False)  # the condition, in torch's symbols
    answers: Mapping[sympy.Symbol, Sequence[Answer]] = field(default_factory=dict, repr=False)
    alike: tuple[sympy.Basic, ...] = field(default=(), repr=False)
    point: Mapping[str, int] = field(default_factory=dict, repr=False)  # those sizes, and all others, by torch's symbol

    @property
    def excludes_what_was_asked(self) -> bool:
        """Whether there are sizes that were asked for at which the program is wrong, as far as is known."""
        return self.kind in (Kind.WRONG, Kind.HIDDEN, Kind.OPEN)

    def as_dict(self) -> dict[str, object]:
        """For a JSON report, without what only torch's symbols say."""
        return {
            "condition": self.condition,
            "kind": self.kind.value,
            "line": self.line,
            "sizes": self.sizes,
            "at_most": self.at_most,
        }

    def __str__(self) -> str:
        tried = f" ({self.sizes})" if self.sizes else ""
        place = f" (by {self.line})" if self.line and self.kind not in (Kind.TESTED, Kind.INNER) else ""
        reason = f", {self.untried}" if self.untried and self.kind == Kind.OPEN else ""
        return f"for {self.condition}: {self.kind.value}{tried}{reason}{place}"


def upper_bound(condition: sympy.Basic) -> int | None:
    """The largest size that `size <= number` allows."""
    if not isinstance(condition, sympy.LessThan | sympy.StrictLessThan) or not condition.args[0].is_Symbol:
        return None
    number = condition.args[1]
    return int(number) - isinstance(condition, sympy.StrictLessThan) if number.is_Integer else None


def as_at_least_two(condition: sympy.Basic) -> sympy.Basic:
    """`size != 1` as `size >= 2`: sizes are whole and, but for those of caches without tokens, positive."""
    size, other = condition.args if isinstance(condition, sympy.Ne) else (condition, None)
    return sympy.Ge(size, 2) if other == 1 else condition
