"""The kinds of layers of a model: what its small form has to have in common with the form that it is made from.

A kind is a class of modules with what tells its instances apart: switches (`is_sparse`, `use_bias`), words
(`layer_type`), and whether something optional is there (a sliding window, a shared expert).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..errors import REFUSALS
from ..optional import OptionalModule
from .shrink import shrunk

if TYPE_CHECKING:
    import transformers
else:
    transformers = OptionalModule("transformers")

#: What every module has.
_NO_TRAITS = ("training", "gradient_checkpointing", "name_or_path")
#: Depths that a small model may have; few kinds of layers come later.
_DEPTHS = (2, 3, 4)
_THERE = "something"


@dataclass(frozen=True, order=True)
class Kind:
    """A class of modules; with `trait`, those of its instances for which that holds."""

    owner: str
    trait: str = ""

    def __str__(self) -> str:
        return f"{self.owner} with {self.trait}" if self.trait else self.owner


def kinds_of(model: torch.nn.Module) -> set[Kind]:
    """Every kind of module that the model has.

    >>> sorted(map(str, kinds_of(torch.nn.ReLU())))
    ['ReLU', 'ReLU with inplace=False']
    """
    return {kind for module in model.modules() for kind in _kinds_of_one(module)}


def kinds_of_config(config: transformers.PretrainedConfig) -> set[Kind]:
    """The kinds of the model without a head, which is built without memory."""
    with torch.device("meta"):
        model: torch.nn.Module = transformers.AutoModel.from_config(config)
    return kinds_of(model)


def missing_kinds(full: set[Kind], small: set[Kind]) -> list[Kind]:
    """What is in the first and not in the second; a class that is missing stands for all of its traits."""
    missing = full - small
    classes = {kind.owner for kind in missing if not kind.trait}
    return sorted(kind for kind in missing if not kind.trait or kind.owner not in classes)


def shrunk_with_every_kind(
    config: transformers.PretrainedConfig, changes: Mapping[str, Any]
) -> transformers.PretrainedConfig:
    """The least deep of the small configurations that has every kind of layer of `config`, or most of them."""
    found = [_Candidate(shrunk(config, changes))]
    try:
        wanted = kinds_of_config(config)
        for layers in _DEPTHS:
            smaller = shrunk(config, changes, layers=layers)
            found.append(_Candidate(smaller, len(missing_kinds(wanted, kinds_of_config(smaller)))))
            if not found[-1].missing:
                break
    except (*REFUSALS, ImportError):  # what cannot be built is told where the model is
        pass
    return min(found[1:] or found, key=lambda candidate: candidate.missing).config


@dataclass(frozen=True)
class _Candidate:
    config: transformers.PretrainedConfig
    missing: int = 0


def _kinds_of_one(module: torch.nn.Module) -> Iterator[Kind]:
    owner = type(module).__name__
    yield Kind(owner)
    for name, value in _traits(module):
        if not name.startswith("_") and name not in _NO_TRAITS and not re.search(r"\d", f"{name} {value}"):
            yield Kind(owner, f"{name}={value}")


def _traits(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Names with what they stand for; a name with a number in it, or a word with one, counts instances."""
    own = {**vars(module), **module._parameters, **module._modules}
    for name, value in own.items():
        if value is None or isinstance(value, (bool, str)):
            yield name, value
        elif isinstance(value, (int, float, torch.Tensor, torch.nn.Module)):
            yield name, _THERE
