"""What a patch is: the declared facts, how its targets are found, and what is told of what it changed."""

from .patch import NEEDED, Patch, Verdict, does_not_fit, not_needed, target_missing
from .targets import Target, TargetMissingError, resolve, resolve_object

__all__ = [
    "NEEDED",
    "Patch",
    "Target",
    "TargetMissingError",
    "Verdict",
    "does_not_fit",
    "not_needed",
    "resolve",
    "resolve_object",
    "target_missing",
]
