"""Tensors that a model takes and its file does not: what the file computes without them is what their defaults mean."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from exportguard.models.natural_inputs.handed_over import is_of_no_use

#: Ends of names, and names: what training has, what stands for other inputs or follows from them, and what a caller
#: changes of the model itself.
_NOT_OF_A_FILE = (
    *("labels", "label", "start_positions", "end_positions", "loss_mask"),
    *("_embeds", "encoder_outputs", "past_key_values", "cache_params", "mems", "state", "image_features"),
    *(
        "decoder_input_ids",
        "encoder_hidden_states",
        "encoder_attention_mask",
        "decoder_attention_mask",
        "perm_mask",
        "target_mapping",
    ),
    *("position_ids", "cache_position", "positions", "rope_deltas", "sequence_ids", "head_mask"),
)


def left_out(model: Any, inputs: Mapping[str, Any]) -> list[str]:
    """The arguments of `forward` that are tensors, may be left out, are none of a file's `inputs`, and may change what
    it computes.

    >>> import torch
    >>> class Reads(torch.nn.Module):
    ...     def forward(self, input_ids: torch.Tensor, bbox: torch.Tensor | None = None, labels: "torch.Tensor" = None):
    ...         return input_ids
    >>> left_out(Reads(), {"input_ids": torch.zeros(1, 2)})
    ['bbox']
    """
    parameters = inspect.signature(model.forward).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is None
        and "Tensor" in str(parameter.annotation)
        and parameter.name not in inputs
        and not parameter.name.endswith(_NOT_OF_A_FILE)
        and not is_of_no_use(model, inputs, parameter.name)
    ]
