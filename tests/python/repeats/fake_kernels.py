"""What torch's fake kernels say of a call beside what is read off the expressions of its operands."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils import _pytree as pytree

from exportguard.repeats.answers import Answers
from exportguard.repeats.keys import appearance

#: Axes by letter: n, m and k are symbolic, in the example as large as here.
SIZES = {"n": 3, "m": 5, "k": 2, "0": 0, "1": 1, "4": 4}
SYMBOLIC = "nmk"

#: How a tensor lies in memory; most lie row by row.
LAYOUTS = ("rows", "rows", "rows", "turned", "moved", "part", "part of moved", "expanded", "last")


class Asking:
    """Fake tensors of one trace, and how often the answers were left to torch."""

    def __init__(self) -> None:
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.env)
        self.answers, self.asked = Answers(), 0
        self.axes: dict[str, Any] = {}
        for letter in SYMBOLIC:
            context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
            self.axes[letter] = self.mode.from_tensor(torch.zeros(SIZES[letter]), symbolic_context=context).shape[0]

    def tensor(self, shape: str, dtype: torch.dtype, layout: str) -> Any:
        """A fake tensor that lies in memory as `layout` says."""
        sizes = [self.axes.get(letter, SIZES[letter]) for letter in shape]
        with self.mode:
            if layout == "turned" and len(sizes) > 1:
                return torch.zeros([*sizes[:-2], sizes[-1], sizes[-2]], dtype=dtype).transpose(-1, -2)
            if layout == "moved" and len(sizes) > 2:
                return torch.zeros([sizes[0], *sizes[2:-1], sizes[1], sizes[-1]], dtype=dtype).movedim(-2, 1)
            if layout == "part" and sizes:
                return torch.zeros([*sizes[:-1], sizes[-1] + 1], dtype=dtype)[..., 1:]
            if layout == "part of moved" and len(sizes) > 2:
                return torch.zeros([sizes[0], *sizes[2:-1], sizes[1], 2 * sizes[-1]], dtype=dtype).movedim(-2, 1)[
                    ..., sizes[-1] :
                ]
            if layout == "expanded" and sizes:
                return torch.zeros([1, *sizes[1:]], dtype=dtype).expand(sizes)
            if layout == "last" and len(sizes) == 4:
                made: Any = torch.zeros(sizes, dtype=dtype).contiguous(memory_format=torch.channels_last)
                return made
            return torch.zeros(sizes, dtype=dtype)

    def by_torch(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with enable_python_dispatcher(), self.mode:  # as in a trace: kernels in C++ take no symbols
            return func(*args, **kwargs)

    def by_answers(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        def ask() -> Any:
            self.asked += 1
            return self.by_torch(func, args, kwargs)

        return self.answers.of(self.mode, (func, tuple(args), kwargs), ask)

    def compared(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> str:
        """ "known", "left to torch" or "refused", where torch and the answers say the same of a call."""
        kwargs = kwargs or {}
        try:
            expected: Any = self.by_torch(func, args, kwargs)
        except Exception:  # whatever torch has against the call, it is to be said by torch
            with pytest.raises(Exception):  # noqa: B017
                self.by_answers(func, args, kwargs)
            assert self.asked == 1, (func, args)
            return "refused"
        guards = len(self.env.guards)
        got = self.by_answers(func, args, kwargs)
        if self.asked:
            return "left to torch"
        told = func, [appearance(value) if isinstance(value, FakeTensor) else value for value in args], kwargs
        assert appearance(got) == appearance(expected), (told, appearance(got), appearance(expected))
        assert list(map(type, got.shape)) == list(map(type, expected.shape)), told
        assert got.untyped_storage().nbytes() == expected.untyped_storage().nbytes(), told
        tensors = [value for value in pytree.tree_leaves(list(args)) if isinstance(value, FakeTensor)]
        memories = [tensor.untyped_storage()._cdata for tensor in tensors]
        shared = [[value.untyped_storage()._cdata == memory for memory in memories] for value in (got, expected)]
        assert shared[0] == shared[1], told
        assert len(self.env.guards) == guards, told
        assert [*flags_of(got)] == [*flags_of(expected)], told
        return "known"


#: An operator and arguments for it, by place and perhaps by keyword, drawn for one trace.
DrawnCall = Callable[[Asking, random.Random], tuple[Any, ...]]


def flags_of(value: torch.Tensor) -> Iterator[bool]:
    """Whether a tensor is contiguous, in each format that its rank has."""
    yield value.is_contiguous()
    if value.dim() == 4:
        yield value.is_contiguous(memory_format=torch.channels_last)
    if value.dim() == 5:
        yield value.is_contiguous(memory_format=torch.channels_last_3d)


def compared(drawn_call: DrawnCall, seed: int) -> str:
    """What became of a drawn call."""
    asking = Asking()
    return asking.compared(*drawn_call(asking, random.Random(seed)))


def require_known(drawn_call: DrawnCall, block: int, known: int) -> None:
    """Of a block of drawn calls some are left to torch, and more than `known` are not."""
    with torch.no_grad():
        counts = Counter(compared(drawn_call, seed) for seed in range(150 * block, 150 * (block + 1)))
    assert counts["known"] > known
    assert counts["left to torch"] > 15


def tell(drawn_call: DrawnCall) -> None:
    """Prints what became of as many drawn calls as the command line says."""
    with torch.no_grad():
        told: Counter[str] = Counter()
        for one in range(int(sys.argv[1])):
            try:
                told[compared(drawn_call, one)] += 1
            except (AssertionError, pytest.fail.Exception) as error:
                told["not as torch has it"] += 1
                print(one, error)
        print(dict(told))
