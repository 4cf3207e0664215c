"""exportguard: PyTorch models to ONNX, right on every shape.

It guards `torch.export` with patches that undo themselves, converts the exported program in C++ without tracing it
again, and proves the result by running it.
"""

import importlib
from typing import TYPE_CHECKING, Any

import torch  # before the C++ libraries, which need torch's to be loaded

from . import _core
from .torch_version import require_same_torch

require_same_torch(torch.__version__, _core.torch_version_built_against())

from .axis_report import AxisOutcome  # noqa: E402 - only a matching torch lets these be imported
from .declaration.details import PatchDetails  # noqa: E402
from .dispatcher import Dispatcher  # noqa: E402
from .dynamic_shapes import (  # noqa: E402
    all_dynamic_shapes_from_inputs,
    check_inputs,
    use_dims_not_str,
    use_dyn_not_str,
)
from .errors import (  # noqa: E402
    AxisError,
    ExportError,
    ExportGuardError,
    FileError,
    GraphError,
    GuardError,
    InvalidArgumentError,
    LoweringError,
    ParseError,
    ProgramError,
)
from .export import ExportOptions, to_onnx  # noqa: E402
from .graph_builder import GraphBuilder  # noqa: E402
from .guard import (  # noqa: E402
    export_with_rewriting,
    register_additional_serialization_functions,
    register_cache_serialization,
    register_class_serialization,
    torch_export_patches,
    torch_export_rewrite,
    unregister_cache_serialization,
    unregister_class_serialization,
)
from .input_observer import observe_inputs  # noqa: E402
from .observed_shapes import observed_dynamic_shapes  # noqa: E402
from .onnx_model import OnnxModel, ValueInfo, load  # noqa: E402
from .rewrites.automatic import RewrittenExport  # noqa: E402
from .rewrites.engine import RewrittenMethod  # noqa: E402
from .rewrites.saved import save_rewritten  # noqa: E402
from .rewrites.selection import code_needing_rewriting  # noqa: E402
from .rewrites.transform import ast_or_into_bitor, transform_method  # noqa: E402
from .source.errors import RewriteError  # noqa: E402
from .validation.discrepancies import Discrepancy, Tolerance, compare_outputs  # noqa: E402

if TYPE_CHECKING:
    from .caches.build import (
        make_dynamic_cache,
        make_encoder_decoder_cache,
        make_hybrid_cache,
        make_sliding_window_cache,
        make_static_cache,
    )

__version__ = _core.version()

__all__ = [
    "AxisError",
    "AxisOutcome",
    "Discrepancy",
    "Dispatcher",
    "ExportError",
    "ExportGuardError",
    "ExportOptions",
    "FileError",
    "GraphBuilder",
    "GraphError",
    "GuardError",
    "InvalidArgumentError",
    "LoweringError",
    "OnnxModel",
    "ParseError",
    "PatchDetails",
    "ProgramError",
    "RewriteError",
    "RewrittenExport",
    "RewrittenMethod",
    "Tolerance",
    "ValueInfo",
    "__version__",
    "all_dynamic_shapes_from_inputs",
    "ast_or_into_bitor",
    "check_inputs",
    "code_needing_rewriting",
    "compare_outputs",
    "export_with_rewriting",
    "load",
    "make_dynamic_cache",
    "make_encoder_decoder_cache",
    "make_hybrid_cache",
    "make_sliding_window_cache",
    "make_static_cache",
    "observe_inputs",
    "observed_dynamic_shapes",
    "register_additional_serialization_functions",
    "register_cache_serialization",
    "register_class_serialization",
    "save_rewritten",
    "to_onnx",
    "torch_export_patches",
    "torch_export_rewrite",
    "transform_method",
    "unregister_cache_serialization",
    "unregister_class_serialization",
    "use_dims_not_str",
    "use_dyn_not_str",
]


def __getattr__(name: str) -> Any:
    """What builds caches needs transformers, which not everybody has."""
    if name.startswith("make_") and name in __all__:
        return getattr(importlib.import_module(f"{__name__}.caches.build"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
