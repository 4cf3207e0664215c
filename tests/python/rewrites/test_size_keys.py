"""Dicts and caches that go by dynamic sizes."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.nn import Module

from exportguard import to_onnx
from exportguard.rewrites.size_keys import _Argument

TABLE: dict = {}


@functools.cache
def band(n, width=1):
    places = torch.arange(n)
    return (places[:, None] - places[None]).abs() <= width


class Kept(Module):
    def __init__(self):
        super().__init__()
        self.masks = {}

    def mask(self, n):
        if n not in self.masks:
            self.masks[n] = torch.full((n, n), -1e4).triu(1)
        return self.masks[n]

    def forward(self, x):
        n = x.shape[0]
        return (x @ x.T + self.mask(n)).softmax(-1) @ x + self.mask(n).sum()


class KeptByTwo(Module):
    def forward(self, x):
        key = (x.shape[0], "rows")
        if key not in TABLE:
            TABLE[key] = torch.arange(x.shape[0]).float()[:, None]
        return x + TABLE[key]


class KeptWithADefault(Module):
    def __init__(self):
        super().__init__()
        self.scales = {4: 2.0, 7: 3.0}

    def forward(self, x):
        return x * self.scales.get(x.shape[0], 1.0)


class OfTwoSizes(Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def count(self, n):
        found = self.known.get(n)
        if found is None:
            found = torch.arange(n).sum() + len(self.known)
            self.known[n] = found
        return found

    def forward(self, x):
        self.known.clear()  # what it has of other sizes would be state
        return self.count(x.shape[0]) * 10 + self.count(x.shape[0] // 2) + self.count(x.shape[0])


class OfACache(Module):
    def forward(self, x):
        return (x @ x.T).masked_fill(~band(x.shape[0], max(1, x.shape[0] // 4)), 0.0), band(3)


CASES = [Kept, KeptByTwo, KeptWithADefault, OfTwoSizes, OfACache]


class OfAFixedCache(Module):
    def forward(self, x):
        return x + band(3, 2).float()


@pytest.mark.parametrize("rewrite", [None, "auto"])
def test_a_cache_keeps_nothing_of_a_trace(rewrite) -> None:
    band.cache_clear()
    to_onnx(OfAFixedCache().eval(), (torch.zeros(3, 3),), rewrite=rewrite)
    assert type(band(3, 2)) is torch.Tensor
    torch.testing.assert_close(OfAFixedCache()(torch.zeros(3, 3)), torch.ones(3, 3))


def _entries(model):
    return {name: dict(value) for name, value in vars(model).items() if isinstance(value, dict)}


@pytest.mark.parametrize("cls", CASES, ids=lambda cls: cls.__name__)
def test_what_is_kept_for_a_size_is_right_at_every_size(cls: type[Module]) -> None:
    model = cls().eval()
    before, table = _entries(model), dict(TABLE)
    onnx = to_onnx(model, (torch.randn(5, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert _entries(model).keys() == before.keys()
    assert all(type(key) in (int, str, tuple) for value in (*_entries(model).values(), TABLE) for key in value)
    assert {**TABLE, **table} == TABLE
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 13):
        x = torch.randn(rows, 3)
        expected = cls()(x)
        found = list(onnx.run({"x": x}).values())
        for got, wanted in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            torch.testing.assert_close(got, wanted)


def test_a_model_that_was_called_before_finds_what_it_keeps() -> None:
    model = Kept().eval()
    model.masks[4] = torch.zeros(4, 4)
    model(torch.randn(6, 3))
    kept = dict(model.masks)
    onnx = to_onnx(model, (torch.randn(5, 3),), dynamic_shapes=({0: "rows"},), rewrite="auto")
    assert model.masks.keys() == kept.keys()
    for rows in (2, 4, 5, 6, 8):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(next(iter(onnx.run({"x": x}).values())), model(x))
        model.masks = dict(kept)


def test_arguments_of_cached_functions_are_the_same_objects_and_not_alike_ones() -> None:
    one, other = torch.ones(3), torch.ones(3)  # whose comparison is no truth
    assert len({_Argument(one), _Argument(one), _Argument(other)}) == 2
    assert _Argument(one) != _Argument(other)
