"""Sessions for the few calls of a proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from exportguard import _core
from exportguard.runners.onnxruntime import OrtSession, SessionOptions

#: Bytes of weights from which on they are not laid out anew in memory, whatever that costs.
LARGE = 1 << 30

#: What becomes a MatMulNBits in onnxruntime (1.30): its kernel turns all weights into floats at each call, where they
#: were not laid out once. A layout for other kernels takes longer than the few calls of a proof without it.
_BLOCKS = {"com.microsoft::MatMulNBits", "DequantizeLinear"}


@dataclass(frozen=True)
class Call:
    """What a file was given and what it returned, by name."""

    inputs: Mapping[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]


def session_of(file: Path) -> OrtSession:
    """A session that has no second copy of the weights, but where kernels are slow without it."""
    return OrtSession(file, SessionOptions(packs_weights=needs_packed_weights(file), spins=False))


def needs_packed_weights(file: Path) -> bool:
    """Whether its weights are better laid out anew for a few calls."""
    return weight_bytes(file) < LARGE and not _BLOCKS.isdisjoint(_core.load(file).operators)


def called(session: OrtSession, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Runs a file."""
    return Call(inputs, dict(zip(session.output_names, session.run(inputs), strict=True)))


def fitting(session: OrtSession, feeds: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What a model of half precision is given, in float32 where its file takes that."""
    return {name: value.float() if name in session.wide_inputs else value for name, value in feeds.items()}


def weight_bytes(file: Path) -> int:
    """The size of the file and of what lies beside it under its name."""
    return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))
