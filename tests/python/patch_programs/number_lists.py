"""Lists of as many numbers as there are tokens, and what models take from them."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.export import Dim
from transformers import FunnelConfig
from transformers.models.cpmant.modeling_cpmant import CpmAntConfig, CpmAntModel
from transformers.models.funnel.modeling_funnel import FunnelAttentionStructure

from .constructs import is_right_on_every_length

#: Transformers 4 computes these positions as a tensor of floats.
HAS_LISTS = "list(range(" in inspect.getsource(FunnelAttentionStructure)


class Positions(torch.nn.Module):
    """Relative positions of three blocks, each half as long as the one before."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.structure = FunnelAttentionStructure(FunnelConfig(d_model=4, **options)).eval()

    def forward(self, x: torch.Tensor) -> Any:
        embeds = self.structure.get_position_embeds(x.shape[1], x.dtype, x.device)
        return tuple(one for pair in embeds for one in pair if one is not None)


class Mask(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = CpmAntConfig(vocab_size=8, hidden_size=4, num_hidden_layers=1, prompt_length=2, prompt_types=2)
        self.model = CpmAntModel(config)

    def forward(self, tokens: torch.Tensor, length: torch.Tensor) -> Any:
        return self.model._prepare_attention_mask(tokens, tokens, tokens > 0, length)


def lists_of_numbers() -> None:
    lengths = [(2, 9), (2, 12), (2, 21)]
    for options in ({}, {"separate_cls": False}) if HAS_LISTS else ():
        inputs = lambda batch, length: [torch.randn(batch, length, 4)]  # noqa: E731
        is_right_on_every_length(Positions(**options), inputs, ({1: Dim.DYNAMIC},), lengths)
    is_right_on_every_length(
        Mask(),
        lambda batch, length: [torch.randint(0, 2, (batch, length)), torch.tensor([length - 3] * batch)],
        ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
        lengths,
    )


PROGRAMS = {"lists of numbers": lists_of_numbers}
