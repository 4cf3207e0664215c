"""Models that keep tables which they make once, where a trace would leave its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import torch

TABLES: dict[int, torch.Tensor] = {}
LISTED: list[torch.Tensor] = []
NOW: torch.Tensor | None = None


class Kinds:
    made: ClassVar[dict[str, torch.Tensor]] = {}


class Store:
    def __init__(self) -> None:
        self.tables: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


STORE = Store()


def _made(n: int) -> torch.Tensor:
    return torch.arange(n) * 0.5


def in_a_dict(n: int) -> torch.Tensor:
    if n not in TABLES:
        TABLES[n] = _made(n)
    return TABLES[n]


def in_a_list(n: int) -> torch.Tensor:
    if not LISTED:
        LISTED.append(_made(n))
    return LISTED[0]


def in_a_variable(n: int) -> torch.Tensor:
    global NOW
    if NOW is None:
        NOW = _made(n)
    return NOW


def in_a_class(n: int) -> torch.Tensor:
    if "table" not in Kinds.made:
        Kinds.made["table"] = _made(n)
    return Kinds.made["table"]


def in_an_object(n: int) -> torch.Tensor:
    if n not in STORE.tables:
        STORE.tables[n] = (_made(n), _made(n))
    return STORE.tables[n][1]


def in_a_default(n: int, known: dict[int, torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006 - as people write it
    if n not in known:
        known[n] = _made(n)
    return known[n]


def _closed() -> Callable[[int], torch.Tensor]:
    known: dict[int, torch.Tensor] = {}

    def table(n: int) -> torch.Tensor:
        if n not in known:
            known[n] = _made(n)
        return known[n]

    return table


in_a_closure = _closed()


def _wrapped(function: Callable[[int], torch.Tensor]) -> Callable[[int], torch.Tensor]:
    cached = functools.lru_cache(function)

    @functools.wraps(function)
    def call(n: int) -> torch.Tensor:
        return cached(n)

    return call


in_a_cache = functools.lru_cache(_made)
in_a_wrapped_cache = _wrapped(_made)


class KeepsATable(torch.nn.Module):
    def __init__(self, table: Callable[[int], torch.Tensor]) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table(4)
