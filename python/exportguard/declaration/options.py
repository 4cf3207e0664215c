"""What a guard installs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from exportguard.arguments import require_flags, require_kind
from exportguard.declaration.patch import Patch


@dataclass(frozen=True, kw_only=True)
class PatchOptions:
    """What a guard installs: the arguments of `torch_export_patches`, which are `exportguard::PatchOptions` in C++.

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
    :raises InvalidArgumentError: one of them is of another kind
    """

    patch: bool = True
    serializers: bool = True
    patch_sympy: bool = True
    patch_torch: bool = True
    patch_transformers: bool = True
    patch_diffusers: bool = False
    catch_constraints: bool = True
    stop_if_static: int = 0
    custom_patches: Iterable[Any] = ()
    rewrite: Any = ()
    dump_rewriting: str | os.PathLike[str] = ""

    def __post_init__(self) -> None:
        require_flags(
            patch=self.patch,
            serializers=self.serializers,
            patch_sympy=self.patch_sympy,
            patch_torch=self.patch_torch,
            patch_transformers=self.patch_transformers,
            patch_diffusers=self.patch_diffusers,
            catch_constraints=self.catch_constraints,
        )
        require_kind("stop_if_static", self.stop_if_static, int, "0 or 1")
        require_kind("dump_rewriting", self.dump_rewriting, str | os.PathLike, "the path of a folder, or an empty text")

    @classmethod
    def rewriting(cls, patches: tuple[Patch, ...], dump_rewriting: str = "") -> PatchOptions:
        """Those of a guard over rewritten functions alone."""
        return cls(
            serializers=False,
            patch_sympy=False,
            patch_torch=False,
            patch_transformers=False,
            catch_constraints=False,
            rewrite=patches,
            dump_rewriting=dump_rewriting,
        )
