"""What the rewriting of sources raises."""

from __future__ import annotations

from exportguard.errors import ExportGuardError


class RewriteError(ExportGuardError):
    """A function cannot be rewritten, or a construct cannot be expressed in a graph; the text says where and why."""
