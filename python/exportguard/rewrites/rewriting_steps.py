"""What was rewritten for an export, and where it had stopped before."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from exportguard.rewrites.in_place import InPlaceRewrite
from exportguard.rewrites.saved import save_rewritten


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a function is rewritten: at these lines alone, with what follows a test in its branches, with sizes kept,
    with variables that say whether others are None."""

    lines: frozenset[int] | None = None  # None: everything that can be
    absorb_rest: bool = False
    keep_sizes: bool = False
    tell_nones: bool = False


@dataclass(frozen=True, kw_only=True)
class RewritingStep:
    """A function that was rewritten, and where the export had stopped before."""

    patch: InPlaceRewrite
    stopped_at: str
    error: str
    form: Form = Form()

    def report(self) -> str:
        """The line, what was rewritten in which function, and the difference of its source."""
        rewritten = f"{self.patch.target}: {self.patch.reason}\n{self.patch.rewritten.diff()}"
        return f"{self.stopped_at}\n  {self.error}\n{rewritten}"


@dataclass(frozen=True, kw_only=True)
class RewrittenExport:
    """An exported program and the functions that were rewritten for it, in the order in which the export stopped."""

    program: torch.export.ExportedProgram
    steps: tuple[RewritingStep, ...]

    @property
    def rewritten(self) -> tuple[InPlaceRewrite, ...]:
        """What `rewrite` and `custom_patches` take."""
        return tuple(step.patch for step in self.steps)

    def report(self) -> str:
        """Each step: where the export stopped, what was rewritten and the difference of its source."""
        return "\n\n".join(step.report() for step in self.steps)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the rewritten functions as a Python file that `custom_patches` takes.

        :raises InvalidArgumentError: a function cannot be found by its name, as those defined in functions
        """
        save_rewritten(self.rewritten, path)
