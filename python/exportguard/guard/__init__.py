"""The guard: patches in force for a block, and every touched object restored behind it."""

from exportguard.caches.registration import register_class_serialization, unregister_class_serialization
from exportguard.declaration.options import PatchOptions

from .opening import (
    Guard,
    ReportLine,
    register_additional_serialization_functions,
    torch_export_patches,
)
from .registered import register_cache_serialization, unregister_cache_serialization
from .rewriting import export_with_rewriting, torch_export_rewrite

__all__ = [
    "Guard",
    "PatchOptions",
    "ReportLine",
    "export_with_rewriting",
    "register_additional_serialization_functions",
    "register_cache_serialization",
    "register_class_serialization",
    "torch_export_patches",
    "torch_export_rewrite",
    "unregister_cache_serialization",
    "unregister_class_serialization",
]
