"""Of several places that ask the same of a size the one that is told is that of the user's own code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from exportguard import AxisError, to_onnx

SMALL = BertConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=1,
    num_attention_heads=4,
    vocab_size=96,
    max_position_embeddings=64,
)


class Behind(torch.nn.Module):
    """Something of the user's own behind a model of transformers, whose operators ask whether sizes are 1."""

    def __init__(self, own: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.model, self.own = BertModel(SMALL), own

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.own(input_ids, self.model(input_ids).last_hidden_state)


def of_one(input_ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    if input_ids.shape[0] == 1:
        return states * 2
    return states


def of_one_behind_an_operator(input_ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    states = states.transpose(0, 1).contiguous().transpose(0, 1)
    return states * 2 if states.shape[0] == 1 else states


def of_few_tokens(input_ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    if input_ids.shape[0] * input_ids.shape[1] < 3:
        return states * 2
    return states


TESTED = {
    "one": (of_one, {0: r"batch >= 2"}, "if input_ids.shape[0] == 1:"),
    "one, behind an operator": (of_one_behind_an_operator, {0: r"batch >= 2"}, "states * 2 if states.shape[0] == 1"),
    "few tokens": (of_few_tokens, {0: "", 1: ""}, "if input_ids.shape[0] * input_ids.shape[1] < 3"),
}


@pytest.mark.parametrize(("own", "conditions", "line"), TESTED.values(), ids=TESTED)
def test_the_line_of_the_users_own_code_is_told(
    own: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], conditions: dict[int, str], line: str
) -> None:
    example = torch.randint(3, 90, (2, 6))
    with pytest.raises(AxisError) as caught:
        to_onnx(Behind(own).eval(), (example,), dynamic_shapes={"input_ids": {0: "batch", 1: "seq"}})
    told = [entry for entry in str(caught.value).splitlines() if entry.startswith("  input_ids axis")]
    assert [int(entry.split()[2]) for entry in told] == [*conditions]
    for entry, condition in zip(told, conditions.values(), strict=True):
        assert condition in entry
        assert Path(__file__).name in entry
        assert line in entry
        assert "site-packages" not in entry
