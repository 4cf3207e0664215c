"""Which modules of a model are worth replaying: those that have others like them, or are called again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


@dataclass(eq=False)
class Kind:
    """Modules of one class with equal parameters and buffers, whose children are of equal kinds.

    Of two modules of one kind nothing else is known to be equal, and nothing else is needed.
    """

    children: tuple[Kind, ...]
    is_container: bool
    modules: int = 0
    weight: int = 1  # modules in it, itself included
    inside: Counter[Kind] = field(default_factory=Counter)  # how often each kind occurs below it

    def __post_init__(self) -> None:
        for child in self.children:
            self.weight += child.weight
            self.inside[child] += 1
            self.inside.update(child.inside)

    def prefers_inner(self, calls: int) -> bool:
        """Whether fewer modules are traced if what repeats inside of it is replayed, and not it as a whole."""
        repeated, once = self._repeated_inside(set())
        return repeated > 0 and calls * (self.weight - repeated) + once < self.weight

    def _repeated_inside(self, met: set[Kind]) -> tuple[int, int]:
        """The weights of all largest kinds that occur more than once in it, and of one of each."""
        return _repeated(self, self.inside, met)


def _repeated(kind: Kind, inside: Counter[Kind], met: set[Kind]) -> tuple[int, int]:
    repeated = once = 0
    for child in kind.children:
        if inside[child] > 1 and child.children and not child.is_container:
            repeated += child.weight
            once += 0 if child in met else child.weight
            met.add(child)
        else:
            below, below_once = _repeated(child, inside, met)
            repeated, once = repeated + below, once + below_once
    return repeated, once


class Kinds:
    """The kinds of the modules of one model, and which of their calls are replayed."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._known: dict[object, Kind] = {}
        # By identity: a module may compare as it likes. The model keeps them alive.
        self._kinds: dict[int, Kind] = {}
        self._calls: Counter[int] = Counter()
        self._visit(model)

    def key_of_call(self, module: torch.nn.Module) -> object | None:
        """What calls to be compared with each other share; None for a call that is simply traced."""
        kind = self._kinds.get(id(module))
        if kind is None or not kind.children or kind.is_container:
            return None
        if kind.modules > 1:
            return None if kind.prefers_inner(kind.modules) else kind

        # One module that is called again and again, as the layer of ALBERT is.
        self._calls[id(module)] += 1
        return kind if self._calls[id(module)] > 1 and not kind.prefers_inner(2) else None

    def _visit(self, module: torch.nn.Module) -> Kind:
        known = self._kinds.get(id(module))
        if known is not None:
            return known
        children = tuple((name, self._visit(child)) for name, child in module._modules.items() if child is not None)
        own = tuple(
            (name, None if tensor is None else (tuple(tensor.shape), tensor.dtype))
            for tensors in (module._parameters, module._buffers)
            for name, tensor in tensors.items()
        )
        key = (type(module), own, children)
        kind = self._known.get(key)
        if kind is None:
            below = tuple(child for _, child in children)
            kind = self._known[key] = Kind(below, isinstance(module, _CONTAINERS))
        kind.modules += 1
        self._kinds[id(module)] = kind
        return kind
