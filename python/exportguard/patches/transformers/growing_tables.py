"""Tables of sinusoidal positions that grow when a text is longer than they are.

Growing is decided while a model is traced: the program has a table of one length. Here the entries for a text that is
longer are those of the new table, which are a formula of the position.
"""

from __future__ import annotations

import ast
import math
from typing import Any

import torch

from exportguard.declaration.constructs import construct_patch
from exportguard.source.editing import rewrite
from exportguard.source.templates import Exchange, Template


def sinusoids(positions: torch.Tensor, width: int, padding: int | None) -> torch.Tensor:
    """The entries, (positions, width), that a table has at these positions, whatever its length."""
    half = width // 2
    frequencies = torch.exp(
        torch.arange(half, dtype=torch.int64, device=positions.device).float() * -(math.log(10000) / (half - 1))
    )
    angles = positions.float().unsqueeze(1) * frequencies.unsqueeze(0)
    entries = torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)
    if width % 2:
        entries = torch.nn.functional.pad(entries, (0, 1))
    return entries if padding is None else entries * (positions != padding).unsqueeze(1)


def entries_at(table: torch.Tensor, positions: torch.Tensor, padding: int | None, count: Any) -> torch.Tensor:
    """The entries at these positions: those of the table if it has `count` of them, else those of the formula."""
    # Not at the top: symbolic shapes take long to import, and whoever exports has them by now.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    length = table.shape[0]
    if statically_known_true(count <= length):
        return table.index_select(0, positions)
    kept = table.index_select(0, positions.clamp(max=length - 1))
    made = sinusoids(positions, table.shape[1], padding).to(table.dtype)
    is_enough = torch.full((), count, dtype=torch.int64, device=table.device) <= length
    return torch.where(is_enough, kept, made)


_LOOKS_UP = "self.weights.index_select(0, position_ids.view(-1))"
_ENTRIES = "entries_at(self.weights, position_ids.view(-1), self.padding_idx, max_pos)"


class FormulaBeyond(Exchange):
    """No table grows; what is looked up is `entries_at` the positions."""

    pairs = (
        (Template(_LOOKS_UP), Template(_ENTRIES)),
        (
            Template("return super().forward(positions)"),
            Template(
                "return entries_at(self.weight, positions.view(-1), self.padding_idx, max_pos)"
                ".view(*positions.shape, self.weight.shape[1])"
            ),
        ),
    )

    def visit_If(self, node: ast.If) -> Any:
        """Leaves out the test that makes a table anew."""
        self.generic_visit(node)
        return ast.copy_location(ast.Pass(), node) if _grows(node) else node


_TOO_SHORT = (Template("max_pos > self.weights.size(0)"), Template("max_pos > self.weight.size(0)"))
_REMADE = (
    Template("self.make_weights(...)"),
    Template("self.make_weight(...)"),
    Template("self.weights = self.get_embedding(...)"),
)


def _grows(node: ast.If) -> bool:
    is_alone = len(node.body) == 1 and not node.orelse
    is_too_short = any(test.within(node.test) for test in _TOO_SHORT)
    return is_alone and is_too_short and any(made.within(node.body[0]) for made in _REMADE)


PATCHES = (
    construct_patch(
        name="tables of positions that grow",
        marker=r"max_pos > self\.weights?\.size\(0\)",
        mentions=("max_pos > self.weight",),
        replace=rewrite(FormulaBeyond, entries_at=entries_at),
        reason="whether the table grows is decided for the traced size, and the program has a table of one length",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
    ),
)
