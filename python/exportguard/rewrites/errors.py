"""What the rewriting raises."""

from exportguard.source.errors import RewriteError

__all__ = ["RewriteError"]
