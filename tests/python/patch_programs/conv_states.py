"""States of convolutions that a first text leaves, however short it is."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim
from transformers import cache_utils

from exportguard import torch_export_patches


class FirstText(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layer = cache_utils.LinearAttentionLayer()
        seen = layer.update_conv_state(x, conv_kernel_size=4)
        return seen.cumsum(-1)[..., -1], layer.conv_states[0].clone()


def keeps_the_state_of_a_short_text() -> None:
    if not hasattr(cache_utils, "LinearAttentionLayer"):
        pytest.skip("transformers 4 has a cache of its own in each of these models")
    with torch_export_patches(), torch.no_grad():
        program = torch.export.export(FirstText(), (torch.randn(2, 3, 6),), dynamic_shapes=({2: Dim.DYNAMIC},))
    run = program.module(check_guards=False)
    for length in (6, 9, 4, 3, 1):
        x = torch.randn(2, 3, length)
        torch.testing.assert_close(run(x), FirstText()(x))


PROGRAMS = {"states of short texts": keeps_the_state_of_a_short_text}
