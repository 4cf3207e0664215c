"""Attention that is causal under a test of sizes, as `is_causal=length > 1`: torch takes no symbolic test there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Verdict, not_needed

_Attention = Callable[..., torch.Tensor]

# Without annotations in torch 2.11 to 2.13.
_sym_ite: Any = torch.sym_ite


def under_a_test(original: _Attention) -> _Attention:
    """A mask that is causal where the test holds, and lets every token see all others where it does not."""

    @functools.wraps(original)
    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: object = False,
        **options: Any,
    ) -> torch.Tensor:
        # With a mask of its own as well torch refuses what is causal, so the test has to be decided.
        if isinstance(is_causal, torch.SymBool) and attn_mask is None:
            seen = _seen(query, key, is_causal)
            return original(query, key, value, seen, dropout_p, **options)
        return original(query, key, value, attn_mask, dropout_p, bool(is_causal), **options)

    return attention


def _seen(query: torch.Tensor, key: torch.Tensor, is_causal: torch.SymBool) -> torch.Tensor:
    """(queries, keys), as torch's documentation has the causal mask: the first key belongs to the first query."""
    queries, keys = query.shape[-2], key.shape[-2]
    # Both choices are numbers of one kind, as `sym_ite` asks: symbolic, or both plain.
    further: Any = _sym_ite(is_causal, keys, 2 * keys) - keys
    last = torch.arange(queries, device=query.device) + further
    seen: torch.Tensor = torch.arange(keys, device=query.device) <= last.unsqueeze(-1)
    return seen


def _probe() -> Verdict:
    # The schema as text: its types show a SymBool as a bool (torch 2.11 to 2.13).
    if "SymBool is_causal" in str(torch.ops.aten.scaled_dot_product_attention.default._schema):
        return not_needed("the operator takes a symbolic test")
    return NEEDED


PATCHES = (
    Patch(
        name="causal attention under a test of sizes",
        kind="torch",
        target="torch.nn.functional.scaled_dot_product_attention",
        reason="whether attention is causal is a plain bool, and a test of a symbolic length is none",
        upstream="https://github.com/pytorch/pytorch/issues/154038",
        probe=_probe,
        replace=under_a_test,
    ),
)
