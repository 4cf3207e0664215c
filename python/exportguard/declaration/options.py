"""What a guard installs."""

from __future__ import annotations

from dataclasses import dataclass

from exportguard.declaration.patch import Patch


@dataclass(frozen=True, kw_only=True)
class PatchOptions:
    """What a guard installs; the fields of `torch_export_patches`, ready for the C++ side."""

    patch: bool = True
    serializers: bool = True
    patch_sympy: bool = True
    patch_torch: bool = True
    patch_transformers: bool = True
    patch_diffusers: bool = False
    catch_constraints: bool = True
    stop_if_static: int = 0
    dump_rewriting: str = ""
    custom_patches: tuple[Patch, ...] = ()
    rewrite: tuple[Patch, ...] = ()

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
