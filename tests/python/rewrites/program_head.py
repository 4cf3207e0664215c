"""What every random program begins with: functions, classes and a model, up to the statements of its `forward`."""

from __future__ import annotations

HEAD = """\
import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import random
import torch

Pair = collections.namedtuple("Pair", ["first", "second"])


@contextlib.contextmanager
def told():
    try:
        yield
    finally:
        pass


class Box:
    def __init__(self, value, count):
        self.value = value
        self.count = count


class Score:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return bool(self.value > 0)


@dataclasses.dataclass
class State:
    hidden: torch.Tensor
    steps: int = 0


class Quiet:
    def __init__(self, is_quiet):
        self.is_quiet = is_quiet

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return self.is_quiet and kind is not None and issubclass(kind, ValueError)


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0, -1.0, 0.5]))

    def forward(self, v):
        if v.sum() > 4:
            return v * self.scale
        return v + self.scale

    def pong(self, other, v, times):
        if times == 0 or v.abs().max() < 0.3:
            return v
        return other.ping(v * self.scale, times - 1)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.zeros(4)
        self.cache = None
        self.steps = 0
        self.table = {}
        self.inner = Inner()
        self.register_buffer("bias", torch.tensor([0.5, -0.25, 1.0, 0.0]))

    def bounded(self, v):
        if v.max() > 6:
            raise ValueError("too large")
        return v * 0.5

    def first_above(self, x, bound):
        for r in x:
            if r.sum() > bound:
                return r
        return x.sum(0)

    def first_row(self, v):
        return v[:1] + v

    def halved(self, v, depth):
        if depth == 0 or v.abs().max() < 0.5:
            return v
        return self.halved(v * 0.5, depth - 1)

    def scaled(self, v, by=None):
        if by is None:
            by = 1.5
        return v * by

    def summed(self, *tensors, scale=1.0, **options):
        total = tensors[0] * scale
        for t in tensors[1:]:
            total = total + t if t.sum() > 0 else total - t
        return total

    def pair_above(self, x, bound):
        for a in x:
            for b in x:
                if (a - b).sum() > bound:
                    return a * b
                if b.sum() > 100:
                    break
        return x.sum(0)

    def ping(self, v, times):
        if v.sum() > 0:
            return self.inner.pong(self, v * 0.5, times)
        return self.inner(v)

    def rows_of(self, x):
        for r in x:
            yield r * 0.5

    def forward(self, x):
"""
