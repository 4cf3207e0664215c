"""`flex_attention` in operators that take any sizes: scores, what the model makes of them, a mask, softmax, product.

torch compiles it to a kernel for the sizes of the example, over blocks of 128 tokens, and keeps it as one operator with
functions as operands. What it computes are the functions alone, over all places at once.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from exportguard.declaration.patch import NEEDED, Patch, Replacement, Verdict, not_needed, replaced, target_missing

if TYPE_CHECKING:
    from exportguard._core import Changes

_MODULE = "torch.nn.attention.flex_attention"
_Modification = Callable[..., torch.Tensor]


def _module() -> Any:
    # Not at the top: few models have it.
    return importlib.import_module(_MODULE)


def _modified(scores: torch.Tensor, score_mod: _Modification, mask_mod: _Modification) -> torch.Tensor:
    """The scores [batch, heads, queries, keys] as the model wants them, minus infinity where they are masked."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    places = [torch.arange(size, device=scores.device) for size in scores.shape]
    # The functions are for one score and may take an element of a tensor at a place, which is a number for vmap.
    with TransformGetItemToIndex():
        scored = _vmap_for_bhqkv(score_mod, prefix=(0,))(scores, *places)
        is_visible = _vmap_for_bhqkv(mask_mod, prefix=())(*places)
    return torch.where(is_visible, scored, torch.full((), -torch.inf, dtype=scored.dtype, device=scores.device))


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: _Modification,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    *buffers: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The output, and the log of the sum and the largest of the scores, to base 2: [batch, heads, queries, ...]."""
    groups = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(groups, dim=1) if groups != 1 else x for x in (key, value))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = _modified((query.to(wide) @ keys.to(wide).mT) * scale, score_mod, block_mask[-1])

    # A query that sees nothing gives zeros.
    is_blind = (scores == -torch.inf).all(-1)
    weights = torch.where(is_blind.unsqueeze(-1), 0.0, scores.softmax(-1))
    total = torch.where(is_blind, -torch.inf, scores.logsumexp(-1))
    output = weights.to(query.dtype) @ values
    return output, total / math.log(2), scores.amax(-1) / math.log(2)


def _without_blocks(
    block_mask: tuple[torch.Tensor, torch.Tensor | None],
    mask_mod: _Modification | None,
    seq_lengths: tuple[int, int],
    rows: int = 128,
    columns: int = 128,
) -> Any:
    """A mask that has its function and the lengths, and no list of blocks that are worth a visit."""
    from torch.nn.attention.flex_attention import BlockMask, noop_mask

    batch, heads = block_mask[0].shape[:2]
    counts = torch.zeros((batch, heads, 1), dtype=torch.int32, device=block_mask[0].device)
    places = counts.unsqueeze(-1)
    visited = (None, None, None, None, None, None)
    return BlockMask(seq_lengths, counts, places, *visited, (rows, columns), mask_mod or noop_mask)


def _first_block(mask_tensor: torch.Tensor, *sizes: Any, **options: Any) -> tuple[torch.Tensor, None]:
    return mask_tensor[:, :, :1, :1], None


def _without_compiler() -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()  # where torch compiles, nothing is traced


_FUNCTIONS: tuple[tuple[str, Any], ...] = (
    ("setup_compilation_env", _without_compiler),
    ("_convert_mask_to_block_mask", _first_block),
    ("_create_sparse_block_from_block_mask", _without_blocks),
)


def _apply(changes: Changes) -> list[Replacement]:
    # torch 2.11 to 2.13: the flag, which is there for debugging, leaves the compiler out.
    module = _module()
    changes.set_attribute(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    changes.set_attribute(module, "flex_attention_hop", attention)
    return [replaced(changes, f"{_MODULE}.{name}", _always(new)) for name, new in _FUNCTIONS]


def _always(new: Any) -> Callable[[Any], Any]:
    return lambda _: new


_NAMES = (
    "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG",
    "flex_attention_hop",
    "setup_compilation_env",
    "_convert_mask_to_block_mask",
    "_create_sparse_block_from_block_mask",
)


def _probe() -> Verdict:
    module = _module()
    missing = [name for name in _NAMES if not hasattr(module, name)]
    if missing:
        return target_missing(f"{_MODULE} has no {missing[0]}")
    is_composite = not isinstance(module.flex_attention_hop, torch._ops.HigherOrderOperator)
    return not_needed("it is made of other operators") if is_composite else NEEDED


PATCHES = (
    Patch(
        name="flexible attention",
        kind="torch",
        target=tuple(f"{_MODULE}.{name}" for name in _NAMES),
        reason="the operator holds functions and blocks of the example's sizes",
        upstream="https://github.com/pytorch/pytorch/issues/138421",
        probe=_probe,
        apply=_apply,
        awaits=_MODULE,
    ),
)
