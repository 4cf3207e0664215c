"""Untrained weights of a size at which every layer shows in the output.

Configurations initialize for widths of thousands: with a standard deviation of 0.02 a layer of 64 features shrinks its
input sixfold, a few of them leave nothing to compare, and the largest of a model's scores are decided by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

_LEARNED_BUFFERS = ("running_mean", "running_var", "bias")
_CODEBOOKS = ("embed", "embed_sum")  # learned by clustering, as in EnCodec and Mimi
_CONVOLUTIONS = torch.nn.modules.conv._ConvNd
_SMALL_SCALE = 0.5


def make_visible(model: torch.nn.Module, seed: int) -> None:
    """Changes weights in place so that each of them, and each layer, has its share in the output.

    - Values that are all the same get a little noise: a bias of zeros or a scale of ones would hide that it is left
      out, and a router of zeros picks its experts by a tie.
    - So do codebooks of zeros, whose entries would all be as near as each other.
    - A scale of nearly nothing, such as the 1e-6 on the branches of some vision models, and a gate that is closed
      become one half.
    - What multiplies keeps the size of its input: a root mean square of 1 / sqrt(summands) at least.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module, name, value in _weights(model):
            summands = _summands(module, name, value)
            if _is_constant(value):
                _open(value)
                value += 0.02 * torch.randn(value.shape, generator=generator)
            if summands:
                _raise(value, 1 / math.sqrt(summands))


def _weights(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    """Every weight once, with the module that has it and its name there."""
    seen: set[int] = set()
    for module in model.modules():
        buffers = module._buffers.items()
        learned = {name: value for name, value in buffers if name.endswith(_LEARNED_BUFFERS) or name in _CODEBOOKS}
        for name, value in {**module._parameters, **learned}.items():
            if value is not None and value.is_floating_point() and id(value) not in seen:
                seen.add(id(value))
                yield module, name, value


def _summands(module: torch.nn.Module, name: str, value: torch.Tensor) -> int:
    """How many products are added up: 1 for the scale of a normalization, 0 where nothing is multiplied.

    A parameter that its model uses as it likes may be summed along either of its last axes: the longer one counts.
    """
    if value.dim() < 2:
        return int(value.dim() == 1 and name == "weight" and not _is_constant(value))
    if isinstance(module, _CONVOLUTIONS):
        return value[0].numel()
    if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
        return value.shape[-1]
    return max(value.shape[-2:])


def _is_constant(value: torch.Tensor) -> bool:
    if value.numel() == 1:
        return not value.item()  # numbers such as a temperature are meant
    return value.numel() > 1 and bool((value == value.flatten()[0]).all())


def _open(value: torch.Tensor) -> None:
    first = abs(value.flatten()[0].item())
    if 0 < first < _SMALL_SCALE or value.numel() == 1:
        value.fill_(_SMALL_SCALE)


def _raise(value: torch.Tensor, size: float) -> None:
    now = value.square().mean().sqrt().item()
    if 0 < now < size:
        value *= size / now
