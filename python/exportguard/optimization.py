"""What the optimizer is asked for, and what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from .errors import InvalidArgumentError

Target = Literal["portable", "onnxruntime", "onnxruntime-genai"]
Optimize = bool | Literal["onnxruntime", "onnxruntime-genai"]


@runtime_checkable
class OwnPattern(Protocol):
    """A rule of the caller's own, as `exportguard.Pattern` is one."""

    name: str

    def described(self, opset: int) -> dict[str, Any]:
        """What `_core.optimize` takes, for models of that opset."""


@dataclass(frozen=True)
class PatternUse:
    """How often a pattern or pass was applied, the seconds it took, and why it declined, reason by reason."""

    name: str
    applied: int
    seconds: float
    refusals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizationReport:
    """Every pattern and pass that was tried, and the nodes before and after, those of nested graphs included."""

    patterns: Sequence[PatternUse]
    nodes_before: int
    nodes_after: int
    seconds: float

    def __str__(self) -> str:
        """A line for each pattern that did something, and the totals."""
        lines = [
            f"{pattern.name}: {pattern.applied} times, {1e3 * pattern.seconds:.1f} ms"
            for pattern in self.patterns
            if pattern.applied
        ]
        total = f"{self.nodes_before} nodes before, {self.nodes_after} after, {1e3 * self.seconds:.1f} ms"
        return "\n".join([*lines, total])


def checked_optimize(optimize: object) -> Optimize:
    """`optimize` itself.

    Raises:
        InvalidArgumentError: it is none of True, False, "onnxruntime" and "onnxruntime-genai".
    """
    if isinstance(optimize, bool):
        return optimize
    if optimize == "onnxruntime":
        return "onnxruntime"
    if optimize == "onnxruntime-genai":
        return "onnxruntime-genai"
    raise InvalidArgumentError(
        f"optimize must be True, False, 'onnxruntime' or 'onnxruntime-genai', got {optimize!r}; pass True"
    )
