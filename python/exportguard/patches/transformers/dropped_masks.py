"""Masks of padding that are dropped where no token is padding, which only the tokens tell: they are kept, all false.

A mask that leaves nothing out does what no mask does.
"""

from __future__ import annotations

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import exchange

KeptMask = exchange(
    "KeptMask",
    ("if not $mask.any():\n    $mask = None\nreturn $mask", "return $mask"),
)


PATCHES = (
    construct_patch(
        name="masks of padding dropped where there is none",
        marker=r"^\s+if not padding_mask\.any\(\):$",
        mentions=("if not padding_mask.any():",),
        replace=rewrite(KeptMask),
        reason="whether any token is padding is data, and a mask or none are no two values of one kind",
        upstream="https://github.com/huggingface/transformers/blob/main/src/transformers/models/fsmt/modeling_fsmt.py",
    ),
)
