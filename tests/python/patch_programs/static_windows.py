"""Static sliding windows: a program of one length is right before, at and beyond the window's."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import Dim
from transformers import cache_utils

from exportguard import make_static_cache, torch_export_patches

WIDTH = 5
LENGTHS = [(3, 2), (1, 1), (2, 3), (3, 3), (4, 1), (5, 1), (5, 4), (9, 1), (12, 7)]
TAKES_NUMBER = "query_length" in inspect.signature(cache_utils.StaticLayer.get_mask_sizes).parameters


class Update(torch.nn.Module):
    def forward(self, key: torch.Tensor, cache: Any) -> Any:
        positions = torch.arange(key.shape[2]) + cache.get_seq_length()
        arguments = () if TAKES_NUMBER else ({"cache_position": positions},)  # transformers 4 writes to these
        return cache.update(key, key * 2, 0, *arguments), cache


class MaskSizes(torch.nn.Module):
    def forward(self, key: torch.Tensor, cache: Any) -> Any:
        new = key.shape[2]
        length, offset = cache.get_mask_sizes(new if TAKES_NUMBER else torch.arange(new), 0)
        return torch.arange(length) + offset


def inputs(length: int, new: int) -> tuple[torch.Tensor, Any]:
    pair = torch.randn(2, 2, length, 4), torch.randn(2, 2, length, 4)
    return torch.randn(2, 2, new, 4), make_static_cache([pair], max_cache_len=16, window=WIDTH)


def is_right_on_every_length(model: torch.nn.Module) -> None:
    with torch_export_patches():
        leaves = pytree.tree_leaves(inputs(3, 2)[1])
        shapes = [None if isinstance(leaf, torch.Tensor) else Dim.DYNAMIC for leaf in leaves]
        program = torch.export.export(model, inputs(3, 2), dynamic_shapes=({2: Dim.DYNAMIC}, shapes), strict=False)
        for length, new in LENGTHS:
            values = inputs(length, new)
            expected = pytree.tree_leaves(model(*copy.deepcopy(values)))
            got = pytree.tree_leaves(program.module()(*values))
            for one, other in zip(got, expected, strict=True):
                torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other))


PROGRAMS = {
    "static window update": lambda: is_right_on_every_length(Update()),
    "static window mask sizes": lambda: is_right_on_every_length(MaskSizes()),
}
