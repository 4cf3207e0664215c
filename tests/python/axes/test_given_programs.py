"""Programs of torch.export that are converted as they are: a file stops where a guard of theirs does not hold.

`python test_given_programs.py 200` checks as many programs and prints what became of them.
"""

from __future__ import annotations

import io
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from exportguard import ExportOptions, OnnxModel, to_onnx

_SIZES = (2, 3, 4, 5, 6, 8, 9)
_EXAMPLE = 6
_DRAW = torch.Generator().manual_seed(0)
_ROWS = {size: [torch.randn(2, size, 3, generator=_DRAW) for _ in range(3)] for size in _SIZES}

#: Tests on sizes that leave a guard.
TESTS: Mapping[str, Callable[[int, int, int], bool]] = {
    "equal": lambda a, b, _: a == b,
    "another": lambda a, b, _: a != b,
    "larger than a number": lambda a, _b, k: a > k,
    "a rest": lambda a, _b, k: a % k == 0,
    "a quotient": lambda a, b, k: a // k <= b,
    "a sum": lambda a, b, k: a + b > 2 * k,
    "a product": lambda a, b, k: a * b >= 9 * k,
    "the larger": lambda a, b, k: max(a, b) < 2 * k + 3,
    "either": lambda a, b, k: a > k or b > k + 1,
}
#: Operators whose kernels ask for sizes.
OPERATORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: (a + b).sum(1),
    "chunk": lambda a, _: a.chunk(3, 1)[0].sum(1),
    "pool": lambda a, _: torch.nn.functional.avg_pool2d(a[None], 2, 3, 1, ceil_mode=True, divisor_override=3)[0].sum(1),
    "cut": lambda a, b: a[:, : b.shape[1]].sum(1),
    "windows": lambda a, _: a.unfold(1, 2, 2).sum((1, 3)),
}


class Drawn(torch.nn.Module):
    """What is made of a sum, step by step."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.steps = [
            (draw.choice([*TESTS, *TESTS, *OPERATORS]), *draw.sample(range(3), 2), draw.randint(1, 4))
            for _ in range(draw.randint(1, 4))
        ]

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        rows = (x, y, z)
        value = x.sum(1) + y.amax(1) * z.amin(1)
        for name, one, other, number in self.steps:
            a, b = rows[one], rows[other]
            if name in OPERATORS:
                value = value + OPERATORS[name](a, b)[..., :3]
            else:
                value = value.sin() if TESTS[name](a.shape[1], b.shape[1], number) else value * 2
        return value


def exported(model: torch.nn.Module, shapes: Any, *, strict: bool, is_saved: bool) -> ExportedProgram | None:
    """None if torch cannot, or will not."""
    try:
        program = torch.export.export(model, tuple(_ROWS[_EXAMPLE]), dynamic_shapes=shapes, strict=strict)
    except Exception:  # of torch, which is not what is tried here
        return None
    if not is_saved:
        return program
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def holds(program: torch.nn.Module, given: Sequence[Tensor]) -> bool:
    try:
        program(*given)
    except (AssertionError, RuntimeError, ValueError):
        return False
    return True


def answer(onnx: OnnxModel, given: Sequence[Tensor]) -> Tensor | None:
    try:
        (got,) = onnx.run(dict(zip("xyz", given, strict=True))).values()
    except RuntimeError:
        return None
    return torch.as_tensor(got)


#: What the axes are called: nothing at all is as frequent as the others together.
NAMES: Sequence[Sequence[Any]] = (
    *([[Dim.AUTO] * 3] * 3),
    [Dim("p"), Dim("q"), Dim("r")],
    [Dim("p"), Dim.AUTO, Dim.AUTO],
    [Dim("p", min=4, max=8), None, Dim.AUTO],
)


def outcome_of(seed: int) -> str:
    model = Drawn(seed).eval()
    draw = random.Random(seed)
    names = draw.choice(NAMES)
    shapes = tuple({1: name} if name is not None else None for name in names)
    program = exported(model, shapes, strict=draw.random() < 0.4, is_saved=draw.random() < 0.4)
    if program is None:
        return "not exported"
    onnx, module = to_onnx(program), program.module()
    stopped = 0
    for sizes in itertools.product(_SIZES, repeat=3):
        given = [_ROWS[size][place] for place, size in enumerate(sizes)]
        got = answer(onnx, given)
        if got is None:
            assert not holds(module, given), f"{model.steps} stops at {sizes}"
            stopped += 1
        else:
            torch.testing.assert_close(got, model(*given), msg=f"{model.steps} of {names} at {sizes}")
    return "stops at some" if stopped else "right everywhere"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_file_stops_where_its_program_does(first: int) -> None:
    outcomes = Counter(outcome_of(seed) for seed in range(first, first + 10))
    assert outcomes["stops at some"] > 1


def test_axes_of_one_name_are_what_was_promised() -> None:
    class Tests(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x.sum() * y.sum() if x.shape[0] == y.shape[0] else x.sum()

    rows = Dim("rows")
    program = torch.export.export(Tests(), (torch.ones(4), torch.ones(4)), dynamic_shapes=({0: rows}, {0: rows}))
    assert to_onnx(program).node_count == to_onnx(program, options=ExportOptions(check_sizes=False)).node_count


class Containers(torch.nn.Module):
    def forward(self, *args: Tensor, cache: Any, k: Tensor) -> Tensor:
        first, second = args
        same = first.shape[0] == cache["keys"][1].shape[1] and second.shape[0] > k.shape[0]
        return first.sum() if same else second.sum()


@pytest.mark.parametrize("is_saved", [False, True])
def test_guards_of_inputs_in_containers_are_found(is_saved: bool) -> None:
    auto = Dim.AUTO
    args = (torch.ones(4), torch.ones(6))
    kwargs = {"cache": {"keys": [torch.ones(2), torch.ones(1, 4)]}, "k": torch.ones(3)}
    shapes = {"args": ({0: auto}, {0: auto}), "cache": {"keys": [None, {1: auto}]}, "k": {0: auto}}
    program = torch.export.export(Containers(), args, kwargs, dynamic_shapes=shapes)
    if is_saved:
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        program = torch.export.load(file)
    onnx = to_onnx(program)
    names = [value.name for value in onnx.inputs]

    def run(first: int, second: int, keys: int, k: int) -> None:
        sizes = {"args": (first, second), "keys": (2, (1, keys)), "k": (k,)}
        made = [
            torch.ones(sizes["args"][0]),
            torch.ones(sizes["args"][1]),
            torch.ones(2),
            torch.ones(1, keys),
            torch.ones(k),
        ]
        onnx.run(dict(zip(names, made, strict=False)))

    run(5, 9, 5, 4)
    for wrong in ((5, 9, 6, 4), (5, 4, 5, 4)):
        with pytest.raises(RuntimeError, match="only sizes with"):
            run(*wrong)


if __name__ == "__main__":
    print(dict(Counter(outcome_of(seed) for seed in range(int(sys.argv[1])))))
