"""What is asked in training alone: behind `self.training`, wherever else the code comes from."""

from __future__ import annotations

import types

import pytest
import torch
import transformers

from exportguard.axes.asked_gradients import asked_by, asked_in

BEHIND = (
    "return self.training and torch.is_grad_enabled()",
    "return a and self.training and b and torch.is_grad_enabled()",
    "return a or self.training and torch.is_grad_enabled()",
    "return torch.is_grad_enabled() if self.training else a",
    "if self.training:\n  if torch.is_grad_enabled():\n   return b\n return a",
    "if a and self.training:\n  a.requires_grad = True\n return a",
    "while self.training:\n  a = torch.is_grad_enabled()\n return a",
    "if self.training:\n  for b in a:\n   a = b.requires_grad\n return a",
    "if self.training:\n  try:\n   a = b.requires_grad\n  except ValueError:\n   a = b.is_leaf\n return a",
    "return getattr(self, 'kept', False) and self.training and torch.is_grad_enabled() and b",
    "for b in a:\n  if self.training and b.requires_grad:\n   return b\n return a",
)
BESIDE = (
    "return torch.is_grad_enabled()",
    "return torch.is_grad_enabled() and self.training",
    "return self.training or torch.is_grad_enabled()",
    "return not self.training and torch.is_grad_enabled()",
    "return (a or self.training) and torch.is_grad_enabled()",
    "return a.training and torch.is_grad_enabled()",
    "return self.other.training and torch.is_grad_enabled()",
    "return self.training_too and torch.is_grad_enabled()",
    "return a if self.training else torch.is_grad_enabled()",
    "if self.training:\n  a = b\n else:\n  a = b.requires_grad\n return a",
    "if self.training:\n  a = b\n return torch.is_grad_enabled()",
    "self = a\n return self.training and torch.is_grad_enabled()",
    "try:\n  if self.training:\n   a = b()\n except ValueError:\n  a = b.is_leaf\n return a",
    "if self.training == a:\n  return torch.is_grad_enabled()\n return b",
    "return (lambda: torch.is_grad_enabled())",
    "return (lambda a: self.training and torch.is_grad_enabled())",  # a lambda that has no module of its own
    "for b in a:\n  if self.training:\n   a = b\n  b.requires_grad = True\n return a",
)


def code_of(body: str) -> types.CodeType:
    made: dict[str, object] = {"torch": torch}
    exec(f"def forward(self, a, b):\n {body}\n", made)
    function = made["forward"]
    assert isinstance(function, types.FunctionType)
    return function.__code__


@pytest.mark.parametrize("body", BEHIND)
def test_what_is_behind_it_is_asked_in_training_alone(body: str) -> None:
    assert asked_in(code_of(body), trains=True)
    assert not asked_in(code_of(body), trains=False)


@pytest.mark.parametrize("body", BESIDE)
def test_what_is_beside_it_is_asked_always(body: str) -> None:
    assert asked_in(code_of(body), trains=False) == asked_in(code_of(body), trains=True) != frozenset()


def test_layers_of_transformers_ask_in_training_alone() -> None:
    config = transformers.BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8)
    model = transformers.BertModel(config).eval()
    assert asked_by(model) == []
    model.encoder.layer[0].train()
    assert asked_by(model) == ["is_grad_enabled"]


class Own(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.training and torch.is_grad_enabled() else x


def test_a_model_of_ones_own_is_asked_in_any_mode() -> None:
    """It may hold a layer that it does not tell of, whose mode nobody sees."""
    assert asked_by(Own().eval()) == ["is_grad_enabled"]
