"""What the original returns, taken apart into tensors by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from ..guard import torch_export_patches
from ..inputs import CallInputs, Leaf, flatten_named
from ..models import ModelCase
from ..models.input_sets import InputSet
from ..rewrites.state import KeptModule


@dataclass(frozen=True)
class EagerRun:
    """What the original returns, and what it leaves behind.

    `inputs` are the leaves of its inputs, with what it wrote into them, `state` what buffers and weights hold that it
    wrote into or could have.
    """

    leaves: list[Leaf]
    inputs: list[Any]
    state: Mapping[str, torch.Tensor]


def eager_run(case: ModelCase, input_set: InputSet) -> EagerRun:
    """A run of the original, without any patch; the serializers only take apart what it returns."""
    return run_on(case, case.inputs(input_set.sizes))


def run_on(case: ModelCase, inputs: Mapping[str, Any]) -> EagerRun:
    """The same on inputs that are there already.

    The model is then as it was: one that attends otherwise from a short text on is compared as it was exported.
    """
    given = given_leaves(case, inputs)
    kept = KeptModule(case.model)

    with kept.call() as model:
        outputs = model(**inputs)
        with serializers():
            leaves = flatten_named(outputs)
        named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers())
        state = {name: kept.left(tensor) for name, tensor in named}
        given = [kept.left(leaf) for leaf in given]
        returned = [Leaf(leaf.name, kept.left(as_tensor(leaf.value))) for leaf in leaves]
    return EagerRun(returned, given, state)


def given_leaves(case: ModelCase, inputs: Mapping[str, Any]) -> list[Any]:
    """The leaves of inputs in the order of the signature, each as ONNX has it."""
    call = CallInputs.of(case.model.forward, (), inputs)
    with serializers():
        leaves = flatten_named(dict(call.kwargs))
    return [as_tensor(leaf.value) for leaf in leaves]


def joined_rows(leaves: Sequence[Leaf]) -> list[Leaf]:
    """What a model returns as a list of rows, an entry for each picture, as the one tensor that the program has.

    Other lists stay: those of some hidden states have None, or tensors that do not go behind each other.
    """
    groups: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        owner, _, last = leaf.name.rpartition(".")
        groups.setdefault(owner if last.isdigit() else leaf.name, []).append(leaf)
    return [leaf for group in groups.values() for leaf in _joined(group)]


def _joined(group: Sequence[Leaf]) -> Sequence[Leaf]:
    values = [leaf.value for leaf in group]
    if len(group) == 1 or not all(isinstance(value, torch.Tensor) and value.dim() for value in values):
        return group
    if len({(value.dtype, value.shape[1:]) for value in values}) > 1:
        return group
    return [Leaf(group[0].name.rpartition(".")[0], torch.cat(values))]


def as_tensor(value: object) -> Any:
    """As ONNX has it: numbers are tensors of rank 0, complex ones pairs along a last axis; the rest as it is."""
    if isinstance(value, torch.Tensor) and value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return torch.tensor(value) if isinstance(value, (bool, int)) else value


def serializers() -> AbstractContextManager[Any]:
    """How caches and outputs are taken apart, and nothing else that a guard does."""
    return torch_export_patches(patch=False)
