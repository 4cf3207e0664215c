"""Rotary embeddings whose frequencies follow the length of the text (`rope_type="dynamic"`): a formula of the length.

The models keep the frequencies of the longest text so far, and test the data of the positions to find a longer one. A
program has no texts so far: its frequencies are those that a model has for its first text.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from exportguard.declaration.constructs import SearchPatch
from exportguard.declaration.modules import classes_of
from exportguard.source.errors import RewriteError
from exportguard.source.wrapping import innermost

_UPDATE = "dynamic_frequency_update"


def _updating(function: object) -> types.FunctionType | None:
    """The decorator's function that updates the frequencies, in a closure of which the update itself is."""
    current = function
    while current is not None:
        if isinstance(current, types.FunctionType) and _UPDATE in current.__code__.co_freevars:
            return current
        current = getattr(current, "__wrapped__", None)
    return None


def _of_any_length(forward: Any) -> Any:
    outer, inner = _updating(forward), innermost(forward)
    if outer is None or "ROPE_INIT_FUNCTIONS" not in outer.__globals__:
        raise RewriteError(f"{forward.__qualname__} does not update its frequencies in a way that is known")
    formulas = outer.__globals__["ROPE_INIT_FUNCTIONS"]

    @functools.wraps(forward)
    def rotations(self: Any, x: torch.Tensor, position_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        layer_type = kwargs.get("layer_type", args[0] if args else None)
        kind = self.rope_type if layer_type is None else self.rope_type[layer_type]
        if "dynamic" not in kind or not torch.compiler.is_exporting():
            return forward(self, x, position_ids, *args, **kwargs)
        options = {} if layer_type is None else {"layer_type": layer_type}
        made, _ = formulas[kind](self.config, x.device, seq_len=torch.max(position_ids) + 1, **options)
        with torch.no_grad(), _frequencies(self, "inv_freq" if layer_type is None else f"{layer_type}_inv_freq", made):
            return inner(self, x, position_ids, *args, **kwargs)

    return rotations


@contextlib.contextmanager
def _frequencies(module: torch.nn.Module, name: str, made: torch.Tensor) -> Iterator[None]:
    """Runs a block in which the module's buffer of that name is another tensor."""
    before = module._buffers[name]
    module._buffers[name] = made
    try:
        yield
    finally:
        module._buffers[name] = before


def _find(module: types.ModuleType) -> Iterator[tuple[Any, str]]:
    owners = (owner for owner in classes_of(module) if _updating(vars(owner).get("forward")) is not None)
    return ((owner, "forward") for owner in owners)


PATCHES = (
    SearchPatch(
        name="frequencies that follow the length",
        kind="transformers",
        find=_find,
        mentions=("@dynamic_rope_update",),
        replace=_of_any_length,
        reason="whether the text is longer than those before is a test of data that stores what it finds in the module",
        upstream="https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_rope_utils.py",
    ),
)
