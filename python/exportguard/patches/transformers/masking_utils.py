"""Attention masks of `transformers.masking_utils`: index functions are broadcast instead of mapped by `torch.vmap`."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from exportguard.declaration.constructs import SearchPatch
from exportguard.declaration.expected import Expected, expecting
from exportguard.declaration.patch import NEEDED, Patch, Verdict
from exportguard.declaration.targets import TargetMissingError, resolve

_UPSTREAM = "https://github.com/huggingface/transformers/pull/41852"
_max: Any = torch.sym_max
_AXES = 4  # batch, head, query, key


def _along(axis: int, indices: torch.Tensor) -> torch.Tensor:
    return indices.reshape([-1 if place == axis else 1 for place in range(_AXES)])


def _mapped(mapped: Callable[..., torch.Tensor], indices: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """What transformers does: within torch.vmap an index is a tensor, which only this mode allows."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    with TransformGetItemToIndex():
        return mapped(*indices)


def broadcast_expansion(original: Callable[..., Any]) -> Callable[..., Any]:
    """The mask function on indices that broadcast against each other; mapped as before if that gives no mask."""

    @functools.wraps(original)
    def expansion(mask_function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> Callable[..., torch.Tensor]:
        def expanded(*indices: torch.Tensor) -> torch.Tensor:
            if args or kwargs or len(indices) != _AXES:
                return _mapped(original(mask_function, *args, **kwargs), indices)
            mask = mask_function(*(_along(axis, index) for axis, index in enumerate(indices)))
            if mask.dim() > _AXES:  # it took something whole by an index, which is no function of single elements
                return _mapped(original(mask_function), indices)
            return mask.expand([index.shape[0] for index in indices])

        return expanded

    return expansion


def pad_by_what_is_missing(original: Callable[..., Any]) -> Callable[..., Any]:
    """The mask with a column for each key: padded by nothing where it has them, whatever the traced sizes are.

    The test in the original is decided while the model is traced, and the program pads, or does not, at every size.
    """
    # Not at the top: symbolic shapes take long to import, and whoever exports has them by now.
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    @functools.wraps(original)
    def prepare_padding_mask(attention_mask: Any, kv_length: Any, kv_offset: Any, *args: Any, **kwargs: Any) -> Any:
        if attention_mask is not None and not args and not kwargs:
            missing: Any = kv_length + kv_offset - attention_mask.shape[-1]
            is_known = statically_known_true(missing <= 0) or statically_known_true(missing > 0)
            if isinstance(missing, torch.SymInt) and not is_known:
                return torch.nn.functional.pad(attention_mask, (0, _max(missing, 0)))
        return original(attention_mask, kv_length, kv_offset, *args, **kwargs)

    return prepare_padding_mask


def no_mask_without_padding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Whether all tokens see all others: where no mask is given and no window, as in eager mode.

    transformers makes a mask of one length there while it is exported, and layers behind it may shorten the text.
    """

    @functools.wraps(original)
    def ignore(padding_mask: object, kv_length: Any, local_attention_size: object = None) -> Any:
        if torch.compiler.is_exporting() and padding_mask is None and local_attention_size is None:
            return True
        return original(padding_mask, kv_length, local_attention_size)

    return ignore


def mask_all_but_single_tokens(original: Callable[..., Any]) -> Callable[..., Any]:
    """The mask of a recurrence for any number of tokens: ones for a single one, which has no mask in the original."""

    @functools.wraps(original)
    def create_recurrent_attention_mask(
        config: object, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, *args: Any, **kwargs: Any
    ) -> Any:
        count: Any = inputs_embeds.shape[1]
        if attention_mask is None or attention_mask.dim() != 2 or isinstance(count, int):
            return original(config, inputs_embeds, attention_mask, *args, **kwargs)
        first: Any = attention_mask.shape[1] - count
        own = attention_mask[:, first:]
        is_single = torch.full((), count, dtype=torch.int64, device=own.device) == 1
        return torch.where(is_single, torch.ones_like(own), own)

    return create_recurrent_attention_mask


def _holders_of_recurrent_masks(module: types.ModuleType) -> Iterator[tuple[Any, str]]:
    """The models import the function by its name, and each has its own."""
    return ((module, name) for name in (_RECURRENT,) if name in vars(module))


_MODULE = "transformers.masking_utils"
_RECURRENT = "create_recurrent_attention_mask"
_IGNORED = f"{_MODULE}._ignore_bidirectional_mask_sdpa"
_EXPANSION = f"{_MODULE}._vmap_expansion_sdpa"
_EXPANSION_4 = f"{_MODULE}._vmap_for_bhqkv"


def _is_broadcast() -> Verdict:
    """torch.vmap needs the mode: it is left out only where no function is mapped any more."""
    try:
        resolve(_EXPANSION)
    except TargetMissingError:
        resolve(_EXPANSION_4)
    return NEEDED


PATCHES = (
    Patch(
        name="indices of masks",
        kind="transformers",
        target=f"{_MODULE}.TransformGetItemToIndex",
        reason="outside torch.vmap the mode leaves an operator in the program that only torch's compiler knows",
        upstream=_UPSTREAM,
        versions="transformers>=4.57",
        probe=_is_broadcast,
        replace=lambda original: contextlib.nullcontext,
    ),
    Patch(
        name="masks by broadcasting",
        kind="transformers",
        target=_EXPANSION,
        reason="torch.vmap leaves operators of functorch in the exported program",
        upstream=_UPSTREAM,
        versions="transformers>=5.0",
        replace=broadcast_expansion,
    ),
    Patch(
        name="padding of masks",
        kind="transformers",
        target=f"{_MODULE}.prepare_padding_mask",
        reason="whether the mask is padded is decided for the traced sizes, and the program has no others",
        upstream=_UPSTREAM,
        versions="transformers>=4.57",
        replace=pad_by_what_is_missing,
    ),
    Patch(
        name="no mask where nothing is masked",
        kind="transformers",
        target=_IGNORED,
        reason="an export has a mask where eager mode has none, and a text that layers shorten does not fit it",
        upstream="https://github.com/huggingface/transformers/blob/main/src/transformers/masking_utils.py",
        versions="transformers>=5.0",
        probe=expecting(Expected(path=_IGNORED, parameters="padding_mask, kv_length, local_attention_size")),
        replace=no_mask_without_padding,
    ),
    SearchPatch(
        name="masks of recurrences of any length",
        kind="transformers",
        find=_holders_of_recurrent_masks,
        mentions=(_RECURRENT,),
        reason="a single token has no mask, which is decided for the traced length, and the program has one always",
        upstream="https://github.com/huggingface/transformers/pull/32914",
        versions="transformers>=5.9",
        replace=mask_all_but_single_tokens,
    ),
    Patch(
        name="masks by broadcasting, transformers 4",
        kind="transformers",
        target=_EXPANSION_4,
        reason="torch.vmap leaves operators of functorch in the exported program",
        upstream=_UPSTREAM,
        versions="transformers>=4.57,<5.0",
        replace=broadcast_expansion,
    ),
)
