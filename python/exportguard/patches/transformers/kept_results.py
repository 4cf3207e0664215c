"""What a module keeps for the length that it was last called with: it is made for each length.

In a trace the test whether the length is the same is one of sizes: the program has what was kept of a call before the
export, or is bounded to other lengths than that.
"""

from __future__ import annotations

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange

#: The test goes, and with it what was kept.
MadeAnew = exchange(
    "MadeAnew",
    ("if $length == $known and $kept is not None:\n    return $kept", "pass"),
)


PATCHES = (
    construct_patch(
        name="results kept for one length",
        marker=r"== self\.cached_\w+ and self\.cached_\w+ is not None",
        mentions=("== self.cached_",),
        replace=rewrite(MadeAnew),
        reason="whether what was kept is for this length is decided for the traced one",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
