"""The modules, weights and buffers of random trees of modules are those that torch lists, in its order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from exportguard.module_tree import named_buffers, named_modules, named_parameters


class Listed(torch.nn.Module):
    """Tells of none of its parts."""

    def named_modules(self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[Any]:
        yield prefix, self


def tree(chosen: random.Random, known: list[torch.nn.Module], depth: int) -> torch.nn.Module:
    """A module with weights, buffers and parts, some of them shared with others or missing."""
    module = chosen.choice((torch.nn.Module, torch.nn.Module, torch.nn.Module, Listed))()
    for at in range(chosen.randrange(3)):
        shared = [one._parameters["w0"] for one in known if one._parameters.get("w0") is not None]
        weight = chosen.choice(shared) if shared and chosen.random() < 0.3 else torch.nn.Parameter(torch.zeros(1))
        module.register_parameter(f"w{at}", None if chosen.random() < 0.2 else weight)
        module.register_buffer(f"b{at}", None if chosen.random() < 0.2 else torch.zeros(1))
    for at in range(chosen.randrange(4) if depth else 0):
        part = chosen.choice(known) if known and chosen.random() < 0.2 else tree(chosen, known, depth - 1)
        module.add_module(str(at), None if chosen.random() < 0.1 else part)
    known.append(module)
    return module


@pytest.mark.parametrize("seed", range(30))
def test_lists_what_torch_lists(seed: int) -> None:
    module = tree(random.Random(seed), [], depth=4)
    for own, of_torch in (
        (named_modules(module), module.named_modules()),
        (named_parameters(module), module.named_parameters()),
        (named_buffers(module), module.named_buffers()),
    ):
        assert [(name, id(held)) for name, held in own] == [(name, id(held)) for name, held in of_torch]
