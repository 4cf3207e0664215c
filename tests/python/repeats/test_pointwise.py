"""How results of operators of elements look, beside what torch's fake kernels say of the same call."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from exportguard.repeats.answers import Answers
from exportguard.repeats.keys import appearance
from exportguard.repeats.pointwise import _is_of_elements

#: Axes by letter: n, m and k are symbolic, in the example as large as here.
SIZES = {"n": 3, "m": 5, "k": 2, "1": 1, "4": 4}
SYMBOLIC = "nmk"

#: Shapes of operands that can be broadcast together, aligned at their last axes.
TOGETHER = (
    ("nm4", "nm4"),
    ("nm4", "4"),
    ("4", "nm4"),
    ("nm4", "nm1"),
    ("nm1", "nm4"),
    ("nm4", "1m4"),
    ("nkm4", "n1m4"),
    ("n1m4", "nkm4"),
    ("nm", "m"),
    ("n1", "1m"),
    ("n11m", "n11m"),
    ("1m4", "1m4"),
    ("n4", "n4"),
    ("n", "n"),
    ("nmk4", "11k4"),
    ("nm", "nk"),
    ("11n1", "111m"),
    ("n11m", ""),
    ("", "nm4"),
    ("nkm4", "nkm4"),
    ("n111", "1m4"),
    ("1n1", "n1m"),
)
DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
NUMBERS = {"int": 2, "float": 0.5, "bool": True}


def operators() -> list[Any]:
    """Those of torch with the tag, whose arguments are tensors and numbers."""
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if space != "aten" or not hasattr(torch.ops.aten, base):
            continue
        operator = getattr(getattr(torch.ops.aten, base), overload or "default", None)
        if operator is not None and torch.Tag.pointwise in operator.tags and not operator._schema.is_mutable:
            found.append(operator)
    return found


OPERATORS = operators()
KNOWN = [operator for operator in OPERATORS if _is_of_elements(operator)]


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

    def by_torch(self, func: Any, args: Sequence[Any]) -> Any:
        with enable_python_dispatcher(), self.mode:  # as in a trace: kernels in C++ take no symbols
            return func(*args)

    def by_answers(self, func: Any, args: Sequence[Any]) -> Any:
        def ask() -> Any:
            self.asked += 1
            return self.by_torch(func, args)

        return self.answers.of(self.mode, (func, tuple(args), {}), ask)


@pytest.fixture
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def drawn_call(asking: Asking, draw: random.Random) -> tuple[Any, list[Any]]:
    """An operator with operands of drawn shapes, layouts and dtypes."""
    func = draw.choice(KNOWN if draw.random() < 0.9 else OPERATORS)
    shapes = draw.choice(TOGETHER)
    is_mixed = draw.random() < 0.3
    dtype = draw.choice(DTYPES[:1] * 4 + DTYPES)
    args: list[Any] = []
    for argument in func._schema.arguments:
        kind = str(argument.type)
        if argument.kwarg_only:
            break
        if kind in ("Tensor", "Optional[Tensor]"):
            tensors = sum(isinstance(value, FakeTensor) for value in args)
            own = torch.bool if argument.name in ("condition", "mask") else draw.choice(DTYPES) if is_mixed else dtype
            layout = draw.choice(
                ("rows", "rows", "rows", "turned", "moved", "part", "part of moved", "expanded", "last")
            )
            args.append(asking.tensor(shapes[min(tensors, 1)], own, layout))
        elif argument.has_default_value() and draw.random() < 0.5:
            args.append(argument.default_value)
        elif kind == "int":
            args.append(2)
        elif "str" in kind:
            args.append(
                argument.default_value if argument.has_default_value() else draw.choice([None, "floor", "trunc"])
            )
        else:
            args.append(draw.choice(list(NUMBERS.values())) if "number" in kind else 0.5)
    return func, args


def compared(seed: int) -> str:
    """ "known", "left to torch" or "refused", where torch and the answers say the same."""
    draw = random.Random(seed)
    asking = Asking()
    func, args = drawn_call(asking, draw)
    try:
        expected: Any = asking.by_torch(func, args)
    except Exception:  # whatever torch has against the call, it is to be said by torch
        with pytest.raises(Exception):  # noqa: B017
            asking.by_answers(func, args)
        assert asking.asked == 1, (func, args)
        return "refused"
    guards = len(asking.env.guards)
    got = asking.by_answers(func, args)
    if asking.asked:
        return "left to torch"
    told = func, [appearance(value) if isinstance(value, FakeTensor) else value for value in args]
    assert appearance(got) == appearance(expected), (told, appearance(got), appearance(expected))
    assert got.untyped_storage().nbytes() == expected.untyped_storage().nbytes(), told
    assert len(asking.env.guards) == guards, told
    assert got.is_contiguous() == expected.is_contiguous(), told
    return "known"


@pytest.mark.parametrize("block", range(8))
def test_results_look_as_torch_says(block: int, without_gradients: None) -> None:
    counts = [compared(seed) for seed in range(150 * block, 150 * (block + 1))]
    assert counts.count("known") > 15
    assert counts.count("left to torch") > 15


if __name__ == "__main__":
    import sys
    from collections import Counter

    with torch.no_grad():
        told: Counter[str] = Counter()
        for one in range(int(sys.argv[1])):
            try:
                told[compared(one)] += 1
            except (AssertionError, pytest.fail.Exception) as error:
                told["not as torch has it"] += 1
                print(one, error)
        print(dict(told))
