"""exportguard: PyTorch models to ONNX, right on every shape.

It guards `torch.export` with patches that undo themselves, converts the exported program in C++ without tracing it
again, and proves the result by running it.

Importing the package imports nothing else: a name is loaded, and torch with it, when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import version

if TYPE_CHECKING:
    from . import _core as _core
    from .axis_report import AxisOutcome
    from .caches.build import (
        make_dynamic_cache,
        make_encoder_decoder_cache,
        make_hybrid_cache,
        make_sliding_window_cache,
        make_static_cache,
    )
    from .declaration.details import PatchDetails
    from .dispatcher import Dispatcher
    from .dynamic_shapes import all_dynamic_shapes_from_inputs, check_inputs, use_dims_not_str, use_dyn_not_str
    from .errors import (
        AxisError,
        ExportError,
        ExportGuardError,
        FileError,
        GraphError,
        GuardError,
        InvalidArgumentError,
        LoweringError,
        PackageError,
        ParseError,
        ProgramError,
    )
    from .export import to_onnx
    from .graph_builder import GraphBuilder
    from .guard import (
        PatchOptions,
        export_with_rewriting,
        register_additional_serialization_functions,
        register_cache_serialization,
        register_class_serialization,
        torch_export_patches,
        torch_export_rewrite,
        unregister_cache_serialization,
        unregister_class_serialization,
    )
    from .input_observer import observe_inputs
    from .observed_shapes import observed_dynamic_shapes
    from .onnx_model import OnnxModel, ValueInfo, load
    from .own_patterns import Hole, Pattern, builtin_patterns
    from .request import ExportOptions
    from .rewrites.automatic import RewrittenExport
    from .rewrites.engine import RewrittenMethod
    from .rewrites.saved import save_rewritten
    from .rewrites.selection import code_needing_rewriting
    from .rewrites.transform import ast_or_into_bitor, transform_method
    from .ship.folder import export_model
    from .ship.outcome import ExportedFolder, FolderOptions
    from .ship.quantization import Quantization
    from .source.errors import RewriteError
    from .validation.discrepancies import Discrepancy, Tolerance, compare_outputs
    from .validation.divergence import (
        Divergence,
        DivergenceOptions,
        DivergenceReport,
        compare,
        find_divergence,
    )
    from .validation.reproduction import write_reproduction
    from .validation.validate import ValidateOptions, ValidationReport, validate_module

__all__ = [  # noqa: RUF022 - in groups, in the order in which one meets them
    # From a module or a program to ONNX
    "to_onnx",
    "ExportOptions",
    "OnnxModel",
    "ValueInfo",
    "AxisOutcome",
    "load",
    # Folders that a runtime loads
    "export_model",
    "ExportedFolder",
    "FolderOptions",
    "Quantization",
    # The guard: patches in force for a block
    "torch_export_patches",
    "PatchOptions",
    "PatchDetails",
    "register_additional_serialization_functions",
    # How classes are taken apart and put together for torch.export
    "register_cache_serialization",
    "unregister_cache_serialization",
    "register_class_serialization",
    "unregister_class_serialization",
    # Caches of transformers from tensors
    "make_dynamic_cache",
    "make_encoder_decoder_cache",
    "make_hybrid_cache",
    "make_sliding_window_cache",
    "make_static_cache",
    # Dynamic shapes: found, checked, and in torch's other spellings
    "observe_inputs",
    "observed_dynamic_shapes",
    "all_dynamic_shapes_from_inputs",
    "check_inputs",
    "use_dims_not_str",
    "use_dyn_not_str",
    # Control flow on tensor data, rewritten
    "export_with_rewriting",
    "torch_export_rewrite",
    "transform_method",
    "ast_or_into_bitor",
    "code_needing_rewriting",
    "save_rewritten",
    "RewrittenExport",
    "RewrittenMethod",
    # Graphs of one's own, and operators
    "GraphBuilder",
    "Dispatcher",
    "Hole",
    "Pattern",
    "builtin_patterns",
    # Validation, and comparison with the original
    "validate_module",
    "ValidateOptions",
    "ValidationReport",
    "compare_outputs",
    "Discrepancy",
    "Tolerance",
    # Where two models part: the first node that diverges
    "Divergence",
    "DivergenceOptions",
    "DivergenceReport",
    "compare",
    "find_divergence",
    "write_reproduction",
    # Errors, the one that all others are first
    "ExportGuardError",
    "AxisError",
    "ExportError",
    "FileError",
    "GraphError",
    "GuardError",
    "InvalidArgumentError",
    "LoweringError",
    "PackageError",
    "ParseError",
    "ProgramError",
    "RewriteError",
    "__version__",
]

__version__ = version.VERSION

#: Where each name lives, by module.
_HOMES = {
    "axis_report": ("AxisOutcome",),
    "declaration.details": ("PatchDetails",),
    "dispatcher": ("Dispatcher",),
    "dynamic_shapes": (
        "all_dynamic_shapes_from_inputs",
        "check_inputs",
        "use_dims_not_str",
        "use_dyn_not_str",
    ),
    "errors": (
        "AxisError",
        "ExportError",
        "ExportGuardError",
        "FileError",
        "GraphError",
        "GuardError",
        "InvalidArgumentError",
        "LoweringError",
        "PackageError",
        "ParseError",
        "ProgramError",
    ),
    "export": ("to_onnx",),
    "request": ("ExportOptions",),
    "graph_builder": ("GraphBuilder",),
    "guard": (
        "PatchOptions",
        "export_with_rewriting",
        "register_additional_serialization_functions",
        "register_cache_serialization",
        "register_class_serialization",
        "torch_export_patches",
        "torch_export_rewrite",
        "unregister_cache_serialization",
        "unregister_class_serialization",
    ),
    "input_observer": ("observe_inputs",),
    "observed_shapes": ("observed_dynamic_shapes",),
    "onnx_model": (
        "OnnxModel",
        "ValidateOptions",
        "ValidationReport",
        "ValueInfo",
        "load",
    ),
    "own_patterns": ("Hole", "Pattern", "builtin_patterns"),
    "rewrites.automatic": ("RewrittenExport",),
    "rewrites.engine": ("RewrittenMethod",),
    "rewrites.saved": ("save_rewritten",),
    "rewrites.selection": ("code_needing_rewriting",),
    "rewrites.transform": (
        "ast_or_into_bitor",
        "transform_method",
    ),
    "ship.folder": ("export_model",),
    "ship.outcome": ("ExportedFolder", "FolderOptions"),
    "ship.quantization": ("Quantization",),
    "source.errors": ("RewriteError",),
    "validation.validate": ("ValidateOptions", "ValidationReport", "validate_module"),
    "validation.discrepancies": (
        "Discrepancy",
        "Tolerance",
        "compare_outputs",
    ),
    "validation.divergence": (
        "Divergence",
        "DivergenceOptions",
        "DivergenceReport",
        "compare",
        "find_divergence",
    ),
    "validation.reproduction": ("write_reproduction",),
    "caches.build": (
        "make_dynamic_cache",
        "make_encoder_decoder_cache",
        "make_hybrid_cache",
        "make_sliding_window_cache",
        "make_static_cache",
    ),
}
#: What people look for, by the name that it has here.
_CALLED_HERE = {
    "bypass_export_some_errors": "torch_export_patches",
    "export_model_to_onnx": "to_onnx",
    "get_untrained_model_with_inputs": "models.build_model",
    "InputObserver": "observe_inputs",
    "max_diff": "compare_outputs",
    "ModelInputs": "observe_inputs",
    "register_flattening_functions": "register_additional_serialization_functions",
    "register_pytree_node": "register_class_serialization",
    "string_diff": "compare_outputs",
    "unregister_flattening_functions": "unregister_class_serialization",
    "validate_model": "validation.validate.validate_model",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Loads what is asked for; the C++ part too, which needs torch's libraries to be loaded before."""
    if name == "_core":
        return _load_core()
    if name not in _HOME_OF:
        hint = f"; here it is called exportguard.{_CALLED_HERE[name]}" if name in _CALLED_HERE else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _load_core() -> Any:
    """The C++ part, behind torch, whose libraries it needs to be loaded.

    Raises:
        PackageError: no torch, another one than it was built against, or no C++ part; with what to do.
    """
    torch_version = importlib.import_module(f"{__name__}.torch_version")
    torch = torch_version.require_torch()
    try:
        core = importlib.import_module(f"{__name__}._core")
    except ImportError as error:
        raise torch_version.core_that_does_not_load(torch, error) from error
    torch_version.require_same_torch(torch, core.torch_version_built_against())
    return core
