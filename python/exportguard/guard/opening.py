"""`torch_export_patches`, which opens a guard, and its smaller relative."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch.utils._pytree as pytree

from exportguard import _core
from exportguard.arguments import require_flags, require_kind
from exportguard.declaration.details import PatchDetails
from exportguard.declaration.opened import opened
from exportguard.declaration.options import PatchOptions
from exportguard.declaration.patch import Patch
from exportguard.errors import InvalidArgumentError
from exportguard.guard.custom import as_patches
from exportguard.patches import all_patches, declare_all
from exportguard.repeats.plan import checked_repeats, repeats_planned
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
        """The same tensors in new containers, caches included: a call with them leaves yours as they are."""
        return pytree.tree_map(lambda leaf: leaf, inputs)  # type: ignore[no-any-return]

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
    """The guard of a block, which tells `patch_details` what it replaced."""
    if patch_details is not None:
        _load_what_is_patched(options)
    with opened(options) as core:
        guard = Guard(options, core)
        if patch_details is not None:
            patch_details.add_all(guard.patches_in_force())
        yield guard
        if patch_details is not None:
            patch_details.add_all(step.patch for step in guard.rewriting_steps)


def require_known_options(options: Mapping[str, Any]) -> None:
    """Raises for what `torch_export_patches` does not take.

    Raises:
        InvalidArgumentError: naming it and what is known.
    """
    known = inspect.signature(torch_export_patches).parameters
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InvalidArgumentError(
            f"options.guard has {', '.join(unknown)}; torch_export_patches takes {', '.join(known)}"
        )


def _load_what_is_patched(options: PatchOptions) -> None:
    """Whoever asks for details is told of all patches, not of those alone whose modules are imported already."""
    for patch in all_patches():
        if getattr(options, f"patch_{patch.kind}", True):
            patch.load()


@contextmanager
def torch_export_patches(
    *,
    patch: bool = True,
    serializers: bool = True,
    patch_sympy: bool = True,
    patch_torch: bool = True,
    patch_transformers: bool = True,
    patch_diffusers: bool = False,
    catch_constraints: bool = True,
    stop_if_static: int = 0,
    custom_patches: Iterable[Any] = (),
    rewrite: Any = (),
    dump_rewriting: str = "",
    patch_details: PatchDetails | None = None,
    repeats: str = "trace once",
    verbose: int = 0,
) -> Iterator[Guard]:
    """Installs what torch.export needs, and restores every touched object at the end of the block.

    :param patch: False installs the serializers alone
    :param serializers: whether caches are made known to pytree
    :param patch_sympy, patch_torch, patch_transformers, patch_diffusers: the patches of each kind
    :param catch_constraints: an axis that was asked dynamic and became static is logged, not an error at the end
    :param stop_if_static: 1 raises at the line where a dynamic axis becomes static
    :param custom_patches: `Patch` objects, classes with `_PATCHES_` and `_PATCHED_CLASS_`, functions with
        `_PATCHED_FUNCTION_`, {dotted path: function}; one replaces a known patch of the same target. Paths of files
        that `RewrittenExport.save` wrote as well
    :param rewrite: functions whose tests and loops depend on tensor data, to be rewritten: a module, or methods,
        classes, (class, "name") pairs, and dicts of a "target" with options of `transform_method`. True or "auto":
        those that an export in the block stops at, which is then tried again; `rewriting_steps` tells which
    :param dump_rewriting: a folder for the sources of the replaced functions, before and after, with their difference
    :param patch_details: collects the patches that were installed
    :param repeats: "trace once": what blocks of a model repeat is traced once, and the program is the same; "trace all"
        traces everything
    :param verbose: 1 logs the report as a warning
    :raises GuardError: another thread has a guard open, or a patch cannot be installed; nothing is changed then

    >>> import torch
    >>> with torch_export_patches() as prepare:
    ...     program = torch.export.export(torch.nn.Linear(2, 1), prepare((torch.zeros(3, 2),)))
    """
    require_flags(
        patch=patch,
        serializers=serializers,
        patch_sympy=patch_sympy,
        patch_torch=patch_torch,
        patch_transformers=patch_transformers,
        patch_diffusers=patch_diffusers,
        catch_constraints=catch_constraints,
    )
    require_kind("stop_if_static", stop_if_static, int, "0 or 1")
    require_kind("verbose", verbose, int, "0 or 1")
    require_kind("dump_rewriting", dump_rewriting, str | os.PathLike, "the path of a folder, or an empty text")
    require_kind("patch_details", patch_details, PatchDetails | None, "a PatchDetails, or None")
    options = PatchOptions(
        patch=patch,
        serializers=serializers,
        patch_sympy=patch_sympy,
        patch_torch=patch_torch,
        patch_transformers=patch_transformers,
        patch_diffusers=patch_diffusers,
        catch_constraints=catch_constraints,
        stop_if_static=int(stop_if_static),
        dump_rewriting=os.fspath(dump_rewriting),
        custom_patches=as_patches(custom_patches),
        rewrite=as_rewrites(rewrite),
    )
    with repeats_planned(checked_repeats(repeats)), open_guard(options, patch_details) as guard:
        logger.log(logging.WARNING if verbose else logging.DEBUG, "patches:\n%s", guard.report_text)
        yield guard


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
