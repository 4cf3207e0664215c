"""Models with repeated layers, of as many nodes as are asked for, each with the call that they are traced with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class DecoderBlock(nn.Module):
    """Attention with a causal mask that is made anew, and a gated layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = 4
        self.norm, self.norm_after = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        h = self.norm(x)
        q, k, v = (part(h).view(batch, seq, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        mask = positions[:, None, :, None] >= positions[:, None, None, :]
        weights = torch.softmax(scores.masked_fill(~mask, -1e9), -1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(batch, seq, width))
        h = self.norm_after(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h)) * 0.5


class Decoder(nn.Module):
    def __init__(self, layers: int, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(DecoderBlock(width) for _ in range(layers))
        self.head = nn.Linear(width, 11)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1])[None] + 1
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, positions)
        return self.head(x)


class Encoder(nn.Module):
    """torch's own layers, with their fused attention and normalization."""

    def __init__(self, layers: int, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, activation="gelu") for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Convolutions(nn.Module):
    def __init__(self, layers: int, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 1)
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.stem(x))
        for block in self.blocks:
            x = x + 0.3 * block(x)
        return self.head(x.mean((2, 3)))


class Branches(nn.Module):
    """Layers that do one of two things, as their inputs say."""

    def __init__(self, layers: int, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, block in enumerate(self.blocks):
            is_large = x.abs().mean() > (0.2 if number % 2 else 2.0)
            made = torch.cond(
                is_large, lambda h: torch.tanh(h * 2) - 0.25, lambda h: torch.sin(h) * 0.5 + 1, (block(x),)
            )
            x = self.norm(x + made)
        return x


class Steps(nn.Module):
    """A loop that carries a state and a scan over a sequence, layer upon layer."""

    def __init__(self, layers: int, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(count: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count + 1, torch.tanh(h * (0.5 + count)) + 0.1 * h

        def mixed(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            state = torch.sigmoid(row) * state + 0.3 * row
            return state, state * 1.5 - row

        for block in self.blocks:
            x = block(x)
            x = while_loop(lambda count, h: count < 3, step, (torch.tensor(0), x))[1]
            x = scan(mixed, x[:, 0] * 0, x, dim=1)[1]
        return x


class Recurrent(nn.Module):
    def __init__(self, layers: int, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.gates = nn.ModuleList(
            nn.GRU(width, width // 2, batch_first=True, bidirectional=True) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block, gate in zip(self.blocks, self.gates, strict=True):
            x = x + block(x)[0] * 0.5
            x = torch.clamp(gate(x)[0] * 1.5, -0.5, 0.5) + x.amax(-1, keepdim=True)
        return x


class Pictures(nn.Module):
    """Down and up again: pooling, padding, resizing, groups, joined with what was before."""

    def __init__(self, layers: int, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, groups=2) for _ in range(layers))
        self.up = nn.ModuleList(nn.Conv2d(2 * width, width, 1) for _ in range(layers))
        self.norms = nn.ModuleList(nn.GroupNorm(2, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for down, up, norm in zip(self.down, self.up, self.norms, strict=True):
            h = nn.functional.max_pool2d(nn.functional.gelu(norm(x)), 2)
            h = nn.functional.pad(down(h), (1, 1, 1, 1), mode="reflect")
            h = nn.functional.avg_pool2d(h, 3, stride=1)
            h = nn.functional.interpolate(h, size=x.shape[2:], mode="bilinear")
            x = up(torch.cat([x, h], 1)) + x
        return x.flatten(2).softmax(-1)


Case = tuple[nn.Module, tuple[torch.Tensor, ...], Any]


def decoder(layers: int) -> Case:
    return Decoder(layers).eval(), (torch.randint(0, 11, (2, 6)),), ({0: "batch", 1: "seq"},)


def encoder(layers: int) -> Case:
    return Encoder(layers).eval(), (torch.randn(2, 6, 16),), ({0: "batch", 1: "seq"},)


def convolutions(layers: int) -> Case:
    return Convolutions(layers).eval(), (torch.randn(2, 3, 9, 7),), ({0: "batch", 2: "height", 3: "width"},)


def branches(layers: int) -> Case:
    return Branches(layers).eval(), (torch.randn(3, 8),), ({0: "batch"},)


def steps(layers: int) -> Case:
    return Steps(layers).eval(), (torch.randn(2, 5, 8),), ({0: "batch", 1: "seq"},)


def recurrent(layers: int) -> Case:
    return Recurrent(layers).eval(), (torch.randn(2, 5, 8),), ({0: "batch", 1: "seq"},)


def pictures(layers: int) -> Case:
    return Pictures(layers).eval(), (torch.randn(2, 3, 12, 16),), ({0: "batch"},)


#: Models without bodies, and with much of each kind of operator that layers are made of.
FAMILIES: Mapping[str, Callable[[int], Case]] = {"decoder": decoder, "encoder": encoder, "convolutions": convolutions}
#: Further ones: bodies of If, Loop and Scan, recurrences, pooling and resizing.
MORE_FAMILIES: Mapping[str, Callable[[int], Case]] = {
    "branches": branches,
    "steps": steps,
    "recurrent": recurrent,
    "pictures": pictures,
}
