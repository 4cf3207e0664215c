"""What the rewriting raises."""

from __future__ import annotations

from exportguard.errors import ExportGuardError


class RewriteError(ExportGuardError):
    """A construct cannot be expressed in a graph; the text says where, why and what to do."""
