"""Attention of Longformer: as many chunks as the text has, and no global attention where nothing asks for it.

The number of chunks is computed by `torch.div`, which makes a tensor of it. Whether any token is attended to by all is
read from the mask; that none is follows from a call without `global_attention_mask`.
"""

from __future__ import annotations

import ast
import weakref
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.rewrites.runtime import div
from exportguard.source.editing import rewrite
from exportguard.source.templates import Exchange, Match, Template, pairs_of

_GLOBAL_MASK = "global_attention_mask"
_has_global_tokens: weakref.WeakKeyDictionary[torch.nn.Module, bool] = weakref.WeakKeyDictionary()


def note_global_mask(encoder: torch.nn.Module, mask: object) -> None:
    """Remembers for the encoder whether its model was called with such a mask."""
    _has_global_tokens[encoder] = mask is not None


def may_be_global(encoder: torch.nn.Module) -> bool:
    """Whether the mask has to be looked at."""
    return _has_global_tokens.get(encoder, True)


def quotient(number: object, divisor: object, **options: Any) -> Any:
    """`torch.div`, which leaves the quotient of sizes a size."""
    return div(number, divisor, **options)


def chunks(states: torch.Tensor, overlap: int) -> torch.Tensor:
    """(batch, length, width) as (batch, chunks, 2 * overlap, width)."""
    return states.unfold(1, 2 * overlap, overlap).transpose(2, 3)


_ENCODER = Template("self.encoder")
_NOTE = Template(f"note_global_mask(self.encoder, {_GLOBAL_MASK})")
_OF_MODEL, _OF_ENCODER = Template(f"{_GLOBAL_MASK} is not None and $test"), Template("may_be_global(self) and $test")


class OpenChunks(Exchange):
    """`torch.div` → `quotient`; chunks by `unfold`; `is_global_attn = x` only where there may be such tokens."""

    pairs = pairs_of(
        ("torch.div", "quotient"),
        ("self._chunk($states, $overlap, ...)", "chunks($states, $overlap)"),
    )

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._takes_mask = any(argument.arg == _GLOBAL_MASK for argument in node.args.args)
        self.generic_visit(node)
        if self._takes_mask and _ENCODER.within(node):
            node.body[:0] = _NOTE.statements(Match(), node.body[0])
        return ast.fix_missing_locations(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == "is_global_attn":
            asked = _OF_MODEL if self._takes_mask else _OF_ENCODER
            node.value = asked.filled(Match({"test": node.value}), node.value)[0]
        return node


_replace = rewrite(
    OpenChunks, note_global_mask=note_global_mask, may_be_global=may_be_global, quotient=quotient, chunks=chunks
)


PATCHES = (
    construct_patch(
        name="chunks of a sliding attention",
        marker=r'torch\.div\(.*, rounding_mode="trunc"\)|\bself\._merge_to_attention_mask\(|^\s+is_global_attn = ',
        mentions=('rounding_mode="trunc")', "self._merge_to_attention_mask(", "is_global_attn = "),
        replace=_replace,
        reason="sizes divided by torch.div become data, and a test of a mask that was not given stops the export",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
