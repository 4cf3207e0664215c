"""Lists that a program has as one tensor, the parts behind each other: which of its outputs are such.

A model returns a tensor for each picture, and data tells how many there are; a program has one number of outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

logger = logging.getLogger(__name__)


@dataclass
class JoinedParts:
    """The places of those outputs among all, and the tensors that stand for all parts while a model is traced."""

    outputs: set[int] = field(default_factory=set)
    wholes: list[torch.Tensor] = field(default_factory=list)


_FOUND: ContextVar[JoinedParts | None] = ContextVar("exportguard.joined_parts", default=None)


@contextmanager
def joined_parts() -> Iterator[JoinedParts]:
    """What is found of one program while the block traces it and compares it with its model."""
    token = _FOUND.set(found := JoinedParts())
    try:
        yield found
    finally:
        _FOUND.reset(token)


def note_whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, which stands for all parts of a list from now on."""
    # dynamo (torch 2.11 to 2.13) follows no context variable.
    found = None if torch.compiler.is_dynamo_compiling() else _FOUND.get()
    if found is not None:
        found.wholes.append(tensor)
    return tensor


def is_whole(tensor: object) -> bool:
    """Whether a tensor stands for all parts of a list."""
    found = None if torch.compiler.is_dynamo_compiling() else _FOUND.get()
    return found is not None and any(tensor is whole for whole in found.wholes)


def note_joined(places: Iterable[int]) -> None:
    """Outputs with these places were found to be what the model returns in parts."""
    found = _FOUND.get()
    if found is not None:
        found.outputs.update(places)


@contextmanager
def watched_for_wholes(model: torch.nn.Module) -> Iterator[None]:
    """While the block traces the model, the lists that it returns are looked at."""

    def look(_: torch.nn.Module, args: object, outputs: object) -> None:
        leaves, spec = pytree.tree_flatten(outputs)
        alone = zip(leaves, are_alone(spec), strict=True)
        note_joined([place for place, (leaf, is_alone) in enumerate(alone) if is_alone and is_whole(leaf)])

    handle = model.register_forward_hook(look)
    try:
        yield
    finally:
        handle.remove()
        if (found := _FOUND.get()) is not None:
            found.wholes.clear()


def are_alone(spec: pytree.TreeSpec) -> list[bool]:
    """For each leaf whether it is the only one of a list or tuple.

    >>> are_alone(pytree.tree_flatten({"a": [1], "b": [2, 3], "c": 4})[1])
    [True, False, False, False]
    """
    return [False] if spec.is_leaf() else [*_are_alone(spec)]


def _are_alone(spec: pytree.TreeSpec) -> Iterator[bool]:
    for child in spec.children():
        if child.is_leaf():
            yield spec.num_children == 1 and spec.type in (list, tuple)
        else:
            yield from _are_alone(child)


def tell_joined(names: Sequence[str]) -> None:
    """Warns of outputs that have the parts of a list behind each other."""
    for name in names:
        logger.warning(
            "the output %s has all parts of a list behind each other, for which forward returns a tensor each, as one "
            "for each picture: data tells how many there are, and a file has one number of outputs",
            name,
        )
