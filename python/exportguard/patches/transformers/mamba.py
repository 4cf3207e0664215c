"""Selective scans of the mamba family: the loop over the tokens becomes one scan, for any number of them.

The models take another path for a single token: it goes on from the state in the cache, while several tokens begin with
a state of zeros. The scan does the same: its first state is that of the cache if there is one token, else zero.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

import torch

from exportguard.declaration.patch import Patch
from exportguard.source.editing import placed, rewrite
from exportguard.source.reading import copied
from exportguard.source.templates import Exchange, Match, Template

_LOOP = """
for index in range($length):
    $state = $factors[:, :, index] * $state + $terms[:, :, index]
    output = torch.matmul($state.to($dtype), $readout[:, index, :].unsqueeze(-1))
    scan_outputs.append(output[:, :, 0])
"""
_SCAN = "$state, scan_outputs = selective_scan($factors, $terms, kwargs.get('state', $state), $readout.to($dtype))"
_SCANNED = Template("mamba_selective_scan")
# The decorator of the callee drops arguments that a kernel does not take.
_UNWRAPPED = Template("unwrap($function)")
_STATE = Template("state_for(recurrent_state, seq_len)")
# In transformers 5.17 the name is bound only where there is a cached state.
_NO_STATE = ast.parse("recurrent_state = None").body[0]
_STATE_OF_HEAD = Template("state_for(of_head(recurrent_state, $head), seq_len)")


def _step(state: torch.Tensor, factor_and_term: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    factor, term = factor_and_term
    state = factor * state + term
    return state, state.clone()


def state_for(cached: torch.Tensor | None, length: object) -> dict[str, torch.Tensor]:
    """The argument of the scan: the cached state if the length turns out to be 1 when the program runs, else zeros."""
    if cached is None or isinstance(length, int):
        return {}
    size: Any = length
    is_single = torch.full((), size, dtype=torch.int64, device=cached.device) == 1
    return {"state": torch.where(is_single, cached, torch.zeros_like(cached))}


def of_head(cached: torch.Tensor | None, head: int) -> torch.Tensor | None:
    """The cached state of one head, where there is one: (batch, heads, width, states) as (batch, width, states)."""
    return None if cached is None else cached[:, head]


def selective_scan(
    factors: torch.Tensor, terms: torch.Tensor, state: torch.Tensor, readout: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The last state and every output of `state = factor * state + term`, `output = state @ readout`.

    Factors and terms have shape (batch, width, length, states), the readout (batch, length, states), the outputs
    (batch, width, length).
    """
    from torch._higher_order_ops.scan import scan

    tokens_first = (factors.movedim(2, 0), terms.movedim(2, 0))
    initial = state.to(terms.dtype)
    last, states = scan(_step, initial, tokens_first)
    outputs = torch.matmul(states.to(readout.dtype).transpose(0, 1), readout.unsqueeze(-1))
    return last, outputs.squeeze(-1).transpose(1, 2)


class SelectiveScan(Exchange):
    """The loop over the tokens becomes `selective_scan`, and its caller passes the state to begin with."""

    pairs = (
        (Template(_LOOP), Template(_SCAN)),
        (Template("torch.stack(scan_outputs, dim=-1)"), Template("scan_outputs")),
    )

    _head: ast.expr | None = None  # the variable that counts the heads, within a loop over them
    _passes_state = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if self._passes_state:
            node.body.insert(0, placed(copied(_NO_STATE), node.body[0]))
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        outer, self._head = self._head, node.target if isinstance(node.target, ast.Name) else None
        self.generic_visit(node)
        self._head = outer
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _SCANNED.match(node.func):
            state = _STATE if self._head is None else _STATE_OF_HEAD
            found = Match({"function": node.func, **({} if self._head is None else {"head": self._head})})
            node.func = _UNWRAPPED.filled(found, node.func)[0]
            node.keywords.append(ast.keyword(None, state.filled(found, node)[0]))
            self._passes_state = True
        return node


def _patch(family: str, mixer: str) -> Patch:
    module = f"transformers.models.{family}.modeling_{family}"
    names: dict[str, Any] = {
        "selective_scan": selective_scan,
        "state_for": state_for,
        "of_head": of_head,
        "unwrap": inspect.unwrap,
    }
    return Patch(
        name=f"selective scan of {family}",
        kind="transformers",
        target=(f"{module}.mamba_selective_scan", f"{module}.{mixer}.forward"),
        reason="the loop over the tokens is unrolled, which fixes their number",
        upstream="https://github.com/pytorch/pytorch/issues/146835",
        versions="transformers>=5.16",
        replace=rewrite(SelectiveScan, **names),
    )


_MIXERS = {
    "falcon_mamba": "FalconMambaMixer",
    "jamba": "JambaMambaMixer",
    "mamba": "MambaMixer",
    "zamba": "ZambaMambaMixer",
}

PATCHES = tuple(_patch(family, mixer) for family, mixer in _MIXERS.items())
