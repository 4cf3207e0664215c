"""Indices that mix the number of a step with tensors, lists, masks, slices, `...` and `None`: as in eager mode, or refused.

`python tests/python/rewrites/test_indices_of_loops.py --count 500` makes and checks as many and prints what is wrong.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from random_programs import model_of

from exportguard import ExportGuardError, to_onnx

#: The sizes of the axes of the input: those that are exported first. The first axis of a program's loop is `t`.
EXPORTED = {"t": 4, "b": 3}
SIZES = ({"t": 2, "b": 5}, {"t": 1, "b": 2}, {"t": 7, "b": 3}, {"t": 3, "b": 2})

#: Loops by the numbers that they give, all from `first` to `n - rest`.
_LOOPS = {
    "all": ("for j in range(n):", 0, 0),
    "not the last": ("for j in range(n - 1):", 0, 1),
    "not the first": ("for j in range(1, n):", 1, 0),
    "backwards": ("for j in range(n - 1, -1, -1):", 0, 0),
    "while": ("j = -1\n        while j < n - 1:\n            j += 1", 0, 0),
}

#: What names an entry, or some, of the axis of the counter; those with `+ 1` need a loop that ends before.
_COUNTED = ("j", "j", "j", "j - 1", "-1 - j", "n - 1 - j", "j * 1", "[0, j]", "(j, j - 1)")
_WINDOWS = ("j:", ":j", "j - 1:j + 1", "j:j + 1", ":j + 1")
_AHEAD = ("j + 1", "j:j + 2", "j + 1:")

#: What stands for another axis; `{a}` is the axis.
_BASIC = (":", ":", "0", "-1", "1:", "v.shape[{a}] - 1", "s")
_CHOSEN = ("k", "k", "k[:, None]", "[0, 1]", "(1, 0)", "ar{a}", "ar{a}[:, None]", "m{a}", "[1]")

_PROGRAM = """
import torch


class Model(torch.nn.Module):
    def forward(self, v):
        k, s, n = torch.tensor([1, 0]), (v.sum() > 0).long(), v.shape[{axis}]
        {names}
        out, got, total = {start}, [], torch.zeros(())
        {loop}
{body}
        return {returned}
"""

_VALUES = (
    "5",
    "j + 1",
    "v.mean() + j",
    "{read} * 2 + 1",
    "{read}.mean(0)",
    "{read}[..., :1] - j",
    "w{axis}",
    "0.5 * j",
)


@dataclass(frozen=True)
class Case:
    """A program and the names of the sizes of its input."""

    source: str
    shape: tuple[Any, ...]
    kind: str
    index: str

    def input(self, sizes: dict[str, int], seed: int) -> torch.Tensor:
        shape = [sizes.get(size, size) for size in self.shape]
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _part(draw: random.Random, axis: int) -> str:
    return draw.choice(draw.choice((_BASIC, _CHOSEN))).format(a=axis)


def _index(draw: random.Random, rank: int, axis: int, counted: str) -> list[str]:
    """The parts of an index, with one mask over two axes at times."""
    parts = [counted if a == axis else _part(draw, a) for a in range(rank)]
    pairs = [a for a in range(rank - 1) if axis not in (a, a + 1)]
    if pairs and draw.random() < 0.2:
        first = draw.choice(pairs)
        parts[first : first + 2] = [f"m{first}{first + 1}"]
    return _loosened(draw, parts)


def _loosened(draw: random.Random, parts: list[str]) -> list[str]:
    """An index with `...` for whole axes, without those at its end, and with new axes."""
    whole = [place for place, part in enumerate(parts) if part == ":"]
    if whole and draw.random() < 0.4:
        place = draw.choice(whole)
        parts = [*parts[:place], "...", *parts[place + 1 :]]
    elif draw.random() < 0.15:
        parts = [*parts]
        parts.insert(draw.randrange(len(parts) + 1), "...")
    while parts[-1] == ":" and len(parts) > 1 and "..." not in parts and draw.random() < 0.7:
        parts = parts[:-1]
    if draw.random() < 0.25:
        parts = [*parts]
        parts.insert(draw.randrange(len(parts) + 1), "None")
    return parts


def _names(parts: str, rank: int) -> str:
    """The tensors that a program's indices name."""
    made = [f"ar{a} = torch.arange(v.shape[{a}])" for a in range(rank) if f"ar{a}" in parts]
    for name in sorted(set(re.findall(r"\bm\d+\b", parts))):
        others = [a for a in range(rank) if str(a) not in name[1:]]
        made.append(f"{name} = v.sum({others}) > 0" if others else f"{name} = v > 0")
    for name in sorted(set(re.findall(r"\bw\d\b", parts))):
        made.append(f"{name} = torch.arange(v.shape[{name[1:]}]) * 0.5")
    return "\n        ".join(made) or "pass"


def case_of(seed: int) -> Case:
    """The program of a seed."""
    draw = random.Random(seed)
    rank = draw.choice((2, 2, 3, 3, 4))
    axis, loop = draw.randrange(rank), draw.choice([*_LOOPS])
    head, _, rest = _LOOPS[loop]
    counted = draw.choice(draw.choice((_COUNTED, _COUNTED, _WINDOWS, _AHEAD if rest else _COUNTED)))
    index = ", ".join(_index(draw, rank, axis, counted))
    kind = draw.choice(("read", "write", "update"))
    lines = _statements(draw, kind, index, axis)
    body = "\n".join(f"            {line}" for line in _placed(draw, lines, rank))
    start = draw.choice(("torch.zeros_like(v)", "v.clone()", "v * 2", "(v * 9).long()"))
    if kind == "read":
        returned = draw.choice(("torch.stack(got)", "total")) if loop != "while" else "total"
    else:
        returned = "out"
    shape = [2, 3, 4, 5][:rank]
    other = draw.choice([a for a in range(rank) if a != axis])
    shape[axis], shape[other] = "t", "b"  # type: ignore[call-overload]
    if returned != "torch.stack(got)":
        body = "\n".join(line for line in body.splitlines() if "got.append" not in line)
    source = _PROGRAM.format(
        axis=axis, names=_names(index + body, rank), start=start, loop=head, body=body, returned=returned
    )
    return Case(source, tuple(shape), kind, index)


def _statements(draw: random.Random, kind: str, index: str, axis: int) -> list[str]:
    if kind == "read":
        weighted = "(r.reshape(-1) * torch.arange(1, r.numel() + 1)).sum()"
        return [f"r = v[{index}]", "got.append(r * (j + 1))", f"total = total * 0.5 + {weighted}"]
    value = draw.choice(_VALUES).format(read=f"v[{index}]", axis=axis)
    operator = draw.choice(("+", "*", "-")) if kind == "update" else ""
    return [f"out[{index}] {operator}= {value}"]


def _placed(draw: random.Random, lines: list[str], rank: int) -> list[str]:
    """Statements as they are, in a branch on data, or in another loop."""
    where = draw.choice(("", "", "branch", "loop")) if "got.append(r * (j + 1))" not in lines else ""
    if where == "branch":
        return ["if (v.sum() + j).sin() > 0:", *(f"    {line}" for line in lines)]
    if where == "loop":
        return [f"for i in range(v.shape[{draw.randrange(rank)}]):", *(f"    {line}" for line in lines)]
    return lines


#: What torch says of its own to nobody in particular.
_RAW = re.compile(r"Pending unbacked|size of tensor a|Could not guard|FakeTensor|Index put|does something else")


def outcome(seed: int) -> str:
    """Whether a program is right, refused, or one that eager mode does not take; else what is wrong."""
    case = case_of(seed)
    model = model_of(case.source, f"/indices/{seed}.py")
    known = []
    for place, sizes in enumerate((EXPORTED, *SIZES, EXPORTED)):
        v = case.input(sizes, place)
        try:
            known.append((v, model(v.clone())))
        except (RuntimeError, IndexError, ValueError, TypeError):
            known.append((v, None))
    if known[0][1] is None or sum(wanted is not None for _, wanted in known) < 5:
        return "not in eager mode"
    dynamic = {axis: size for axis, size in enumerate(case.shape) if isinstance(size, str)}
    try:
        onnx = to_onnx(model, (known[0][0],), dynamic_shapes=(dynamic,), rewrite="auto")
    except ExportGuardError as error:
        return _refusal(str(error))
    for v, wanted in known:
        if wanted is not None and (wrong := _wrong(onnx, v, wanted)):
            return f"wrong at {tuple(v.shape)}: {wrong}"
    return "right"


def _refusal(text: str) -> str:
    raw = _RAW.search(text)
    return f"raw: {text}" if raw or not re.search(r"line \d|\.py:\d", text) else f"refused: {text}"


def _wrong(onnx: Any, v: torch.Tensor, wanted: torch.Tensor) -> str:
    try:
        (found,) = onnx.run({"v": v}).values()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    if found.shape != wanted.shape:
        return f"the shape {tuple(found.shape)} instead of {tuple(wanted.shape)}"
    return "" if torch.allclose(found, wanted, rtol=1e-3, atol=1e-3) else "other numbers"


def main() -> None:
    """Checks programs and prints those that are wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--show", nargs="*", default=["wrong", "raw"])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    counts: Counter[tuple[str, str]] = Counter()
    for seed in range(options.start, options.start + options.count):
        try:
            found = outcome(seed)
        except Exception as error:
            found = f"raw: {type(error).__name__}: {error}"
        kind = re.split(r"[ :]", found)[0]
        counts[(case_of(seed).kind, kind)] += 1
        if kind in options.show:
            lines = case_of(seed).source.split("def forward(self, v):\n")[1]
            sys.stdout.write(f"--- {seed} {case_of(seed).shape}\n{lines}{found[:700]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(sorted(counts.items()))}\n")


if __name__ == "__main__":
    main()
