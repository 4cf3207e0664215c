"""Attention of Longformer: as many chunks as the text has, and tokens that all attend to, as many as a mask names.

The number of chunks is computed by `torch.div`, which makes a tensor of it. Whether any token is attended to by all is
read from the mask: that none is follows from a call without `global_attention_mask`, and with one the way for such
tokens is taken, which adds nothing where there are none. How many a text has at most is a size of the program.
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


def largest(counts: torch.Tensor) -> Any:
    """The largest of the counts as a size, 1 at least.

    A place that no token of a row fills is masked and holds zeros, so one too many changes nothing, while onnxruntime
    1.31 ends the process in a product of matrices without columns.
    """
    return counts.max().clamp(min=1).item()


def places_of(is_global: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each token that all attend to, its row and how many such tokens stand before it in the row.

    These are as many as `is_global.nonzero()` and in its order, since they are made of it: what is looked up with one
    and written with the other has one length.
    """
    rows, columns = is_global.nonzero(as_tuple=True)
    counted = is_global.long().cumsum(dim=1) - 1
    return rows, counted[rows, columns]


_ENCODER = Template("self.encoder")
_NOTE = Template(f"note_global_mask(self.encoder, {_GLOBAL_MASK})")
# With weights among the outputs, their sizes tell whether there was such a token: then the mask has the word.
_OF_MODEL = Template(f"{_GLOBAL_MASK} is not None and (not output_attentions or $test)")
_OF_ENCODER = Template("may_be_global(self) and (not output_attentions or $test)")


class OpenChunks(Exchange):
    """`torch.div` → `quotient`; chunks by `unfold`; global tokens counted by the program, where there may be any."""

    pairs = pairs_of(
        ("torch.div", "quotient"),
        ("self._chunk($states, $overlap, ...)", "chunks($states, $overlap)"),
        ("num_global_attn_indices.max()", "largest(num_global_attn_indices)"),
        ("is_local_index_global_attn.nonzero(as_tuple=True)", "places_of(is_index_global_attn)"),
        # What is in a view of no rows is not known.
        ("$rows.view(len(is_local_index_global_attn_nonzero[0]), -1)", "$rows.flatten(1)"),
        ("len(is_local_index_global_attn_nonzero[0])", "is_local_index_global_attn_nonzero[0].shape[0]"),
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
    OpenChunks,
    note_global_mask=note_global_mask,
    may_be_global=may_be_global,
    quotient=quotient,
    chunks=chunks,
    largest=largest,
    places_of=places_of,
)


PATCHES = (
    construct_patch(
        name="chunks of a sliding attention",
        marker=(
            r'torch\.div\(.*, rounding_mode="trunc"\)|\bself\._merge_to_attention_mask\(|^\s+is_global_attn = '
            r"|\bnum_global_attn_indices\.max\(\)|\blen\(is_local_index_global_attn_nonzero\["
        ),
        mentions=(
            'rounding_mode="trunc")',
            "self._merge_to_attention_mask(",
            "is_global_attn = ",
            "num_global_attn_indices.max()",
            "len(is_local_index_global_attn_nonzero[",
        ),
        replace=_replace,
        reason="sizes divided by torch.div become data, and a test of the mask of global tokens stops the export",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
