"""What a patch is made of."""

from exportguard.declaration import (
    NEEDED,
    Patch,
    Target,
    TargetMissingError,
    Verdict,
    does_not_fit,
    not_needed,
    resolve,
    resolve_object,
    target_missing,
)

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
