"""`torch_export_patches`, which opens a guard, and its smaller relative."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ContextDecorator, ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

import torch.utils._pytree as pytree

from exportguard import _core
from exportguard.arguments import require_flags, require_kind
from exportguard.declaration.details import PatchDetails
from exportguard.declaration.opened import opened
from exportguard.declaration.options import PatchOptions
from exportguard.declaration.patch import Patch
from exportguard.errors import GuardError, InvalidArgumentError
from exportguard.guard.custom import as_patches
from exportguard.inputs import apart
from exportguard.patches import all_patches, declare_all
from exportguard.repeats.plan import Repeats, checked_repeats, repeats_planned
from exportguard.rewrites.automatic import AutomaticRewriting, RewritingStep
from exportguard.rewrites.selection import as_rewrites

logger = logging.getLogger(__name__)

Inputs = TypeVar("Inputs")

declare_all()


class ReportLine(NamedTuple):
    """What the guard did with one patch."""

    name: str
    kind: str
    targets: list[str]
    outcome: str  # "installed", "skipped", "already installed" or "waiting" for a module
    reason: str


class Guard:
    """An open guard. Called with inputs, it gives inputs for export; `report` says what it installed."""

    def __init__(self, options: PatchOptions, core: _core.ExportPatches) -> None:
        known = (*all_patches(), *options.rewrite, *options.custom_patches)
        self._known = {patch.name: patch for patch in known}
        self._core = core

    def __call__(self, inputs: Inputs) -> Inputs:
        """The same tensors in new containers, caches included: a call with them leaves yours as they are.

        A tensor that is there twice is a copy the second time, as two inputs are to torch.export one input else.
        """
        leaves, spec = pytree.tree_flatten(inputs)
        return pytree.tree_unflatten(apart(leaves) or leaves, spec)  # type: ignore[no-any-return]

    @property
    def report(self) -> list[ReportLine]:
        """One line for every patch that the guard looked at."""
        return [ReportLine(*line) for line in self._core.lines]

    @property
    def report_text(self) -> str:
        """The report as a table for people."""
        return self._core.text()

    @property
    def is_open(self) -> bool:
        return self._core.is_open

    def patches_in_force(self) -> list[Patch]:
        """The patches that this guard installed, or that wait in it for a module."""
        names = {line.name for line in self.report if line.outcome in ("installed", "waiting")}
        return [patch for name, patch in self._known.items() if name in names]

    @property
    def rewriting_steps(self) -> tuple[RewritingStep, ...]:
        """What `rewrite="auto"` rewrote for the exports so far, in the order in which they stopped."""
        automatic = (patch for patch in self._known.values() if isinstance(patch, AutomaticRewriting))
        return tuple(step for patch in automatic for step in patch.steps)

    def close(self) -> None:
        """Restores everything. A second call does nothing.

        :raises GuardError: from another thread, or naming what could not be restored
        """
        self._core.close()


@contextmanager
def open_guard(options: PatchOptions, patch_details: PatchDetails | None = None) -> Iterator[Guard]:
    """The guard of a block, which tells `patch_details` what it replaced.

    :raises InvalidArgumentError: a custom patch or a function to be rewritten does not say what it is
    """
    options = replace(
        options,
        custom_patches=as_patches(options.custom_patches),
        rewrite=as_rewrites(options.rewrite),
        dump_rewriting=os.fspath(options.dump_rewriting),
    )
    if patch_details is not None:
        _load_what_is_patched(options)
    with opened(options) as core:
        guard = Guard(options, core)
        if patch_details is not None:
            patch_details.add_all(guard.patches_in_force())
        yield guard
        if patch_details is not None:
            patch_details.add_all(step.patch for step in guard.rewriting_steps)


def _load_what_is_patched(options: PatchOptions) -> None:
    """Whoever asks for details is told of all patches, not of those alone whose modules are imported already."""
    for patch in all_patches():
        if getattr(options, f"patch_{patch.kind}", True):
            patch.load()


@dataclass(frozen=True, kw_only=True)
class torch_export_patches(PatchOptions, ContextDecorator):  # noqa: N801 - it is called as a function is
    """Installs what torch.export needs, and restores every touched object at the end of the block.

    It takes what `PatchOptions` has, and:

    :param patch_details: collects the patches that were installed
    :param repeats: "trace once": what blocks of a model repeat is traced once, and the program is the same; "trace all"
        traces everything
    :param verbose: 1 logs the report as a warning
    :raises GuardError: another thread has a guard open, or a patch cannot be installed; nothing is changed then

    >>> import torch
    >>> with torch_export_patches() as prepare:
    ...     program = torch.export.export(torch.nn.Linear(2, 1), prepare((torch.zeros(3, 2),)))
    """

    patch_details: PatchDetails | None = None
    repeats: Repeats = "trace once"
    verbose: int = 0
    _blocks: list[ExitStack] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_kind("verbose", self.verbose, int, "0 or 1")
        require_kind("patch_details", self.patch_details, PatchDetails | None, "a PatchDetails, or None")
        checked_repeats(self.repeats)
        object.__setattr__(self, "custom_patches", as_patches(self.custom_patches))

    @classmethod
    def given(cls, options: PatchOptions | Mapping[str, Any]) -> torch_export_patches:
        """The guard that options ask for, or arguments by name.

        :raises InvalidArgumentError: an argument is unknown
        """
        if isinstance(options, cls):
            return options
        if isinstance(options, PatchOptions):
            return cls(**{field_.name: getattr(options, field_.name) for field_ in fields(PatchOptions)})
        known = [field_.name for field_ in fields(cls) if field_.init]
        unknown = [name for name in options if name not in known]
        if unknown:
            raise InvalidArgumentError(
                f"options.guard has {', '.join(unknown)}; torch_export_patches takes {', '.join(known)}"
            )
        return cls(**options)

    def __enter__(self) -> Guard:
        with ExitStack() as block:
            block.enter_context(repeats_planned(checked_repeats(self.repeats)))
            guard = block.enter_context(open_guard(self, self.patch_details))
            level = logging.WARNING if self.verbose else logging.DEBUG
            if logger.isEnabledFor(level):  # the text is long
                logger.log(level, "patches:\n%s", guard.report_text)
            self._blocks.append(block.pop_all())
        return guard

    def __exit__(self, *error: Any) -> None:
        if not self._blocks:
            raise GuardError("the guard is not open: it is left as often as it was entered, as by a `with` statement")
        self._blocks.pop().__exit__(*error)


@contextmanager
def register_additional_serialization_functions(
    *, patch_transformers: bool = True, patch_diffusers: bool = False
) -> Iterator[Guard]:
    """The serializers alone: enough for many models, since most need nothing else.

    >>> with register_additional_serialization_functions(patch_transformers=True):
    ...     pass
    """
    require_flags(patch_transformers=patch_transformers, patch_diffusers=patch_diffusers)
    options = PatchOptions(
        serializers=patch_transformers,
        patch_sympy=False,
        patch_torch=False,
        patch_transformers=False,
        patch_diffusers=patch_diffusers,
        catch_constraints=False,
    )
    with open_guard(options) as guard:
        yield guard
